"""Frames of remote calls, and whether each call ended well."""

from __future__ import annotations

from collections import Counter

import orjson
import pytest
from tieline_protocol import frontend

from bench.callframes import Ledger, Wrong, answer, call, registration, shares


def body(frame: bytes) -> bytes:
    """A small frame without its two bytes of head."""
    return frame[2:] if frame[1] < 126 else frame[4:]


def accepted(number: int, request_id: str) -> bytes:
    return body(frontend.response(number, "remote-call", {"requestId": request_id}))


def result(request_id: str, value: int) -> bytes:
    return body(frontend.call_result(request_id, orjson.dumps(value)))


def test_a_call_and_a_registration_are_what_the_protocol_wants() -> None:
    frame = frontend.parse(call("tool", 7))
    wanted = frontend.payload(frontend.action(frame.action), frame.payload)

    assert (frame.kind, frame.id, frame.payload["args"]) == ("request", 7, {"value": 7})
    assert isinstance(wanted, frontend.RemoteCall)
    assert frontend.payload(frontend.action("remote-connect"), registration("tool")) is not None


def test_a_call_is_answered_with_its_own_number() -> None:
    asked = {"requestId": "r-1", "remotename": "tool", "function": "echo", "args": {"value": 7}}
    told = answer(body(frontend.notification("remote-call", asked)))

    assert orjson.loads(told or b"")["payload"] == {"requestId": "r-1", "result": 7}


def test_what_is_no_call_is_not_answered() -> None:
    assert answer(body(frontend.notification("changed", {"what": "remote"}))) is None


def test_a_call_has_ended_when_its_result_came() -> None:
    ledger = Ledger()

    assert ledger.heard(accepted(7, "r-1")) is None
    assert ledger.heard(body(frontend.notification("changed", {}))) is None
    assert ledger.heard(result("r-1", 7)) == 7


@pytest.mark.parametrize(
    "text",
    [
        result("r-1", 8),
        result("r-2", 7),
        body(frontend.notification("remote-call-result", {"requestId": "r-1", "error": "no"})),
        b'{"type":"error","id":7,"payload":{"code":"busy"}}',
    ],
)
def test_a_call_that_did_not_end_well_is_noticed(text: bytes) -> None:
    ledger = Ledger()
    ledger.heard(accepted(7, "r-1"))

    with pytest.raises(Wrong):
        ledger.heard(text)


def test_a_call_that_is_answered_twice_is_noticed() -> None:
    ledger = Ledger()
    ledger.heard(accepted(7, "r-1"))
    ledger.heard(result("r-1", 7))

    with pytest.raises(Wrong):
        ledger.heard(result("r-1", 7))


def test_calls_are_shared_evenly_among_remotes() -> None:
    assert Counter(shares(["a", "b", "c"], 9)) == {"a": 3, "b": 3, "c": 3}
