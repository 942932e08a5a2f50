"""What a provider's refusal means for the user and for the next try."""

import pytest
from tieline_agent import model_errors
from tieline_protocol.errors import Code

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("status", "kind", "code", "retry"),
    [
        (400, None, Code.BAD_REQUEST, False),
        (404, "model_not_found", Code.BAD_REQUEST, False),
        (413, None, Code.TOO_LARGE, False),
        (401, "invalid_api_key", Code.UNAUTHORIZED, False),
        (403, None, Code.UNAUTHORIZED, False),
        (429, None, Code.RATE_LIMITED, True),
        (429, "insufficient_quota", Code.RATE_LIMITED, False),
        (408, None, Code.UNAVAILABLE, True),
        (500, None, Code.UNAVAILABLE, True),
        (503, None, Code.UNAVAILABLE, True),
    ],
)
def test_only_what_may_pass_is_tried_again(status: int, kind: str | None, code: Code, retry: bool):
    trouble = model_errors.trouble_of_status(status, kind, "because", None)

    assert (trouble.code, trouble.retry) == (code, retry)


def test_a_refused_key_is_not_quoted():
    trouble = model_errors.trouble_of_status(401, None, "Incorrect API key provided: sk-12***89", None)

    assert "sk-" not in trouble.message


def test_a_long_message_is_cut():
    assert len(model_errors.trouble_of_status(400, None, "x" * 5_000, None).message) < 600


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "7", "retry-after-ms": "20"}, 0.02),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:30 GMT"}, 10.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:10 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
    ],
)
def test_retry_after_is_understood_in_all_its_spellings(headers: dict[str, str], seconds: float | None):
    assert model_errors.retry_after(headers, NOW) == seconds
