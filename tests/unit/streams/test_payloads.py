from __future__ import annotations

import pytest
from tieline_protocol.errors import ProtocolError
from tieline_protocol.messages import Request
from tieline_protocol.subjects import is_id
from tieline_streams.payloads import Open, Prompt, Resize, Respond, read, session_of


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


def test_the_same_request_opens_the_same_session_and_another_another():
    def opened(user: str, id: str) -> str:
        return session_of(Request(id=id, user=user, budget_ms=1, payload={}))

    ids = [opened("ada", "r1"), opened("ada", "r2"), opened("eve", "r1"), opened("ada\x00", "r1")]

    assert opened("ada", "r1") == ids[0]
    assert len(set(ids)) == 4
    assert all(is_id(id) for id in ids)
