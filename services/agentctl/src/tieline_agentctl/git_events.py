"""Pure: what a move of HEAD means to somebody who watches."""

from dataclasses import dataclass
from typing import Literal

Meaning = Literal["nothing", "switch", "moved", "first"]


@dataclass(frozen=True, slots=True)
class At:
    """Where a repository stands: its branch (empty when detached) and commit (empty before the first one)."""

    branch: str
    head: str


def meaning(before: At | None, after: At) -> Meaning:
    """`moved`: new commits or a reset, which only the history can tell; `first`: the first commits of all."""
    if before is None or before == after:
        return "nothing"
    if before.branch != after.branch:
        return "switch" if before.branch and after.branch else "nothing"
    if not after.head:
        return "nothing"
    return "moved" if before.head else "first"
