"""docs/events.md knows every event that the system knows; tests/system/test_events_page.py looks at real ones."""

import pytest
from tieline_agent import events
from tieline_agent.assembly import Usage
from tieline_agent.results import failure, success
from tieline_protocol.errors import Code
from tieline_protocol.frontend import VALUE_TYPES
from tieline_protocol.numbering import WELL_KNOWN

from tests.support.events_page import described, unknown

USAGE = Usage()
OF_THREADS = [
    events.user_message("m1", "r1", "hello", [{"kind": "system", "subkind": "remote", "content": "browser"}]),
    events.run_queued("r1"),
    events.run_running("r1", 1, {"dropped_tools": ["x"], "missing_remotes": ["y"]}),
    events.run_ended("r1", "error", USAGE, {"code": "internal", "message": "no"}),
    events.answer("r1", "m2", "hi", "stop", USAGE, [{"id": "t", "name": "n", "arguments": "{}"}]),
    events.interrupted("r1", "m2", "hi"),
    events.delta("r1", "m2", "hi"),
    events.reasoning("r1", "m2", "hm"),
    events.tool_call("r1", "t1", "browser__title", "browser", "title", {}),
    events.tool_progress("r1", "t1", {"message": "soon", "progress": 1, "total": 2}),
    events.tool_result("r1", "t1", success(None)),
    events.tool_result("r1", "t1", failure(Code.TIMEOUT, "late")),
]


def test_every_type_that_is_known_is_described() -> None:
    assert {kind for _, kind in described()} >= WELL_KNOWN


@pytest.mark.parametrize("log", VALUE_TYPES)
def test_every_value_type_is_described_in_its_log(log: str) -> None:
    assert [kind for kind in VALUE_TYPES[log] if (log, kind) not in described()] == []


@pytest.mark.parametrize("event", OF_THREADS, ids=lambda event: str(event["type"]))
def test_every_event_of_a_thread_is_described_with_its_fields(event: events.Event) -> None:
    assert unknown("thread", event) == []


def test_an_event_that_is_not_described_is_noticed() -> None:
    assert unknown("agent", {"type": "surprise"})
    assert unknown("agent", {"type": "session", "state": "ready", "mood": "good"}) == [
        "session: mood is not described"
    ]
    assert unknown("workspace", {"type": "git_status", "git_status": {"branch": "x", "mood": 1}}) == [
        "git_status.mood is not described"
    ]
