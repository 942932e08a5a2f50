"""What scripted daemons say: events of an exact size, and runs of ready frames made before the clock starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import orjson
from tieline_protocol import batch

from bench.text import excerpt, text

_FLAGS = {
    "supports_image": False,
    "supports_audio": False,
    "supports_embedded_context": False,
    "supports_prompt_queueing": False,
}


def message_chunk(size: int, at: int = 0) -> bytes:
    """A `message_chunk` event whose JSON text has `size` bytes, its words from position `at` of the text on.

    Raises ValueError where that is too few.
    """
    return _filled(
        size, at, lambda words: {"type": "message_chunk", "session_id": "bench", "text": words, **_FLAGS}
    )


def shell_output(size: int, at: int = 0) -> bytes:
    """A `shell_output` frame of `size` bytes, likewise."""
    return _filled(
        size, at, lambda words: {"type": "shell_output", "timestamp": 1_933_135_635_000, "data": words}
    )


def various(make: Callable[[int, int], bytes], size: int) -> list[bytes]:
    """Events of one size that have the whole text between them."""
    return [make(size, at) for at in range(0, len(text()), size)]


def tool_update(sent_ns: int) -> bytes:
    """A small event that says when it was written (CLOCK_MONOTONIC)."""
    return orjson.dumps(
        {
            "type": "tool_update",
            "session_id": "bench",
            "tool_call_id": "t1",
            "tool_status": "in_progress",
            "tool_title": f"sent@{sent_ns}@",
            **_FLAGS,
        }
    )


def model_delta(sent_ns: int) -> bytes:
    """A delta of a model that says when it was written, as a chunk of HTTP."""
    return _chunk({"content": f"sent@{sent_ns}@ and so on"}, None)


def model_end() -> bytes:
    """The end of a model's answer, as a chunk of HTTP."""
    return _chunk({}, "stop", b"data: [DONE]\n\n")


def _chunk(delta: dict[str, str], finish: str | None, after: bytes = b"") -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    chunk = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "bench",
        "choices": [choice],
    }
    data = b"data: %b\n\n%b" % (orjson.dumps(chunk), after)
    return b"%x\r\n%b\r\n" % (len(data), data)


def is_delta(text: bytes) -> bool:
    """Whether a frame brings a delta of a thread."""
    return b'"event":{"type":"delta"' in text[:512]


def sent_at(text: bytes) -> int | None:
    """The time in a frame that holds a `tool_update` of ours; None in any other."""
    parts = text.split(b"sent@", 1)
    return int(parts[1].split(b"@", 1)[0]) if len(parts) == 2 else None


def frames(events: Sequence[bytes]) -> bytes:
    """Frames of events, to be written in one go."""
    return b"".join(map(batch.frame, events))


def _filled(size: int, at: int, make: Callable[[str], dict[str, object]]) -> bytes:
    empty = orjson.dumps(make(""))
    if size < len(empty):
        raise ValueError(f"an event of this type has at least {len(empty)} bytes")
    return orjson.dumps(make(excerpt(size - len(empty), at)))
