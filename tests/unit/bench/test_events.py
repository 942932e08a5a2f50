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


def chunks(data: bytes) -> bytes:
    """The body of an answer in chunks."""
    body = b""
    while data:
        size, _, rest = data.partition(b"\r\n")
        body, data = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return body


def test_a_model_s_delta_says_when_it_was_written() -> None:
    line, end = chunks(events.model_delta(123_456)).split(b"\n\n")
    delta = orjson.loads(line.removeprefix(b"data: "))["choices"][0]["delta"]

    assert events.sent_at(delta["content"].encode()) == 123_456
    assert end == b""


def test_a_model_s_answer_ends_as_it_should() -> None:
    end, done, _ = chunks(events.model_end()).split(b"\n\n")

    assert orjson.loads(end.removeprefix(b"data: "))["choices"][0]["finish_reason"] == "stop"
    assert done == b"data: [DONE]"


def test_only_a_delta_of_a_thread_is_one() -> None:
    assert events.is_delta(b'{"payload":{"event":{"type":"delta","text":"x"}}}')
    assert not events.is_delta(b'{"payload":{"event":{"type":"message","content":"sent@1@"}}}')
