"""Pure: an agent that loads its conversation tells all of it again; none of that is news.

From the load to half a second after the last of it, what an agent says in a turn is old. What says how the agent is
(its commands, modes, the room in its context) is true now and passes.
"""

from __future__ import annotations

from typing import Any

QUIET = 0.5
MOST = 5.0

_SAID = frozenset(
    {"message_chunk", "reasoning", "tool_call", "tool_update", "plan", "agent_plan", "user_message_chunk"}
)


class Replay:
    """Whether what comes is old."""

    def __init__(self) -> None:
        self.loading = False
        self._last = 0.0

    def begin(self, now: float) -> None:
        self.loading, self._last = True, now

    def is_old(self, type: str, value: dict[str, Any], now: float) -> bool:
        """An event of the agent's. Returns whether it is only told again."""
        if not self.loading or not (
            type in _SAID or (type == "complete" and not value.get("prompt_generation"))
        ):
            return False
        self._last = now
        return True

    def loaded(self, now: float) -> None:
        """The agent has answered."""
        self._last = now

    def quiet_in(self, now: float) -> float:
        """How long nothing must come for the rest to be news."""
        return max(self._last + QUIET - now, 0.0)

    def end(self) -> None:
        self.loading = False
