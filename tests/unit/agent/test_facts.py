"""What is confirmed before what."""

from tieline_agent.facts import AskModel, Effect, End, Record, StopModel, confirmed


def test_an_event_that_something_else_follows_is_confirmed_first():
    effects: list[Effect] = [
        StopModel(),
        Record({"n": 1}),
        Record({"n": 2}),
        AskModel([]),
        Record({"n": 3}),
        End(),
    ]

    assert [effect.confirm for effect in confirmed(effects) if isinstance(effect, Record)] == [
        False,
        True,
        True,
    ]


def test_events_alone_wait_for_nobody():
    assert confirmed([Record({"n": 1}), Record({"n": 2})]) == [Record({"n": 1}), Record({"n": 2})]
    assert confirmed([]) == []
