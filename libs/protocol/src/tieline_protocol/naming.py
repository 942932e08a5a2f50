"""Pure: tool names for the model, made from remote and function names, which may be any text.

Rule 1: a name is `<remote>__<function>` as it stands where that fits the API ([A-Za-z0-9_-], at most 64) and can be
        taken apart in one way only; every other one is fitted and ends in a hash of the pair. So the name of a
        function does not depend on which others there are: a model finds it again in the history.
Rule 2: names are unique. Should one be taken all the same (by a tool of the agent's own, or by somebody who made a
        name look like a hash), the later one is hashed again.
Rule 3: nothing is ever parsed back: the table that was made maps a tool name to the pair, byte for byte.
Rule 4: at most 128 tools (the API's limit). The agent's own come first; then each remote in turn gives its next
        function, in the order in which the thread named the remotes and they registered their functions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

MOST_TOOLS = 128
MOST_CHARS = 64

_FIT = re.compile(r"[A-Za-z0-9_-]+")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_HASH = 10


class Pair(NamedTuple):
    """A function of a remote, by the names that the remote gave."""

    remote: str
    function: str


def tool_name(pair: Pair, again: int = 0) -> str:
    """The name of one function; `again` counts the names of it that were taken."""
    plain = f"{pair.remote}__{pair.function}"
    if not again and _is_plain(pair) and len(plain) <= MOST_CHARS:
        return plain
    seed = f"{len(pair.remote)}:{pair.remote}{pair.function}:{again}".encode("utf-8", "surrogatepass")
    fitted = _UNFIT.sub("_", plain)[: MOST_CHARS - _HASH - 1]
    return f"{fitted}_{hashlib.sha256(seed).hexdigest()[:_HASH]}"


def _is_plain(pair: Pair) -> bool:
    # The first `__` parts the two, so the remote must have none and must not lengthen it.
    fit = _FIT.fullmatch(pair.remote) and _FIT.fullmatch(pair.function)
    return bool(fit) and "__" not in pair.remote and not pair.remote.endswith("_")


def names(pairs: Iterable[Pair], taken: Iterable[str] = ()) -> dict[str, Pair]:
    """Tool name -> pair, for all of them. A pair that stands there twice has one name."""
    used = set(taken)
    table: dict[str, Pair] = {}
    for pair in dict.fromkeys(pairs):
        again = 0
        while (name := tool_name(pair, again)) in used:
            again += 1
        used.add(name)
        table[name] = pair
    return table


def choose(pairs: Iterable[Pair], room: int = MOST_TOOLS) -> tuple[list[Pair], list[Pair]]:
    """Which functions the model gets (rule 4), and which it does not; both in the order given."""
    whole = list(dict.fromkeys(pairs))
    remotes: dict[str, list[Pair]] = {}
    for pair in whole:
        remotes.setdefault(pair.remote, []).append(pair)
    in_turn = [pair for turn in zip_longest(*remotes.values()) for pair in turn if pair is not None]
    kept = set(in_turn[: max(room, 0)])
    return [pair for pair in whole if pair in kept], [pair for pair in whole if pair not in kept]


def is_fit(name: str) -> bool:
    """Whether the API takes this as the name of a tool."""
    return len(name) <= MOST_CHARS and _FIT.fullmatch(name) is not None


def fitted(name: str, otherwise: str) -> str:
    """The name of a call as it may stand in a history, where the model wrote one that the API would not take."""
    return _UNFIT.sub("_", name)[:MOST_CHARS] or otherwise


def listed(pairs: Sequence[Pair]) -> list[str]:
    """Pairs as people read them, for an event."""
    return [f"{pair.remote}/{pair.function}" for pair in pairs]
