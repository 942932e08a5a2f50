"""Pure: one turn: what is known of it, when something is due about it, and the event that tells of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

State = Literal["accepted", "running", "waiting_permission", "cancelling", "ended"]
Coming = Literal["cancelled", "unknown", "stalled", "ask"]
Event = dict[str, Any]

_STOP_REASONS = frozenset({"end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"})


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds."""

    cancel: float = 10
    disconnected: float = 40
    unknown: float = 60
    stalled: float = 300
    settle: float = 3
    silent: float = 5


@dataclass(slots=True)
class Turn:
    """`heard`: when the agent said something last. The other times are None while nothing is due."""

    generation: int
    message_id: str | None
    heard: float
    state: State = "accepted"
    delivered: bool = False
    stalled: bool = False
    recovered: bool = False  # of another owner, and nobody knows yet whether it is still at work
    cancel_by: float | None = None
    unsure_since: float | None = None
    settle_by: float | None = None  # the daemon says that it is over; its end is waited for until then
    asked: float = float("-inf")  # when the daemon was asked last whether it is at work

    def coming(self, limits: Limits, *, read: bool, up: bool) -> tuple[float, Coming] | None:
        """What is due next, and when, if nothing happens: its end with that reason, a notice, a question to the daemon.

        `read`: the agent's socket is read, else silence says nothing. `up`: the daemon can be asked.
        """
        times: list[tuple[float | None, Coming]] = [(self.cancel_by, "cancelled")]
        if read:
            times.append((self.settle_by, "unknown"))
            if self.unsure_since is not None:
                times.append((self.unsure_since + limits.unknown, "unknown"))
            if self.state == "running" and not self.stalled:
                times.append((self.heard + limits.stalled, "stalled"))
            known = self.delivered or self.unsure_since is not None
            if up and known and self.state != "cancelling":
                times.append((max(self.heard, self.asked) + limits.silent, "ask"))
        return min(((at, what) for at, what in times if at is not None), default=None)

    def told(self, reason: str | None = None) -> Event:
        """The event that says how it is."""
        event: Event = {"type": "turn", "generation": self.generation, "state": self.state}
        if self.message_id is not None:
            event["client_message_id"] = self.message_id
        if self.stalled:
            event["stalled"] = True
        if reason is not None:
            event["reason"] = reason
        return event


class Due(NamedTuple):
    """What time has brought: events to publish; whether the daemon is to be asked about the turn, or to cancel it."""

    events: list[Event]
    ask: bool = False
    cancel: bool = False


def restored(event: Event, now: float, limits: Limits) -> Turn:
    """A turn without an end, from its last event in the log of an owner that is gone."""
    message, state = event.get("client_message_id"), event.get("state")
    turn = Turn(event["generation"], message if isinstance(message, str) else None, now, recovered=True)
    if state == "accepted":
        turn.unsure_since = now
    elif state in ("running", "waiting_permission", "cancelling"):
        turn.state, turn.delivered = state, True
        turn.cancel_by = now + limits.cancel if state == "cancelling" else None
    return turn


def end_told(type: str, value: Event) -> str | None:
    """The reason, from our closed list, if an event of the agent's ends a prompt; `agent_exited`: all of them."""
    data = value.get("data")
    facts = data if isinstance(data, dict) else {}
    if type == "error":
        return "agent_exited" if "exit_code" in facts else "error"
    if type != "complete" or facts.get("synthetic"):  # made up by the daemon after output outside any prompt
        return None
    reason = facts.get("stop_reason")
    return reason if isinstance(reason, str) and reason in _STOP_REASONS else "unknown"
