"""Pure: applies a unified diff to one file's bytes. A hunk may have moved; what it expects must be there."""

import re
from dataclasses import dataclass, field

_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class PatchFailed(Exception):
    """The diff cannot be read, or the file is not what it was made against."""


@dataclass(slots=True)
class Hunk:
    start: int  # first line of the old text that it covers, from 0
    old: list[bytes] = field(default_factory=list)
    new: list[bytes] = field(default_factory=list)


def apply(original: bytes, diff: bytes) -> bytes:
    hunks = parse(diff)
    if not hunks:
        raise PatchFailed("the diff has no hunks")
    lines = _lines(original)
    result: list[bytes] = []
    done = 0
    shift = 0
    for hunk in hunks:
        at = _find(lines, hunk, done, hunk.start + shift)
        if at is None:
            raise PatchFailed(f"hunk at line {hunk.start + 1} does not match the file")
        shift = at - hunk.start
        result += lines[done:at] + hunk.new
        done = at + len(hunk.old)
    return b"".join(result + lines[done:])


def parse(diff: bytes) -> list[Hunk]:
    """The hunks of a diff of one file; headers before the first one are skipped."""
    hunks: list[Hunk] = []
    lines = _lines(diff)
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        match = _HUNK.match(line)
        if match is not None:
            hunk, at = _hunk(match, lines, at)
            hunks.append(hunk)
        elif hunks and line.startswith((b"diff --git ", b"--- ")):
            raise PatchFailed("the diff is about more than one file")
    return hunks


def _hunk(match: re.Match[bytes], lines: list[bytes], at: int) -> tuple[Hunk, int]:
    start = int(match[1])
    old_count, new_count = (1 if text is None else int(text) for text in (match[2], match[3]))
    # A hunk that covers no old line stands after the line that it names.
    hunk = Hunk(start if old_count == 0 else max(0, start - 1))
    last: tuple[list[bytes], ...] = ()
    while at < len(lines):
        line = lines[at]
        full = len(hunk.old) >= old_count and len(hunk.new) >= new_count
        if line.startswith(b"\\"):
            for side in last:  # "No newline at end of file" is about the line before it
                side[-1] = side[-1].removesuffix(b"\n")
        elif full:
            break
        else:
            last, text = _sides(hunk, line)
            for side in last:
                side.append(text)
        at += 1
    if len(hunk.old) != old_count or len(hunk.new) != new_count:
        raise PatchFailed(f"the hunk at line {start} is not as long as it says")
    return hunk, at


def _sides(hunk: Hunk, line: bytes) -> tuple[tuple[list[bytes], ...], bytes]:
    match line[:1]:
        case b" ":
            return (hunk.old, hunk.new), line[1:]
        case b"\n" | b"\r":
            # Some editors strip the blank from an empty line of context.
            return (hunk.old, hunk.new), line
        case b"-":
            return (hunk.old,), line[1:]
        case b"+":
            return (hunk.new,), line[1:]
    raise PatchFailed(f"not a line of a diff: {line[:40]!r}")


def _find(lines: list[bytes], hunk: Hunk, earliest: int, expected: int) -> int | None:
    """Where the hunk's old lines are: as near as possible to where it says, never inside what is done."""
    latest = len(lines) - len(hunk.old)
    if not hunk.old:
        return min(max(expected, earliest), len(lines))
    candidates = range(earliest, latest + 1)
    for at in sorted(candidates, key=lambda place: abs(place - expected)):
        if lines[at : at + len(hunk.old)] == hunk.old:
            return at
    return None


def _lines(text: bytes) -> list[bytes]:
    """With their ends; only a line feed ends a line."""
    lines = text.split(b"\n")
    whole = [line + b"\n" for line in lines[:-1]]
    return [*whole, lines[-1]] if lines[-1] else whole
