"""Pure: which names and which lines a search finds, in what order, and where the matches are."""

from collections.abc import Iterable
from typing import Any

PREVIEW = 300


def best_names(query: str, paths: Iterable[str], limit: int) -> list[str]:
    """Exact name, name that begins so, name that contains it, path that contains it; shorter ones first."""
    wanted = query.lower()
    found = []
    for path in paths:
        lower = path.lower()
        if wanted not in lower:
            continue
        name = lower.rsplit("/", 1)[-1]
        rank = 0 if name == wanted else 1 if name.startswith(wanted) else 2 if wanted in name else 3
        found.append((rank, len(path), path))
    return [path for _, _, path in sorted(found)[:limit]]


def line_match(query: str, line: str) -> dict[str, Any] | None:
    """Column (from 1), preview and ranges of one line; None when it does not match. Ranges count in UTF-16."""
    plain = line.rstrip("\r\n")
    folded, wanted = plain.lower(), query.lower()
    if len(folded) != len(plain):
        folded, wanted = plain, query  # some letters change length in lower case: then case matters
    at = folded.find(wanted)
    if at < 0:
        return None
    start = 0 if at + len(wanted) <= PREVIEW else max(0, at - PREVIEW // 2)
    preview = plain[start : start + PREVIEW]
    part = folded[start : start + PREVIEW]
    ranges = []
    place = part.find(wanted)
    while place >= 0:
        before = _units(preview[:place])
        ranges.append({"start": before, "end": before + _units(preview[place : place + len(wanted)])})
        place = part.find(wanted, place + len(wanted))
    return {"column": at + 1, "preview": preview, "match_ranges": ranges}


def _units(text: str) -> int:
    return len(text) + sum(char > "\uffff" for char in text)
