"""Pure: how long things took, kept in a few numbers: four counts for each doubling of the time."""

from __future__ import annotations

_STEPS = 4  # within a doubling: what is told is at most a quarter too long
_MOST = 64 * _STEPS


class Spread:
    """Durations in nanoseconds, of which only how many were about how long is kept (2 KiB)."""

    __slots__ = ("_counts", "total")

    def __init__(self) -> None:
        self._counts = [0] * _MOST
        self.total = 0

    def add(self, duration: int) -> None:
        """One more; negative ones count as 0."""
        self._counts[_slot(duration)] += 1
        self.total += 1

    def quantile(self, share: float) -> int:
        """The duration within which this share of all (0 to 1) was done; 0 where there is none."""
        wanted = share * self.total
        seen = 0
        for slot, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return _upper(slot)
        return 0


def _slot(duration: int) -> int:
    if duration < _STEPS:
        return max(duration, 0)
    bits = duration.bit_length()
    return min((bits - 2) * _STEPS + ((duration >> (bits - 3)) & (_STEPS - 1)), _MOST - 1)


def _upper(slot: int) -> int:
    """The longest duration that counts there."""
    if slot < _STEPS:
        return slot
    bits = slot // _STEPS + 2
    return ((_STEPS + slot % _STEPS + 1) << (bits - 3)) - 1
