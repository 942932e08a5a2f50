"""Pure: the turns of a session: each prompt is one, and each reaches exactly one end.

    accepted → running ⇄ waiting_permission → ended          cancelling → ended, from any open state

Rule 1: the oldest open turn is the one that runs; those behind it wait in the daemon (`queue`).
Rule 2: an end with a generation ends that turn, if it is open; any other is not ours. After the end nothing that the
        agent says starts a turn: only a prompt does.
Rule 3: every open turn has a way out without the agent: cancel unanswered (10 s), agent exited, its socket lost (40 s),
        the fate of the prompt unknown and no sign of life (60 s). Silence alone (5 minutes) is only told.

Every method returns the events to publish, in order. Time comes in as an argument.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Literal

from tieline_protocol.errors import Code, Refused

State = Literal["accepted", "running", "waiting_permission", "cancelling", "ended"]
Event = dict[str, Any]

_STOP_REASONS = frozenset({"end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"})
_OUTPUT = frozenset({"message_chunk", "reasoning", "tool_call", "plan", "permission_request"})
MAX_OPEN = 64
REMEMBERED = 4_096


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds."""

    cancel: float = 10
    disconnected: float = 40
    unknown: float = 60
    stalled: float = 300
    settle: float = 3


@dataclass(slots=True)
class Turn:
    generation: int
    message_id: str | None
    heard: float
    state: State = "accepted"
    delivered: bool = False
    stalled: bool = False
    cancel_by: float | None = None
    unsure_since: float | None = None
    settle_by: float | None = None  # the daemon says that it is over; its end is waited for until then


