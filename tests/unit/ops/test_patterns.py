"""Which events somebody wants to see."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_ops.cli import patterns
from tieline_ops.cli.codes import Exit, Problem
from tieline_ops.cli.patterns import Filter, Seen
from tieline_protocol import subjects
from tieline_protocol.batch import Batch


@pytest.mark.parametrize(
    ("wanted", "subject"),
    [
        (Filter(), "tieline.event.>"),
        (Filter(id="s1"), "tieline.event.*.s1.*.*"),
        (Filter(user="ann", log="agent"), "tieline.event.u_ann.*.agent.*"),
        (Filter(types=("turn",)), "tieline.event.*.*.*.turn"),
        (Filter(types=("tool_*",)), "tieline.event.*.*.*.*"),
        (Filter(types=("turn", "run")), "tieline.event.*.*.*.*"),
        (Filter("u_ann.*.agent.>"), "tieline.event.u_ann.*.agent.>"),
        (Filter("tieline.event.*.s1.agent.turn"), "tieline.event.*.s1.agent.turn"),
    ],
)
def test_the_narrowest_subject_is_listened_to(wanted: Filter, subject: str) -> None:
    assert wanted.subject in (subject, "tieline.event.>")


@pytest.mark.parametrize(
    "text",
    [
        "tieline.command.>",
        "tieline.>",
        ">",
        "*",
        "$SRV.>",
        "_INBOX.>",
        "tieline.rpc.*.*.*",
        "$JS.>",
        "tieline.event.a b",
    ],
)
def test_nothing_but_events_can_be_listened_to(text: str) -> None:
    with pytest.raises(Problem) as told:
        patterns.pattern(text)

    assert told.value.exit is Exit.USAGE


@given(st.text(max_size=40))
def test_whatever_is_typed_stays_within_the_events(text: str) -> None:
    try:
        subject = patterns.pattern(text)
    except Problem:
        return
    assert subjects.meet(subject, subjects.ALL_EVENTS)
    assert subject.startswith("tieline.event.")


def parsed(
    user: str = "u_ann", id: str = "s1", log: str = "agent", type: str = "turn"
) -> subjects.EventSubject:
    return subjects.EventSubject(user, id, log, type)


def test_options_sift_what_a_pattern_lets_through() -> None:
    wanted = Filter(">", user="ann", id="s1", log="agent", types=("turn", "tool_*"))

    assert wanted.takes_subject(parsed())
    assert wanted.takes_subject(parsed(type="tool_call"))
    assert wanted.takes_subject(parsed(type="other"))  # its events may be of any type
    for other in (parsed("u_bob"), parsed(id="s2"), parsed(log="workspace"), parsed(type="plan")):
        assert not wanted.takes_subject(other)


def test_events_are_sought_by_type_and_text() -> None:
    wanted = Filter(types=("turn",), grep=patterns.expression("ENDED"))

    assert wanted.takes({"type": "turn"}, '{"state":"ENDED"}')
    assert not wanted.takes({"type": "turn"}, '{"state":"ended"}')
    assert not wanted.takes({"type": "run"}, "ENDED")
    assert Filter(grep=patterns.expression("ended")).takes({}, "ENDED")
    assert patterns.expression("") is None


def test_a_broken_expression_is_a_mistake_of_the_command_line() -> None:
    with pytest.raises(Problem):
        patterns.expression("(")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("5m", 300), ("2h", 7_200), ("1d", 86_400), ("1h30m", 5_400), ("0.5s", 0.5)],
)
def test_durations(text: str, seconds: float) -> None:
    assert patterns.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5x", "-3s", "1.5h"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(Problem):
        patterns.seconds(text)


def test_a_batch_that_is_published_again_is_shown_once() -> None:
    seen = Seen()
    one = Batch(7, 1, 2, 0, b"")

    assert [seen.first_time("s1", "agent", one), seen.first_time("s1", "agent", one)] == [True, False]
    assert seen.first_time("s1", "workspace", one)
    assert seen.first_time("s1", "agent", Batch(8, 1, 2, 0, b""))


def test_what_was_seen_is_not_remembered_for_ever() -> None:
    seen = Seen()
    for first in range(1, patterns._SEEN + 2):
        seen.first_time("s1", "agent", Batch(7, first, 1, 0, b""))

    assert len(seen._order) == patterns._SEEN
    assert seen.first_time("s1", "agent", Batch(7, 1, 1, 0, b""))


@pytest.mark.parametrize(
    ("subject", "streams"),
    [
        ("tieline.event.>", ["TIELINE_AGENT", "TIELINE_WORKSPACE"]),
        ("tieline.event.*.*.workspace.*", ["TIELINE_WORKSPACE"]),
        ("tieline.event.*.*.thread.*", ["TIELINE_AGENT"]),
        ("tieline.event.*.s1.*.turn", ["TIELINE_AGENT", "TIELINE_WORKSPACE"]),
    ],
)
def test_the_streams_that_keep_them(subject: str, streams: list[str]) -> None:
    assert list(patterns.streams(subject)) == streams
