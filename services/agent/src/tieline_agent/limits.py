"""Pure: how much one run may take. Each limit ends it in a state of its own, and what was said until then stays."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Knobs of the service."""

    steps: int = 24  # answers of the model; calls that the last one asks for are not made
    tool_calls: int = 64  # of the whole run; an answer that would pass it has none of its calls made
    tokens: int = 1_000_000  # of all requests, in and out; a final answer that passes it still counts
    time_ms: int = 15 * 60_000  # wall clock since the run began, over changes of owner
    answer_chars: int = (
        1_000_000  # of one answer, thoughts and arguments included; ends as the limit of tokens
    )
    history_chars: int = 400_000  # of one request; the oldest runs are left out whole
    result_chars: int = 100_000  # of one tool result as the model reads it; the log has all of it
    tool_ms: int = 30_000  # one tool call