class Turns:
    """The turns of one session. `last` is the highest generation ever given."""

    def __init__(self, limits: Limits | None = None, last: int = 0) -> None:
        self._limits = limits or Limits()
        self._open: OrderedDict[int, Turn] = OrderedDict()
        self._messages: OrderedDict[str, int] = OrderedDict()
        self._lost_at: float | None = None
        self._asking = False
        self.last = last
        self.latest: Event | None = None

    @property
    def front(self) -> Turn | None:
        return next(iter(self._open.values()), None)

    @property
    def open(self) -> bool:
        return bool(self._open)

    def generation_of(self, message_id: str | None) -> int | None:
        """The generation that a repeated prompt was given the first time."""
        return self._messages.get(message_id) if message_id is not None else None

    def accept(self, message_id: str | None, queue: bool, now: float) -> tuple[int, list[Event]]:
        """A new prompt. Raises Refused: conflict while a turn is open (without `queue`), busy when too many are."""
        if self._open and not queue:
            raise Refused(Code.CONFLICT, "a turn is running")
        if len(self._open) >= MAX_OPEN:
            raise Refused(Code.BUSY, f"{MAX_OPEN} prompts are waiting already")
        self.last += 1
        turn = Turn(self.last, message_id, now)
        self._open[turn.generation] = turn
        if message_id is not None:
            self._messages[message_id] = turn.generation
            if len(self._messages) > REMEMBERED:
                self._messages.popitem(last=False)
        return turn.generation, [self._told(turn)]

    def withdraw(self, generation: int, now: float) -> list[Event]:
        """The prompt was certainly not sent: the same message may be tried again."""
        turn = self._open.get(generation)
        if turn is None:
            return []
        if turn.message_id is not None:
            self._messages.pop(turn.message_id, None)
        return self._end(turn, "error", now)

    def delivered(self, generation: int, now: float) -> list[Event]:
        """The daemon has taken the prompt."""
        turn = self._open.get(generation)
        if turn is None:
            return []
        turn.delivered, turn.unsure_since, turn.heard = True, None, now
        return self._run(now)

    def unsure(self, generation: int, now: float) -> list[Event]:
        """The prompt was sent and nobody said whether it arrived. It is never sent again."""
        if (turn := self._open.get(generation)) is not None and not turn.delivered:
            turn.unsure_since = now
        return []

    def refused(self, generation: int, now: float) -> list[Event]:
        """The daemon said no to the prompt."""
        turn = self._open.get(generation)
        return [] if turn is None else self._end(turn, "error", now)

    def heard(self, type: str, value: dict[str, Any], now: float) -> list[Event]:
        """The agent said something."""
        turn = self.front
        if turn is None:
            return []
        turn.heard = now
        if turn.settle_by is not None:  # what it said meanwhile comes first
            turn.settle_by = now + self._limits.settle
        out: list[Event] = []
        if turn.unsure_since is not None or (not turn.delivered and type in _OUTPUT):
            out += self.delivered(turn.generation, now)
        if turn.stalled:
            turn.stalled = False
            out.append(self._told(turn))
        if type == "complete":
            out += self._completed(value, now)
        elif type == "error":
            out += self._erred(value, now)
        return out

    def permissions(self, asking: bool, now: float) -> list[Event]:
        """Whether the agent waits for decisions."""
        self._asking = asking
        return self._run(now)

    def cancel(self, now: float) -> list[Event]:
        """The user wants the running turn to end."""
        turn = self.front
        if turn is None or turn.state == "cancelling":
            return []
        turn.state, turn.cancel_by = "cancelling", now + self._limits.cancel
        return [self._told(turn)]

    def restore(self, events: list[Event], now: float) -> None:
        """What the log says, when another owner has left it: an open turn goes on, and is nobody's to send again."""
        found, self.last = open_turns(events)
        ran: set[object] = set()
        for event in events:
            generation, message = event.get("generation"), event.get("client_message_id")
            self.latest = event
            if event.get("state") != "accepted" and event.get("state") != "ended":
                ran.add(generation)
            if not isinstance(message, str) or not isinstance(generation, int):
                continue
            if event.get("reason") == "error" and generation not in ran:
                self._messages.pop(message, None)  # it was not sent, or refused: it may be tried again
            else:
                self._messages[message] = generation
        while len(self._messages) > REMEMBERED:
            self._messages.popitem(last=False)
        for generation, event in sorted(found.items()):
            message, state = event.get("client_message_id"), event.get("state")
            turn = Turn(generation, message if isinstance(message, str) else None, now)
            if state == "accepted":
                turn.unsure_since = now
            elif state in ("running", "waiting_permission", "cancelling"):
                turn.state, turn.delivered = state, True
                turn.cancel_by = now + self._limits.cancel if state == "cancelling" else None
            self._open[generation] = turn
        if self._open:
            self._lost_at = now

    def unsettled(self) -> list[int]:
        """The turns whose prompts are not on their way right now: about these the daemon may be asked."""
        return [
            turn.generation for turn in self._open.values() if turn.delivered or turn.unsure_since is not None
        ]

    def asked(self, about: list[int], generation: int, busy: bool, now: float) -> list[Event]:
        """What the daemon said about `about`: the newest prompt that it took, and whether one is at work or waits."""
        out: list[Event] = []
        for turn in [self._open[one] for one in about if one in self._open]:
            if turn.generation > generation:
                out += self.withdraw(turn.generation, now)  # it never arrived, and its socket is gone
                continue
            out += self.delivered(turn.generation, now)
            if not busy and turn.generation in self._open:
                turn.settle_by = now + self._limits.settle
        return out

    def agent_lost(self, now: float) -> list[Event]:
        """The agent's socket is down; the daemon keeps the prompt running."""
        if self._lost_at is None:
            self._lost_at = now
        for turn in self._open.values():
            turn.settle_by = None
        return []

    def agent_up(self, now: float) -> list[Event]:
        self._lost_at = None
        return []

    def end_all(self, reason: str, now: float) -> list[Event]:
        """The agent is gone, or the session is."""
        out: list[Event] = []
        for turn in list(self._open.values()):
            del self._open[turn.generation]
            out.append(self._ended(turn, reason))
        return out

    def tick(self, now: float) -> list[Event]:
        """Time has passed."""
        if self._lost_at is not None and now >= self._lost_at + self._limits.disconnected:
            return self.end_all("disconnected", now)
        turn = self.front
        if turn is None:
            return []
        if turn.settle_by is not None and now >= turn.settle_by:
            return self._end(turn, "unknown", now)
        if turn.cancel_by is not None and now >= turn.cancel_by:
            return self._end(turn, "cancelled", now)
        if turn.unsure_since is not None and now >= turn.unsure_since + self._limits.unknown:
            return self._end(turn, "unknown", now)
        if self._may_stall(turn) and now >= turn.heard + self._limits.stalled:
            turn.stalled = True
            return [self._told(turn)]
        return []

    def due(self) -> float | None:
        """When `tick` should be called next."""
        turn = self.front
        if turn is None:
            return None
        times = [turn.cancel_by, turn.settle_by]
        times.append(None if self._lost_at is None else self._lost_at + self._limits.disconnected)
        times.append(None if turn.unsure_since is None else turn.unsure_since + self._limits.unknown)
        times.append(turn.heard + self._limits.stalled if self._may_stall(turn) else None)
        return min((time for time in times if time is not None), default=None)

    def _may_stall(self, turn: Turn) -> bool:
        return turn.state == "running" and not turn.stalled

    def _completed(self, value: dict[str, Any], now: float) -> list[Event]:
        data = value.get("data")
        facts = data if isinstance(data, dict) else {}
        if facts.get("synthetic"):
            return []  # made up by the daemon after output outside any prompt
        reason = facts.get("stop_reason")
        known = reason if isinstance(reason, str) and reason in _STOP_REASONS else "unknown"
        turn = self._meant(value)
        return [] if turn is None else self._end(turn, known, now)

    def _erred(self, value: dict[str, Any], now: float) -> list[Event]:
        data = value.get("data")
        if isinstance(data, dict) and "exit_code" in data:
            return self.end_all("agent_exited", now)
        turn = self._meant(value)
        return [] if turn is None else self._end(turn, "error", now)

    def _meant(self, value: dict[str, Any]) -> Turn | None:
        generation = value.get("prompt_generation")
        return self._open.get(generation) if isinstance(generation, int) and generation else self.front

    def _run(self, now: float) -> list[Event]:
        """The front turn's state follows from what is known."""
        turn = self.front
        if turn is None or not turn.delivered or turn.state == "cancelling":
            return []
        state: State = "waiting_permission" if self._asking else "running"
        if turn.state == state:
            return []
        turn.state, turn.heard, turn.stalled = state, now, False
        return [self._told(turn)]

    def _end(self, turn: Turn, reason: str, now: float) -> list[Event]:
        del self._open[turn.generation]
        return [self._ended(turn, reason), *self._run(now)]

    def _ended(self, turn: Turn, reason: str) -> Event:
        turn.state, turn.stalled = "ended", False
        return self._told(turn, reason)

    def _told(self, turn: Turn, reason: str | None = None) -> Event:
        event: Event = {"type": "turn", "generation": turn.generation, "state": turn.state}
        if turn.message_id is not None:
            event["client_message_id"] = turn.message_id
        if turn.stalled:
            event["stalled"] = True
        if reason is not None:
            event["reason"] = reason
        self.latest = event
        return event


def open_turns(events: list[Event]) -> tuple[dict[int, Event], int]:
    """The turns of a log that have no end, by generation, and the highest generation given in it."""
    found: dict[int, Event] = {}
    last = 0
    for event in events:
        generation = event.get("generation")
        if not isinstance(generation, int):
            continue
        last = max(last, generation)
        if event.get("state") == "ended":
            found.pop(generation, None)
        else:
            found[generation] = event
    return found, last
