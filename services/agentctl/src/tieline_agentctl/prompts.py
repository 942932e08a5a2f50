"""Pure: which prompt runs, which wait, and which of them ends the turn.

One prompt is current. A further one waits for its end, or takes over from it (hand-over): then only the newer one
tells its end. After a cancel that the agent did not acknowledge the current prompt is abandoned: it tells nothing.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

MOST_WAITING = 64


class TooManyWaiting(Exception):
    """So many prompts wait already that no further one is taken."""


@dataclass(slots=True, eq=False)
class Prompt:
    """One `agent.prompt`. Compared by identity: a generation need not be unique."""

    generation: int
    content: Any
    steer: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    """What follows from the end of a prompt."""

    told: bool  # whether its end is an event
    next: Prompt | None  # what to start now


class Prompts:
    """The prompts of one agent process."""

    def __init__(self) -> None:
        self.current: Prompt | None = None
        self.generation = 0  # of the newest prompt that was accepted
        self._waiting: deque[Prompt] = deque()
        self._hand_over = False

    @property
    def busy(self) -> bool:
        return self.current is not None or bool(self._waiting)

    def submitted(self, prompt: Prompt, can_queue: bool) -> bool:
        """Whether to start it now. `can_queue`: the agent takes a prompt while it works on one."""
        if self.current is not None and not self._takes_over(prompt, can_queue):
            if len(self._waiting) >= MOST_WAITING:
                raise TooManyWaiting(f"{MOST_WAITING} prompts are waiting already")
            self._waiting.append(prompt)
            self.generation = prompt.generation
            return False
        self._start(prompt)
        self.generation = prompt.generation
        return True

    def _takes_over(self, prompt: Prompt, can_queue: bool) -> bool:
        if not prompt.generation or self._waiting:
            return False
        return self._hand_over or (prompt.steer and can_queue)

    def _start(self, prompt: Prompt) -> None:
        self.current = prompt
        self._hand_over = False

    def foreground_idle(self) -> None:
        """The agent offers to take the next prompt at once."""
        self._hand_over = self.current is not None

    def ended(self, prompt: Prompt) -> Ending:
        """The agent answered this prompt, or never will."""
        if prompt is not self.current:
            return Ending(False, None)
        self.current = None
        return Ending(True, self._next())

    def abandoned(self) -> Prompt | None:
        """The agent did not acknowledge a cancel; the next one, if any, starts without it."""
        self.current = None
        return self._next()

    def _next(self) -> Prompt | None:
        if not self._waiting:
            return None
        self._start(self._waiting.popleft())
        return self.current

    def all_ended(self) -> list[Prompt]:
        """The agent is gone: everything that can still tell its end, oldest first."""
        ended = [prompt for prompt in (self.current, *self._waiting) if prompt is not None]
        self.current = None
        self._waiting.clear()
        self._hand_over = False
        return ended
