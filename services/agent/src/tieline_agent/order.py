"""Pure: the events of a log in their order, from its stored batches (design: the reader rule).

Rule 1: stream order decides between owners: after an opening nothing of a lower epoch belongs to the log (it is a
        dead owner's, stored late); what stands before it does.
Rule 2: within an epoch the offset decides: batches may be stored twice, or after later ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tieline_protocol import batch
from tieline_protocol.batch import Batch

Event = dict[str, Any]


def events(stored: Iterable[tuple[int, Batch]]) -> list[tuple[int, Event]]:
    """(sequence, event) of each event that belongs to the log; `stored` are its batches with their sequences."""
    epochs: dict[int, dict[int, tuple[int, Event]]] = {}
    newest = 0
    for seq, whole in sorted(stored, key=lambda pair: pair[0]):
        if whole.epoch < newest:
            continue
        newest = whole.epoch
        known = epochs.setdefault(whole.epoch, {})
        for record in batch.events(whole):
            known.setdefault(record.cursor.offset, (seq, record.event))
    return [known[offset] for _, known in sorted(epochs.items()) for offset in sorted(known)]
