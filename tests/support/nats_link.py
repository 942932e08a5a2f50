"""A link before the real broker that knows what passes through it: who publishes what, told by the bytes themselves."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field

from tests.support.link import Connection, Direction, Link


@dataclass(frozen=True, slots=True)
class Published:
    """A message on its way to the broker. `by` is the name of the connection, `at` a time of the monotonic clock."""

    at: float
    by: str
    subject: str
    reply: str
    size: int


@dataclass(slots=True)
class _Reading:
    """Where the reading of one connection stands."""

    name: str = "?"
    rest: bytearray = field(default_factory=bytearray)
    skip: int = 0


class NatsLink(Link):
    """Use as `async with NatsLink(server.port) as link`, and give `link.url` to whoever is to be watched."""

    def __init__(self, port: int) -> None:
        super().__init__("127.0.0.1", port)
        self.published: list[Published] = []
        self._reading: dict[Connection, _Reading] = {}

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def mark(self) -> int:
        """Now, for `since`."""
        return len(self.published)

    def sent(self, *prefixes: str, since: int = 0) -> list[Published]:
        """What was published on subjects that begin so."""
        return [one for one in self.published[since:] if one.subject.startswith(prefixes)]

    def passing(self, connection: Connection, direction: Direction, data: bytes) -> None:
        if direction == "up":
            self._read(self._reading.setdefault(connection, _Reading()), data)

    def _read(self, reading: _Reading, data: bytes) -> None:
        rest = reading.rest
        rest += data
        while True:
            if reading.skip:
                gone = min(reading.skip, len(rest))
                del rest[:gone]
                reading.skip -= gone
                if reading.skip:
                    return
            end = rest.find(b"\r\n")
            if end < 0:
                return
            line = rest[:end].decode(errors="replace")
            del rest[: end + 2]
            verb, _, about = line.partition(" ")
            if verb == "CONNECT":
                reading.name = json.loads(about).get("name", "?")
            elif verb in ("PUB", "HPUB"):
                words = about.split()
                sizes = 1 if verb == "PUB" else 2
                size = int(words[-1])
                reply = words[1] if len(words) > 1 + sizes else ""
                self.published.append(Published(time.monotonic(), reading.name, words[0], reply, size))
                reading.skip = size + 2
