"""Pure: which remotes the connections of this gateway have registered, and which of those registrations count.

Rule 1: a call counts only with a registration id that is the connection's present one. While a newer one is being
        written both do, since nobody knows yet which of them is in the bucket.
Rule 2: what the bucket's leader says decides who has a name: a registration that it does not know was replaced.
Rule 3: a name that nobody has there is registered again by who had it here: its registration fell with our lease.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Registered:
    """One name of one connection. `ids` are the registrations that count, oldest first."""

    connection: str
    name: str
    payload: dict[str, Any]
    ids: tuple[str, ...]
    writing: bool = True
    doubted: bool = False  # somebody else wrote the name meanwhile


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows from the bucket's word: who was replaced, and what must be registered again."""

    replaced: list[Registered]
    missing: list[Registered]


class Registrations:
    """By the key in the bucket, then by connection: several connections here may claim one name."""

    def __init__(self) -> None:
        self._by_key: dict[str, dict[str, Registered]] = {}
        self._of: dict[str, dict[str, str]] = {}  # connection -> name -> key

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    @property
    def keys(self) -> list[str]:
        return list(self._by_key)

    def count(self, connection: str) -> int:
        """How many names a connection has."""
        return len(self._of.get(connection, ()))

    def get(self, connection: str, name: str) -> Registered | None:
        key = self._of.get(connection, {}).get(name)
        return self._by_key[key][connection] if key is not None else None

    def writing(self, key: str, connection: str, name: str, id: str, payload: dict[str, Any]) -> None:
        """A registration is about to be written."""
        known = self._by_key.setdefault(key, {}).get(connection)
        before = known.ids if known is not None else ()
        self._by_key[key][connection] = Registered(connection, name, payload, (*before, id)[-2:])
        self._of.setdefault(connection, {})[name] = key

    def written(self, connection: str, name: str, id: str) -> bool:
        """It stands in the bucket, or stood there. Whether the bucket must be asked, since others wrote meanwhile."""
        known = self.get(connection, name)
        if known is None:
            return False
        known.ids, known.writing = (id,), False
        doubted, known.doubted = known.doubted, False
        return doubted

    def refused(self, connection: str, name: str, id: str, before: Registered | None) -> None:
        """It was not written: what was there before counts on."""
        known = self.get(connection, name)
        if known is None:
            return
        if before is None or not before.ids:
            self.left(connection, name)
        else:
            known.payload, known.writing = before.payload, False
            known.ids = tuple(one for one in known.ids if one != id)

    def unknown(self, connection: str, name: str) -> None:
        """Whether it was written is not known: both count on."""
        known = self.get(connection, name)
        if known is not None:
            known.writing = False

    def accepts(self, connection: str, name: str, id: object) -> bool:
        """Whether a call that bears this registration is for what the connection exposes now."""
        known = self.get(connection, name)
        return known is not None and id in known.ids

    def heard(self, key: str, id: str | None) -> bool:
        """Somebody wrote a name (None: removed it). Whether the bucket must be asked what that means for us."""
        ask = False
        for known in self._by_key.get(key, {}).values():
            if id is None or id not in known.ids:
                if known.writing:
                    known.doubted = True
                else:
                    ask = True
        return ask

    def judged(self, key: str, id: str | None) -> Verdict:
        """What the bucket's leader says: the registration that has the name; None: nobody has."""
        verdict = Verdict([], [])
        for known in list(self._by_key.get(key, {}).values()):
            if known.writing:
                known.doubted = True
            elif id is None:
                verdict.missing.append(known)
            elif id not in known.ids:
                self.left(known.connection, known.name)
                verdict.replaced.append(known)
        return verdict

    def left(self, connection: str, name: str) -> bool:
        """A connection does not have a name any more; whether it had."""
        key = self._of.get(connection, {}).pop(name, None)
        if key is None:
            return False
        if not self._of[connection]:
            del self._of[connection]
        del self._by_key[key][connection]
        if not self._by_key[key]:
            del self._by_key[key]
        return True

    def closed(self, connection: str) -> list[str]:
        """A connection is gone; the names that it had."""
        names = list(self._of.get(connection, ()))
        for name in names:
            self.left(connection, name)
        return names
