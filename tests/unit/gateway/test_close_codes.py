"""Close codes say whether to come back."""

from __future__ import annotations

import orjson
import pytest
from tieline_gateway.close_codes import CloseCode, reason


@pytest.mark.parametrize("code", CloseCode)
def test_a_reason_fits_a_close_frame_and_agrees_with_its_code(code: CloseCode) -> None:
    text = reason(code, 60_000)

    assert len(text.encode()) <= 123
    assert ("retry_after_ms" in orjson.loads(text)) is (4000 <= code <= 4499)
    assert code.come_back is (code <= 4499)
    assert orjson.loads(text)["message"] == code.meaning
