"""Messages between processes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_protocol import jsontext, messages
from tieline_protocol.errors import BadMessage, Code, Refused, TimedOut
from tieline_protocol.messages import (
    Changed,
    InstanceRecord,
    LogHead,
    Message,
    OwnerRecord,
    Request,
    SessionRecord,
    answer,
    outcome,
    refusal,
)

SHAPES = [Request, SessionRecord, InstanceRecord, OwnerRecord, LogHead, Changed]
NUMBERS = st.integers(-(2**63), 2**63)
JUNK = st.binary(max_size=40) | st.recursive(st.none() | NUMBERS | st.text(), st.lists, max_leaves=9).map(
    jsontext.dumps
)
REQUEST = Request(id="r1", user="ada", budget_ms=1000, payload={"text": "hi"})


@pytest.mark.parametrize("shape", SHAPES)
@given(data=st.data())
def test_every_message_survives_the_wire(shape, data):
    numbers = {
        name: NUMBERS for name, field in shape.model_fields.items() if field.annotation in (int, int | None)
    }
    message = REQUEST if shape is Request else data.draw(st.builds(shape, **numbers))

    assert shape.decode(message.encode()) == message


@pytest.mark.parametrize("shape", SHAPES)
@given(raw=JUNK)
def test_any_bytes_give_a_message_or_bad_message(shape, raw):
    with pytest.raises(BadMessage):
        shape.decode(raw)


def test_a_newer_peer_may_say_more():
    assert OwnerRecord.decode(b'{"holder":"p1","since":5}') == OwnerRecord(holder="p1")


def test_a_message_that_is_wrong_says_where():
    with pytest.raises(BadMessage, match=r"not a Request: user: .*; budget_ms: "):
        Request.decode(b'{"id":"r1","budget_ms":"soon","payload":{}}')
    with pytest.raises(BadMessage, match="not a Request: Input should be a valid dict"):
        Request.decode(b"[]")


def test_half_an_emoji_in_a_request_does_not_stop_it():
    """B20"""
    sent = Request(id="r1", user="ada", budget_ms=1, payload={"text": "ok \ud83d"})

    assert Request.decode(sent.encode()).payload == {"text": "ok �"}


@pytest.mark.parametrize("depth", [500, 1_000])
def test_a_request_that_is_nested_too_deeply_is_refused_not_a_crash(depth):
    """B22"""
    payload = {"result": jsontext.loads("[" * depth + "]" * depth)}
    with pytest.raises(BadMessage, match="nested too deeply"):
        Request(id="r1", user="ada", budget_ms=1, payload=payload).encode()
    with pytest.raises(BadMessage, match="nested too deeply"):
        answer(payload)


def test_messages_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        REQUEST.user = "eve"  # type: ignore[misc]


def test_a_yes_is_heard_as_its_payload():
    assert outcome(answer({"state": "ready"})) == {"state": "ready"}
    assert outcome(answer(b'{"as": "it came"}')) == {"as": "it came"}


def test_a_no_is_heard_with_its_code_and_details():
    with pytest.raises(Refused, match="later") as caught:
        outcome(refusal(TimedOut("later", details={"after": 3})))

    assert (caught.value.code, caught.value.details) == (Code.TIMEOUT, {"after": 3})


@pytest.mark.parametrize("code", ["from_the_future", 5, [], None])
def test_a_code_that_we_do_not_know_is_internal(code):
    with pytest.raises(Refused) as caught:
        outcome(jsontext.dumps({"error": {"code": code}}))

    assert (caught.value.code, caught.value.message, caught.value.details) == (Code.INTERNAL, "refused", None)


def test_details_that_are_no_object_are_left_out():
    with pytest.raises(Refused) as caught:
        outcome(b'{"error":{"code":"busy","message":"no","details":[1]}}')

    assert caught.value.details is None


@given(JUNK)
def test_anything_else_is_no_reply(raw):
    with pytest.raises(BadMessage):
        outcome(raw)
    with pytest.raises(BadMessage):
        outcome(b'{"payload":3,"error":"x"}')


def test_what_is_not_said_is_not_sent():
    assert OwnerRecord(holder="p1").encode() == b'{"holder":"p1","released":false}'
    assert b"reason" not in Message.encode(
        SessionRecord(session="s1", user="a", executor="e", agent="x", workspace="w", created=1, updated=1)
    )
    assert messages.LogHead(epoch=1, last=2, confirmed=2, at=9).at == 9
