"""Pure: rows as tables of plain columns; ages, sizes and rates as people read them.

A cell is a text that may have a style; styles are names (`good`, `bad`, `warn`, `dim`), and become colours only where
the output is a terminal.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tieline_ops.cli import safe

Row = Mapping[str, Any]

_COLOURS = {"good": "32", "bad": "31", "warn": "33", "dim": "2", "head": "1", "name": "36"}
_GAP = "  "
_STATES = {
    **dict.fromkeys(("ready", "up", "yes", "ok", "ended", "answer", "end_turn", "running", "alive"), "good"),
    **dict.fromkeys(("failed", "down", "critical", "gone", "error", "unknown", "nobody"), "bad"),
    **dict.fromkeys(
        (
            "opening",
            "waiting",
            "connecting",
            "closing",
            "warning",
            "waiting_permission",
            "accepted",
            "queued",
        ),
        "warn",
    ),
    **dict.fromkeys(("closed", "-", "no"), "dim"),
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its title, which value of a row (a name, or a function of the row), and how it is shown."""

    title: str
    value: str | Callable[[Row], Any]
    wide: bool = False  # only in the format `wide`
    right: bool = False
    state: bool = False  # coloured by what it says
    most: int = 48  # characters, but in the format `wide`

    def of(self, row: Row) -> str:
        found = row.get(self.value) if isinstance(self.value, str) else self.value(row)
        return "-" if found is None or found == "" else safe.line(_plain(found))


def _plain(value: Any) -> str:
    if value is True or value is False:
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(
    columns: Sequence[Column],
    rows: Iterable[Row],
    *,
    wide: bool = False,
    width: int = 0,
    colour: bool = False,
) -> list[str]:
    """The lines of a table, its titles first. `width`: cut lines there; 0: nowhere."""
    shown = [column for column in columns if wide or not column.wide]
    cells = [[fit(column.of(row), 0 if wide else column.most) for column in shown] for row in rows]
    sizes = [
        max([cells_wide(column.title), *(cells_wide(row[n]) for row in cells)])
        for n, column in enumerate(shown)
    ]
    titles = _line(shown, sizes, [column.title for column in shown], width, "head" if colour else "")
    return [titles, *(_line(shown, sizes, row, width, "state" if colour else "") for row in cells)]


def _line(
    columns: Sequence[Column], sizes: Sequence[int], cells: Sequence[str], width: int, style: str
) -> str:
    parts: list[str] = []
    left = width or 1 << 30
    for n, (column, size, cell) in enumerate(zip(columns, sizes, cells, strict=True)):
        gap = _GAP if n else ""
        if left <= len(gap) + 1:
            break
        size = min(size, left - len(gap))
        fitted = fit(cell, size)
        left -= len(gap) + size
        pad = " " * (size - cells_wide(fitted))
        name = style if style == "head" else (_STATES.get(cell, "") if style and column.state else "")
        text = styled(fitted, name)
        parts.append(gap + (pad + text if column.right else text + pad))
    return "".join(parts).rstrip()


def styled(text: str, style: str) -> str:
    """A text in a colour; "" is none."""
    return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m" if style and text else text


def state_style(state: str) -> str:
    """The colour of a state."""
    return _STATES.get(state, "")


def cells_wide(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def fit(text: str, most: int) -> str:
    """A text within so many columns; 0: however many."""
    if not most or cells_wide(text) <= most:
        return text
    while text and cells_wide(text) > most - 1:
        text = text[:-1]
    return text + "…"


def fields(pairs: Iterable[tuple[str, object]], *, colour: bool = False) -> list[str]:
    """One thing: a line for each of its facts."""
    told = [
        (title, safe.line(_plain("-" if value is None or value == "" else value))) for title, value in pairs
    ]
    size = max((len(title) for title, _ in told), default=0) + 2
    return [
        styled(title, "head" if colour else "")
        + " " * (size - len(title))
        + styled(text, _shade(text, colour))
        for title, text in told
    ]


def _shade(text: str, colour: bool) -> str:
    return _STATES.get(text.partition(" ")[0].rstrip(","), "") if colour else ""


def age(seconds: float | None) -> str:
    """How long ago, in at most two units. A clock that is ahead of ours gives 0s, never less (B94)."""
    if seconds is None:
        return "-"
    whole = max(int(seconds), 0)
    for size, unit, below, lower in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // below
            return (
                f"{whole // size}{unit}{rest}{lower}"
                if rest and whole < 10 * size
                else f"{whole // size}{unit}"
            )
    return f"{whole}s"


def size(amount: float | None) -> str:
    """Bytes, in powers of 1024."""
    if amount is None or amount < 0:
        return "-"
    value = float(amount)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def rate(per_second: float | None) -> str:
    """So many each second."""
    if per_second is None:
        return "-"
    return f"{per_second:,.0f}/s" if per_second >= 10 or not per_second else f"{per_second:.1f}/s"


def took(nanoseconds: float | None) -> str:
    """A duration."""
    if not nanoseconds:
        return "-"
    if nanoseconds < 1_000_000:
        return f"{nanoseconds / 1_000:.0f} µs"
    if nanoseconds < 1_000_000_000:
        return f"{nanoseconds / 1_000_000:.{0 if nanoseconds >= 10_000_000 else 1}f} ms"
    return f"{nanoseconds / 1_000_000_000:.1f} s"
