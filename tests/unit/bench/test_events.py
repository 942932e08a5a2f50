"""What scripted daemons say."""

from __future__ import annotations

import orjson
import pytest

from bench import events


@pytest.mark.parametrize("size", [256, 1024, 4096, 70_000])
@pytest.mark.parametrize("make", [events.message_chunk, events.shell_output])
def test_an_event_has_exactly_the_size_that_was_asked_for(make, size: int) -> None:
    assert len(make(size)) == size


@pytest.mark.parametrize("make", [events.message_chunk, events.shell_output])
def test_an_event_is_valid_json_that_names_its_type(make) -> None:
    assert orjson.loads(make(1024))["type"] == make.__name__


def test_an_event_cannot_be_smaller_than_its_own_fields() -> None:
    with pytest.raises(ValueError, match="at least"):
        events.message_chunk(20)


def test_a_small_event_says_when_it_was_written_also_from_within_a_frame() -> None:
    frame = b'{"payload":{"event":%b}}' % events.tool_update(123_456)

    assert events.sent_at(frame) == 123_456


def test_another_event_does_not_say_when_it_was_written() -> None:
    assert events.sent_at(events.message_chunk(256)) is None


def test_a_run_of_frames_is_the_same_frame_again_and_again() -> None:
    assert events.frames(b"{}", 3) == b"\x81\x02{}" * 3
