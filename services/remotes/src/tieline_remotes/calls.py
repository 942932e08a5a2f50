"""Pure: calls in flight. Facts go in, messages to send come out; each call ends exactly once.

Rule 1: only the connection that was asked may answer a call; whatever else comes in its name is dropped and counted.
Rule 2: whoever waits hears `accepted`, then a beat every second, then one final. Nothing follows a final.
Rule 3: a call that ends otherwise than by its owner's answer is cancelled at the owner, if it was sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tieline_protocol.errors import Code, Refused
from tieline_protocol.messages import refusal
from tieline_protocol.remotes import RESULT_BYTES

BEAT = 1.0  # s between beats; three missed ones end the call for whoever waits
MAX_PER_REMOTE = 64
MAX_CALLS = 20_000


class Asked(NamedTuple):
    """Who was asked: one connection of one gateway, or (external remotes) this replica itself."""

    gateway: str
    connection: str


@dataclass(slots=True)
class Call:
    """A call under way. `reply` is where whoever waits listens; times are of the monotonic clock, in seconds.

    `mark` belongs to whoever began it and is given back with its end.
    """

    id: str
    reply: str
    user: str
    remotename: str
    asked: Asked
    deadline: float
    beat: float
    began: float = 0.0
    mark: object = None


class Tell(NamedTuple):
    """A message to whoever waits."""

    reply: str
    message: bytes


class Cancel(NamedTuple):
    """Tell the owner that nobody waits any more."""

    call: str
    asked: Asked
    reason: str


Effect = Tell | Cancel


class Calls:
    """All calls that one replica has minted an id for."""

    def __init__(self) -> None:
        self._calls: dict[str, Call] = {}
        self._per_remote: dict[tuple[str, str], int] = {}
        self.dropped = 0
        self.ended: list[tuple[Call, str]] = []  # and how, until somebody has counted them

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def oldest(self) -> float | None:
        """When the longest of them began."""
        call = next(iter(self._calls.values()), None)
        return call.began if call is not None else None

    def get(self, id: str) -> Call | None:
        return self._calls.get(id)

    def started(self, call: Call) -> None:
        """A call is about to be sent. Raises Refused (busy) above the bounds."""
        remote = (call.user, call.remotename)
        under_way = self._per_remote.get(remote, 0)
        if len(self._calls) >= MAX_CALLS or under_way >= MAX_PER_REMOTE:
            raise Refused(Code.BUSY, f"{call.remotename!r} has {under_way} calls under way, try again")
        self._calls[call.id] = call
        self._per_remote[remote] = under_way + 1

    def answered(
        self, id: str, asker: Asked, final: bytes, size: int, outcome: str = "answered"
    ) -> list[Effect] | None:
        """The owner's result or error; `final` is what whoever waits gets. None: not theirs to answer, dropped."""
        call = self._calls.get(id)
        if call is None or call.asked != asker:
            self.dropped += 1
            return None
        if size > RESULT_BYTES:
            error = Refused(
                Code.TOO_LARGE, f"the result has {size:,} bytes, at most {RESULT_BYTES:,} are passed on"
            )
            return self._end(call, "too_large", refusal(error))
        return self._end(call, outcome, final)

    def progressed(self, id: str, asker: Asked, message: bytes) -> list[Effect] | None:
        """Progress from the owner. None: dropped."""
        call = self._calls.get(id)
        if call is None or call.asked != asker:
            self.dropped += 1
            return None
        return [Tell(call.reply, message)]

    def failed(self, id: str, error: Refused) -> list[Effect]:
        """The call could not be sent, or was refused by the gateway: nothing ran."""
        call = self._calls.get(id)
        return self._end(call, error.code, refusal(error)) if call else []

    def cancelled(self, id: str, user: str) -> list[Effect] | None:
        """Whoever waits gave up. None: not theirs to cancel, or over."""
        call = self._calls.get(id)
        if call is None or call.user != user:
            return None
        return [
            *self._end(call, "cancelled", refusal(Refused(Code.CANCELLED, "cancelled"))),
            Cancel(call.id, call.asked, "cancelled"),
        ]

    def disconnected(self, gateway: str, connection: str | None = None) -> list[Effect]:
        """A connection is gone, or a whole gateway with all of its connections."""
        gone = [
            call
            for call in self._calls.values()
            if call.asked.gateway == gateway and connection in (None, call.asked.connection)
        ]
        error = refusal(Refused(Code.DISCONNECTED, "the remote disconnected"))
        return [effect for call in gone for effect in self._end(call, "disconnected", error)]

    def tick(self, now: float) -> list[Effect]:
        """Beats that are due, and calls whose time is up."""
        effects: list[Effect] = []
        for call in list(self._calls.values()):
            if now >= call.deadline:
                error = refusal(Refused(Code.TIMEOUT, "the remote did not answer in time"))
                effects += self._end(call, "timeout", error)
                effects.append(Cancel(call.id, call.asked, "timeout"))
            elif now >= call.beat:
                call.beat = now + BEAT
                effects.append(Tell(call.reply, b'{"beat":true}'))
        return effects

    def stopping(self) -> list[Effect]:
        """This replica stops: what is still under way ends here, since nobody else knows of it."""
        error = refusal(Refused(Code.UNAVAILABLE, "the remotes service stopped"))
        effects: list[Effect] = []
        for call in list(self._calls.values()):
            effects += self._end(call, "unavailable", error)
            effects.append(Cancel(call.id, call.asked, "unavailable"))
        return effects

    def _end(self, call: Call, outcome: str, message: bytes) -> list[Effect]:
        del self._calls[call.id]
        remote = (call.user, call.remotename)
        self._per_remote[remote] -= 1
        if not self._per_remote[remote]:
            del self._per_remote[remote]
        self.ended.append((call, outcome))
        return [Tell(call.reply, message)]
