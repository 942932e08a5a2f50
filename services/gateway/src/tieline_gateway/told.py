"""Pure: what a gateway tells operators of its connections, in its answer to STATS of the services convention."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

MOST = 1_000  # connections in one answer; those who have most waiting go first


class Connected(Protocol):
    """A connection, as far as it is told of."""

    @property
    def id(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def facts(self) -> dict[str, Any]: ...


def told(process: str, connections: Iterable[Connected]) -> dict[str, Any]:
    """The connections of a gateway process; `unknown` counts those that have not said yet whose they are."""
    every = list(connections)
    known = [{"connection": one.id, "user": one.user, **one.facts} for one in every if one.user]
    known.sort(key=lambda facts: (-int(facts["waiting_bytes"]), facts["connection"]))
    return {
        "process": process,
        "connections": known[:MOST],
        "total": len(every),
        "unknown": len(every) - len(known),
        "in_flight": sum(int(facts["in_flight"]) for facts in known),
    }
