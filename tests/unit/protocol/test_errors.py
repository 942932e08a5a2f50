"""The errors: whose fault, whether to try again, and what a client sees of them."""

import pytest
from tieline_protocol import errors
from tieline_protocol.errors import Code, ProtocolError, Refused, TielineError, Unavailable


def test_a_client_sees_codes_of_the_closed_list_only():
    assert {str(code) for code in Code} == {
        *("bad_request", "unauthorized", "not_found", "conflict", "busy", "rate_limited", "too_large"),
        *("unavailable", "timeout", "cancelled", "disconnected", "invalid_arguments", "unknown_action"),
        "internal",
    }


@pytest.mark.parametrize(
    ("error", "parent", "code"),
    [
        (errors.BadSubject, ProtocolError, Code.BAD_REQUEST),
        (errors.BadMessage, ProtocolError, Code.BAD_REQUEST),
        (errors.BadCursor, ProtocolError, Code.BAD_REQUEST),
        (errors.NoResponders, Unavailable, Code.UNAVAILABLE),
        (errors.FateUnknown, Unavailable, Code.UNAVAILABLE),
        (errors.TimedOut, Unavailable, Code.TIMEOUT),
    ],
)
def test_each_error_has_its_place_and_code(error, parent, code):
    raised = error("why")

    assert isinstance(raised, parent)
    assert (raised.code, raised.message, str(raised), raised.details) == (code, "why", "why", None)


def test_who_refuses_says_which_code_and_details():
    refused = Refused(Code.CONFLICT, "a turn runs", details={"generation": 3})

    assert isinstance(refused, TielineError)
    assert (refused.code, refused.details) == ("conflict", {"generation": 3})
    assert TielineError("bug").code == Code.INTERNAL
