"""Pure: the turns of a session: each prompt is one, and each reaches exactly one end.

    accepted → running ⇄ waiting_permission → ended          cancelling → ended, from any open state

Rule 1: the oldest open turn is the one that runs; those behind it wait in the daemon (`queue`).
Rule 2: an end with a generation ends that turn, if it is open; any other is not ours. After the end nothing that the
        agent says starts a turn: only a prompt does.
Rule 3: every open turn has a way out without the agent: cancel unanswered (10 s), agent exited, its socket lost (40 s),
        the fate of the prompt unknown and no sign of life (60 s). Silence alone is asked about (5 s) and told
        (5 minutes); a turn of another owner that nobody speaks for until then is cancelled.
Rule 4: while the agent's socket is not read, or is away, silence says nothing.

Every method returns the events to publish, in order. Time comes in as an argument.
"""

from __future__ import annotations

from collections import OrderedDict

from tieline_protocol.errors import Code, Refused

from tieline_streams import turn_log
from tieline_streams.turn import Coming, Due, Event, Limits, State, Turn, end_told, restored
from tieline_streams.turn_log import Messages

_OUTPUT = frozenset({"message_chunk", "reasoning", "tool_call", "plan", "permission_request"})
MAX_OPEN = 64


class Turns:
    """The turns of one session. `last` is the highest generation ever given."""

    def __init__(self, limits: Limits | None = None, last: int = 0) -> None:
        self._limits = limits or Limits()
        self._open: OrderedDict[int, Turn] = OrderedDict()
        self._messages = Messages()
        self._lost_at: float | None = None
        self._asking = False
        self._paused = False
        self.last = last
        self.latest: Event | None = None

    @property
    def front(self) -> Turn | None:
        return next(iter(self._open.values()), None)

    @property
    def all(self) -> list[Turn]:
        """Those that have not ended, oldest first."""
        return list(self._open.values())

    @property
    def open(self) -> bool:
        return bool(self._open)

    def generation_of(self, message_id: str | None) -> int | None:
        """The generation that a repeated prompt was given the first time."""
        return self._messages.generation(message_id)

    def restore(self, events: list[Event], now: float) -> None:
        """What the log says, when another owner has left it: an open turn goes on, and is nobody's to send again."""
        log = turn_log.fold(events)
        self.last, self.latest = log.last, log.latest
        for given, generation in log.messages.items():
            self._messages.put(given, generation)
        for generation, event in log.open.items():
            self._open[generation] = restored(event, now, self._limits)
        if self._open:
            self._lost_at = now

    # A prompt and its fate

    def accept(self, message_id: str | None, queue: bool, now: float) -> tuple[int, list[Event]]:
        """A new prompt. Raises Refused: conflict while a turn is open (without `queue`), busy when too many are."""
        if self._open and not queue:
            raise Refused(Code.CONFLICT, "a turn is running")
        if len(self._open) >= MAX_OPEN:
            raise Refused(Code.BUSY, f"{MAX_OPEN} prompts are waiting already")
        self.last += 1
        turn = Turn(self.last, message_id, now)
        self._open[turn.generation] = turn
        self._messages.put(message_id, turn.generation)
        return turn.generation, [self._told(turn)]

    def withdraw(self, generation: int, now: float) -> list[Event]:
        """The prompt was certainly not sent, or not taken: the same message may be tried again."""
        turn = self._open.get(generation)
        if turn is None:
            return []
        self._messages.forget(turn.message_id)
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

    # What is heard

    def heard(self, type: str, value: Event, now: float) -> list[Event]:
        """The agent said something."""
        turn = self.front
        if turn is None:
            return []
        turn.heard, turn.recovered = now, False
        if turn.settle_by is not None:  # what it said meanwhile comes first
            turn.settle_by = now + self._limits.settle
        out: list[Event] = []
        if turn.unsure_since is not None or (not turn.delivered and type in _OUTPUT):
            out += self.delivered(turn.generation, now)
        if turn.stalled:
            turn.stalled = False
            out.append(self._told(turn))
        reason = end_told(type, value)
        if reason == "agent_exited":
            out += self.end_all(reason, now)
        elif reason is not None and (ended := self._meant(value)) is not None:
            # An end of a turn that was asked to end is what was asked for, whatever the agent calls it.
            asked = type == "complete" and ended.state == "cancelling"
            out += self._end(ended, "cancelled" if asked else reason, now)
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

    def unsettled(self) -> list[int]:
        """The turns whose prompts are not on their way right now: about these the daemon may be asked."""
        return [
            turn.generation for turn in self._open.values() if turn.delivered or turn.unsure_since is not None
        ]

    def asked(
        self, about: list[int], generation: int, busy: bool, now: float, *, reconnected: bool = True
    ) -> list[Event]:
        """What the daemon said about `about`: the newest prompt that it took, and whether one is at work or waits.

        `reconnected`: what was sent over an earlier socket cannot be on its way any more.
        """
        out: list[Event] = []
        for turn in [self._open[one] for one in about if one in self._open]:
            if turn.generation > generation:
                out += self.withdraw(turn.generation, now) if reconnected else []  # it never arrived
                continue
            heard, turn.recovered = turn.heard, False
            out += self.delivered(turn.generation, now)
            turn.heard = heard  # the daemon's word is none of the agent's
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

    def reading(self, on: bool, now: float) -> None:
        """Whether the agent's socket is read."""
        if on and self._paused and (turn := self.front) is not None:
            turn.heard = now
            turn.settle_by = None if turn.settle_by is None else now + self._limits.settle
        self._paused = not on

    def end_all(self, reason: str, now: float) -> list[Event]:
        """The agent is gone, or the session is."""
        out: list[Event] = []
        for turn in list(self._open.values()):
            del self._open[turn.generation]
            out.append(self._ended(turn, reason))
        return out

    # What time brings

    def tick(self, now: float) -> Due:
        """Time has passed."""
        if self._lost_at is not None and now >= self._lost_at + self._limits.disconnected:
            return Due(self.end_all("disconnected", now))
        turn, ask = self.front, False
        while turn is not None and (coming := self._coming()) is not None and now >= coming[0]:
            match coming[1]:
                case "ask":
                    turn.asked, ask = now, True
                case "stalled" if turn.recovered:
                    return Due(self.cancel(now), cancel=True)
                case "stalled":
                    turn.stalled = True
                    return Due([self._told(turn)], ask)
                case reason:
                    return Due(self._end(turn, reason, now))
        return Due([], ask)

    def due(self) -> float | None:
        """When `tick` should be called next."""
        coming = self._coming()
        times = [] if coming is None else [coming[0]]
        if self._open and self._lost_at is not None:
            times.append(self._lost_at + self._limits.disconnected)
        return min(times, default=None)

    def _coming(self) -> tuple[float, Coming] | None:
        turn = self.front
        if turn is None:
            return None
        return turn.coming(self._limits, read=not self._paused, up=self._lost_at is None)

    # Inside

    def _meant(self, value: Event) -> Turn | None:
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
        self.latest = event = turn.told(reason)
        return event
