"""Pure: waits between tries."""

from __future__ import annotations

from collections.abc import Callable, Iterator


def delays(chance: Callable[[], float], first: float = 0.1, most: float = 5.0) -> Iterator[float]:
    """Seconds to wait between tries: doubling up to `most`, each cut by up to half at random.

    `chance` gives a number in [0, 1), such as `random.random`.
    """
    wait = first
    while True:
        yield wait * (1 - chance() / 2)
        wait = min(wait * 2, most)
