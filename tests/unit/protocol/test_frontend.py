"""The frontend protocol: any text is a frame or a clear error; every action says what it carries."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tieline_protocol import batch, frontend, subjects
from tieline_protocol.batch import Batch
from tieline_protocol.errors import BadMessage, Code, Refused
from tieline_protocol.frontend import ACTIONS, BadFrame, Frame, Route

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def text(frame: bytes) -> dict[str, Any]:
    [only] = batch.texts(Batch(1, 1, 1, 0, frame))
    value: dict[str, Any] = orjson.loads(only)
    return value


def test_a_frame_without_a_type_is_a_request() -> None:
    assert frontend.parse('{"id":"1","action":"auth"}') == Frame("request", "1", "auth", {})


def test_a_frame_with_everything() -> None:
    frame = frontend.parse(
        orjson.dumps(
            {
                "type": "notification",
                "action": "x",
                "payload": {"a": [1]},
                "metadata": {"traceparent": TRACE},
                "unknown": 1,
            }
        )
    )

    assert frame == Frame("notification", None, "x", {"a": [1]}, TRACE)


@pytest.mark.parametrize("metadata", [None, 7, [], {}, {"traceparent": 7}, {"traceparent": "x"}])
def test_a_trace_that_is_none_is_left_out(metadata: object) -> None:
    raw = orjson.dumps({"id": "1", "action": "x", "metadata": metadata})

    assert frontend.parse(raw).traceparent is None


@pytest.mark.parametrize(
    ("raw", "id", "action", "said"),
    [
        ("", None, None, "JSON"),
        ("[]", None, None, "object"),
        ("{}", None, None, "action"),
        ('{"id":"1"}', "1", None, "action"),
        ('{"id":1,"action":7}', 1, None, "action"),
        ('{"id":"1","action":"x","type":"y"}', "1", "x", "type"),
        ('{"id":"1","action":"x","type":[]}', "1", "x", "type"),
        ('{"action":"x"}', None, "x", "id"),
        ('{"id":null,"action":"x"}', None, "x", "id"),
        ('{"id":"","action":"x"}', None, "x", "id"),
        ('{"id":true,"action":"x"}', None, "x", "id"),
        ('{"id":1.5,"action":"x"}', None, "x", "id"),
        ('{"id":"1","action":"x","payload":[]}', "1", "x", "payload"),
        ('{"id":"' + "x" * 257 + '","action":"x"}', None, "x", "id"),
        ('{"id":"1","action":"' + "x" * 129 + '"}', "1", None, "action"),
    ],
)
def test_a_frame_that_cannot_be_understood_says_what_and_keeps_its_id(
    raw: str, id: object, action: object, said: str
) -> None:
    """B15"""
    with pytest.raises(BadFrame, match=said) as bad:
        frontend.parse(raw)

    assert (bad.value.id, bad.value.action) == (id, action)
    assert bad.value.code is Code.BAD_REQUEST


@given(
    st.one_of(
        st.text(), st.binary(), st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps)
    )
)
def test_any_bytes_are_a_frame_or_a_bad_one(raw: str | bytes) -> None:
    """B15 B19 B20 B21 B22"""
    try:
        frontend.parse(raw)
    except BadFrame:
        pass


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5)), st.text(min_size=1, max_size=20))
def test_answers_are_frames_that_parse(payload: dict[str, str], id: str) -> None:
    """B20"""
    answer = text(frontend.response(id, "x.y", payload))
    refusal = text(frontend.error(id, None, Refused(Code.BUSY, id)))
    told = text(frontend.notification("changed", payload))

    assert answer == {"type": "response", "id": id, "action": "x.y", "payload": payload}
    assert refusal == {
        "type": "error",
        "id": id,
        "action": None,
        "payload": {"code": "busy", "message": id},
    }
    assert told == {"type": "notification", "action": "changed", "payload": payload}


def test_an_answers_payload_is_spliced_in_byte_for_byte() -> None:
    body = b'{ "a":"\\ud83d","n":1.50 }'

    [only] = batch.texts(Batch(1, 1, 1, 0, frontend.response(7, "x", body)))

    assert only == b'{"type":"response","id":7,"action":"x","payload":' + body + b"}"


def test_details_of_an_error_come_along() -> None:
    refusal = Refused(Code.CONFLICT, "no", details={"daemon": "CONFLICT"})

    assert text(frontend.error("1", "x", refusal))["payload"]["details"] == {"daemon": "CONFLICT"}


def test_an_action_that_does_not_exist_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        frontend.action("agent.frobnicate")

    assert refused.value.code is Code.UNKNOWN_ACTION
    assert frontend.action("auth") is ACTIONS["auth"]


@pytest.mark.parametrize("name", ["create-pr", "push-preflight", "contribution-replace", "contribution-use"])
def test_what_needs_a_forge_does_not_exist(name: str) -> None:
    with pytest.raises(Refused) as refused:
        frontend.action(f"git.{name}")

    assert refused.value.code is Code.UNKNOWN_ACTION


def test_what_is_wrong_is_said_in_our_words() -> None:
    with pytest.raises(BadMessage) as bad:
        carries("question.answer", question_id="q")

    assert bad.value.message == "it: answers, or rejected: true, is required"


@pytest.mark.parametrize("action", ACTIONS.values(), ids=str)
def test_every_action_can_travel(action: frontend.Action) -> None:
    assert ACTIONS[action.name] is action
    assert action.seconds > 0
    assert bool(action.endpoint) or action.route is not Route.SERVICE
    if action.route is Route.OWNER:
        assert subjects.command("ada", "s1", action.name).endswith(action.name)
        assert action.named in action.payload.model_fields
    if action.endpoint:
        assert subjects.rpc(action.service, action.endpoint, "ada")


def carries(action: str, **payload: Any) -> dict[str, Any]:
    return frontend.payload(ACTIONS[action], {"session_id": "s1", **payload}).given()


def test_what_an_action_carries_goes_on_without_what_is_unknown_or_null() -> None:
    assert carries("agent.prompt", text="x", queue=None, more=1) == {"session_id": "s1", "text": "x"}
    assert carries("git.commit", message="m", amend=True) == {
        "session_id": "s1",
        "message": "m",
        "amend": True,
    }


@pytest.mark.parametrize(
    ("action", "payload", "field"),
    [
        ("agent.prompt", {}, "text"),
        ("agent.prompt", {"text": 7}, "text"),
        ("agent.prompt", {"text": "x", "session_id": "a.b"}, "session_id"),
        ("agent.prompt", {"text": "x", "session_id": "s1\n"}, "session_id"),
        ("agent.permissions.respond", {"request_id": "r", "pending_id": "p"}, "option_id"),
        ("question.answer", {"question_id": "q"}, "answers"),
        ("shell.resize", {"cols": "80", "rows": 24}, "cols"),
        ("shell.resize", {"cols": 0, "rows": 24}, "cols"),
        ("git.abort", {"operation": "push"}, "operation"),
        ("git.discard", {"paths": []}, "paths"),
        ("session.subscribe", {"logs": ["thread"]}, "logs"),
        ("session.subscribe", {"cursors": {"other": "x"}}, "cursors"),
        ("session.list", {"limit": True}, "limit"),
    ],
)
def test_what_is_wrong_is_named(action: str, payload: dict[str, Any], field: str) -> None:
    with pytest.raises(BadMessage, match=field):
        carries(action, **payload)


def test_a_decision_is_an_option_or_a_cancellation() -> None:
    assert carries("agent.permissions.respond", request_id="r", pending_id="p", cancelled=True)["cancelled"]
    assert carries("agent.permissions.respond", request_id="r", pending_id="p", option_id="o")["option_id"]
    assert carries("question.answer", question_id="q", answers=[])["answers"] == []


def test_payloads_do_not_change() -> None:
    payload = frontend.payload(ACTIONS["shell.input"], {"session_id": "s1", "data": "x"})

    with pytest.raises(ValidationError):
        payload.data = "y"  # type: ignore[attr-defined]
