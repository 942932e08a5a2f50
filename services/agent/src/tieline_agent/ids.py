"""Pure: the ids of a thread's log. They are hashes, so that a repetition or a new owner finds the same ones.

Whoever hears a message twice must answer with the same ids without remembering the first. Only what the model says has
another name with each owner, so that nobody joins a new attempt to what was shown of a lost one.
"""

from __future__ import annotations

import hashlib


def message_id(thread: str, client_message_id: str) -> str:
    """The user's message."""
    return "m" + _digest("message", thread, client_message_id)


def run_id(thread: str, client_message_id: str) -> str:
    """The run that answers it."""
    return "r" + _digest("run", thread, client_message_id)


def answer_id(run: str, opening: int, request: int) -> str:
    """What the model says to the `request`-th request of a run (0, 1, 2 …); an attempt that died used its number up.

    `opening` counts the thread's owners: of what the one before said last, people may have seen more than the log kept.
    """
    return "m" + _digest("answer", run, str(opening), str(request))


def call_id(run: str, request: int, position: int) -> str:
    """A tool call for which the model gave no id that can be used."""
    return "call_" + _digest("call", run, str(request), str(position))


def _digest(*parts: str) -> str:
    # Lengths keep ("a", "bc") apart from ("ab", "c"); a lone surrogate in a client's id is bytes like any other.
    whole = b"".join(
        b"%d:%b" % (len(raw), raw) for raw in (p.encode("utf-8", "surrogatepass") for p in parts)
    )
    return hashlib.sha256(whole).hexdigest()[:24]
