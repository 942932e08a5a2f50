"""Pure: how far a reader is in a log.

A position is `(epoch, offset)`: within an epoch offsets count 1, 2, 3 … without holes; offset 1 is the opening.
A cursor adds `at`, the stream sequence from which to read on; to clients it is an opaque string.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tieline_protocol.errors import BadCursor

_FORM = re.compile(r"(0|[1-9][0-9]{0,18})\.(0|[1-9][0-9]{0,18})\.(0|[1-9][0-9]{0,18})\Z")


class Position(NamedTuple):
    """The last event that a reader has; `(0, 0)` is before everything."""

    epoch: int
    offset: int


START = Position(0, 0)


class Cursor(NamedTuple):
    """A position, and the sequence of the newest message of its log that was confirmed when it was made."""

    epoch: int
    offset: int
    at: int

    @property
    def position(self) -> Position:
        return Position(self.epoch, self.offset)

    def __str__(self) -> str:
        return f"{self.epoch}.{self.offset}.{self.at}"

    @classmethod
    def parse(cls, text: object) -> Cursor:
        """The cursor that a client sends back. Raises BadCursor."""
        match = _FORM.match(text) if isinstance(text, str) else None
        if match is None:
            raise BadCursor(f"not a cursor: {text!r:.80}")
        return cls(*map(int, match.groups()))
