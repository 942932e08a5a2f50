"""B68: what an agent tells again when it loads its conversation is no news."""

from __future__ import annotations

from tieline_streams.replay import QUIET, Replay


def test_nothing_is_old_before_a_load() -> None:
    assert not Replay().is_old("message_chunk", {}, 0)


def test_what_was_said_is_old_and_what_is_true_now_passes() -> None:
    replay = Replay()
    replay.begin(0)

    assert replay.is_old("message_chunk", {}, 1)
    assert replay.is_old("tool_call", {}, 1)
    assert replay.is_old("complete", {"data": {}}, 1)
    assert not replay.is_old("available_commands", {}, 1)
    assert not replay.is_old("complete", {"prompt_generation": 3}, 1)


def test_stragglers_are_waited_for_until_it_is_quiet() -> None:
    replay = Replay()
    replay.begin(0)
    replay.loaded(1)
    assert replay.quiet_in(1) == QUIET
    assert replay.is_old("reasoning", {}, 1.3)
    assert round(replay.quiet_in(1.5), 6) == round(QUIET - 0.2, 6)
    assert replay.quiet_in(3) == 0

    replay.end()

    assert not replay.is_old("message_chunk", {}, 3)
