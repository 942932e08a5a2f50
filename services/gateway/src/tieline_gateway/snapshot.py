"""Pure: a log's state in few events: which stored values count, and the frames that a viewer gets of them.

Rule 1: only values at or before what the head confirms; the reads see to that with `up_to`.
Rule 2: a value of a lower epoch that stands after a higher opening was written by an owner that had been replaced:
        the one before it counts.
Rule 3: the cursor of the last frame is that of the snapshot, so that a viewer who goes on from there misses nothing
        and gets nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from tieline_protocol import batch as batches
from tieline_protocol.batch import Batch
from tieline_protocol.cursor import Cursor
from tieline_protocol.errors import BadMessage
from tieline_protocol.joining import Opening

_CURSOR = b'"cursor":"'


def outlived(epoch: int, seq: int, openings: Sequence[Opening]) -> bool:
    """Whether a message of an epoch, at a stream sequence, stands after a higher opening."""
    return any(opening.epoch > epoch and opening.seq < seq for opening in openings)


def frames(values: Sequence[tuple[int, Batch]], cursor: Cursor) -> list[bytes]:
    """The last event of each value, oldest first. Values are (stream sequence, batch)."""
    made = [
        bytes(batch.after(batch.last - 1).frames) for _, batch in sorted(values, key=lambda item: item[0])
    ]
    if made:
        made[-1] = _moved(made[-1], cursor)
    return made


def _moved(frame: bytes, cursor: Cursor) -> bytes:
    text = next(batches.texts(Batch(1, 1, 1, 0, frame)))
    begin = text.find(_CURSOR)
    end = text.find(b'"', begin + len(_CURSOR))
    if begin < 0 or end < 0:
        raise BadMessage("a frame without a cursor")
    return batches.frame(text[: begin + len(_CURSOR)] + str(cursor).encode() + text[end:])
