"""What endpoints and commands of the agent service are given."""

import pytest
from tieline_agent.payloads import MAX_MESSAGE, Create, Message, read
from tieline_protocol.errors import Code, ProtocolError, Refused


def test_unknown_fields_are_ignored_and_null_counts_as_absent():
    assert read(Create, {"title": None, "colour": "red"}) == Create()


def test_what_is_wrong_is_named():
    with pytest.raises(ProtocolError, match="content"):
        read(Message, {"thread_id": "t1", "content": 5})


def test_the_fields_of_a_resource_that_we_do_not_know_stay():
    resource = {"kind": "file", "content": {"path": "a"}, "mime": "text/plain"}

    assert read(Message, {"thread_id": "t", "content": "", "resources": [resource]}).given() == [resource]


def test_a_message_is_too_large_with_its_resources():
    half = "x" * (MAX_MESSAGE // 2 + 1)
    message = read(
        Message, {"thread_id": "t", "content": half, "resources": [{"kind": "text", "content": half}]}
    )
    with pytest.raises(Refused) as caught:
        message.given()

    assert caught.value.code is Code.TOO_LARGE
