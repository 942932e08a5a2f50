"""Pure: whether a session may be taken, and what for.

A key without a holder that lives may be taken; nobody's word is needed but the broker's. That it *should* be follows
from the session's record: what is wanted open goes on, what was ending is ended, what has ended is left alone.
"""

from __future__ import annotations

from enum import Enum

from tieline_protocol.messages import OwnerRecord, SessionRecord

UNTAKEN = 90_000  # ms after which a record without an owner key was left by whoever began it


class Aim(Enum):
    """What a session is taken for."""

    LEAVE = "leave"  # nothing is to be done
    GO_ON = "go on"
    CLOSE = "close"
    FAIL = "fail"


def may_take(owner: OwnerRecord | None, me: str, holder_alive: bool) -> bool:
    """Whether the key may be taken over the revision at which `owner` was read. `me` does not own it now.

    What stands under our own name was ours before our lease had expired. `holder_alive`: the leader has the holder's
    process key.
    """
    if owner is None or owner.released or not owner.holder or owner.holder == me:
        return True
    return not holder_alive


def aim(record: SessionRecord, owner: OwnerRecord | None, now_ms: int) -> Aim:
    """What is to be done with a session that nobody owns."""
    ended = record.state in ("closed", "failed")
    if owner is None:
        # Begun and never taken: whoever is doing it right now must not be disturbed.
        return Aim.LEAVE if ended or now_ms - record.created < UNTAKEN else Aim.FAIL
    if ended and owner.released:
        return Aim.LEAVE
    if record.wanted == "closed" or record.state in ("closing", "closed"):
        return Aim.CLOSE
    # What had not begun to work has nothing to go on with; whoever opens it is told so and opens another.
    return Aim.FAIL if record.state in ("opening", "failed") else Aim.GO_ON
