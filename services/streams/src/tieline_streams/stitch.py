"""Pure: what of the shell's output nobody has read, from what the daemon keeps of it."""

from __future__ import annotations

_CERTAIN = 16  # characters: fewer may be alike by chance


def missing(tail: str, kept: str, held: str) -> tuple[str, bool]:
    """What stands between `tail`, which was published, and `held`, which came over the new connection.

    `kept` is the end of the output as the daemon keeps it; it was read after the connection was made, so it reaches
    into `held`. Either of `tail` and `kept` may go back further. Returns what is missing, and whether it follows on
    `tail`: if not, what came between them is gone.
    """
    kept = kept.lstrip("�")  # a character whose first bytes are not kept any more
    known = _known(tail, kept)
    rest = kept[known:]
    came = next((n for n in range(min(len(rest), len(held)), 0, -1) if rest.endswith(held[:n])), 0)
    if not came and _begins_within(rest, held):  # so much came meanwhile that no more is kept than that
        return "", known > 0 or not tail
    return rest[: len(rest) - came], known > 0 or not tail or not kept


def _known(tail: str, kept: str) -> int:
    """How much of `kept` was published; 0 where they do not meet."""
    if len(tail) >= _CERTAIN and (at := kept.rfind(tail)) >= 0:
        return at + len(tail)
    most = min(len(tail), len(kept))
    fewest = min(most, _CERTAIN)
    return next((n for n in range(most, fewest - 1, -1) if n and tail.endswith(kept[:n])), 0)


def _begins_within(kept: str, held: str) -> bool:
    ends = range(min(len(kept), len(held)), _CERTAIN - 1, -1)
    return len(kept) >= _CERTAIN and (kept in held or any(held.endswith(kept[:n]) for n in ends))
