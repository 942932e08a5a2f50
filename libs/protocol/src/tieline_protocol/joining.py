"""Pure: where a reader of a log begins. The shell reads the openings kept of the log first: one small read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tieline_protocol.batch import Batch
from tieline_protocol.cursor import START, Cursor
from tieline_protocol.reader import Head

_UNKNOWN = 2**63 - 1


class Opening(NamedTuple):
    """An opening that the log keeps: its stream sequence and the epoch that it opens."""

    seq: int
    epoch: int


def read_from(cursor: Cursor, openings: Sequence[Opening]) -> int:
    """The stream sequence from which to read on; `openings` are all that the log keeps.

    A dead owner's events that were stored behind a newer opening carry an `at` behind that opening, so the opening's
    sequence is the bound.
    """
    above = (opening.seq for opening in openings if opening.epoch > cursor.epoch)
    return min([max(cursor.at, 1), *above])


def exists(cursor: Cursor, openings: Sequence[Opening], head: Head | None) -> bool:
    """Whether a client's cursor is a place in the log as it is kept; if not, the client starts from a snapshot.

    `head` must have been asked for after the cursor came; None where nothing is known. The stream sequence in a
    cursor cannot be checked: who forges it misses events, and nobody else does.
    """
    if cursor.position == START:
        return True
    epochs = [opening.epoch for opening in openings]
    if head is not None:
        epochs.append(head.epoch)  # its opening may have been discarded
    if not epochs or not min(epochs) <= cursor.epoch <= max(epochs):
        return False
    if head is None or not head.confirmed or head.epoch != cursor.epoch:
        return True
    return cursor.offset <= head.last


def head_of_log(seq: int, last: Batch, openings: Sequence[Opening], *, closed: bool) -> Head:
    """The head where no owner answers: from the log's last message, which the stream's leader gave."""
    newest = max((opening.epoch for opening in openings), default=0)
    if last.epoch < newest:  # a dead owner's, stored late: how far the newest epoch goes is not known from it
        return Head(newest, last=_UNKNOWN, confirmed=0, at=seq)
    return Head(last.epoch, last.last, last.last if closed else 0, seq, closed)
