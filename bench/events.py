"""Pure: what scripted daemons say: events of an exact size, and runs of ready frames made before the clock starts."""

from __future__ import annotations

from collections.abc import Callable

import orjson
from tieline_protocol import batch

_FLAGS = {
    "supports_image": False,
    "supports_audio": False,
    "supports_embedded_context": False,
    "supports_prompt_queueing": False,
}
_PROSE = (
    "The parser keeps the last character of a chunk until the next one shows whether it is whole; "
    "so nothing is ever broken between two reads, and a test that cuts the stream at every byte agrees. "
)


def prose(length: int) -> str:
    """Text that needs no escapes in JSON."""
    return (_PROSE * (length // len(_PROSE) + 1))[:length]


def message_chunk(size: int) -> bytes:
    """A `message_chunk` event whose JSON text has `size` bytes. Raises ValueError where that is too few."""
    return _filled(
        size, lambda text: {"type": "message_chunk", "session_id": "bench", "text": text, **_FLAGS}
    )


def shell_output(size: int) -> bytes:
    """A `shell_output` frame whose JSON text has `size` bytes. Raises ValueError where that is too few."""
    return _filled(size, lambda text: {"type": "shell_output", "timestamp": 1_933_135_635_000, "data": text})


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


def frames(event: bytes, count: int) -> bytes:
    """`count` equal frames, to be written in one go."""
    return batch.frame(event) * count


def _filled(size: int, make: Callable[[str], dict[str, object]]) -> bytes:
    empty = orjson.dumps(make(""))
    if size < len(empty):
        raise ValueError(f"an event of this type has at least {len(empty)} bytes")
    return orjson.dumps(make(prose(size - len(empty))))
