from __future__ import annotations

import pytest
from tieline_protocol.errors import ProtocolError
from tieline_streams.payloads import Open, Prompt, Resize, Respond, read


def test_what_is_left_out_has_its_default_and_what_is_unknown_is_ignored():
    assert read(Open, {"zig": 1}) == Open()
    assert read(Prompt, {"text": ""}).queue is False


@pytest.mark.parametrize(
    ("model", "payload", "field"),
    [
        (Open, {"title": 5}, "title"),
        (Open, {"title": "x" * 1_001}, "title"),
        (Open, {"remotes": "x"}, "remotes"),
        (Prompt, {}, "text"),
        (Prompt, {"text": "x", "queue": "yes"}, "queue"),
        (Prompt, {"text": "x", "client_message_id": ""}, "client_message_id"),
        (Respond, {"pending_id": ""}, "pending_id"),
        (Resize, {"cols": 80}, "rows"),
    ],
)
def test_what_is_wrong_is_named(model: type, payload: dict, field: str):
    with pytest.raises(ProtocolError, match=field):
        read(model, payload)


@pytest.mark.parametrize("cols", [0, -1, 65_536, 10**9, "80", 80.5, 80.0, None, True])
def test_a_size_is_a_whole_number_that_a_terminal_can_have(cols: object):
    """B77."""
    with pytest.raises(ProtocolError):
        read(Resize, {"cols": cols, "rows": 24})

    assert read(Resize, {"cols": 100, "rows": 30}) == Resize(cols=100, rows=30)
