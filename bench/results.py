"""Pure: what a run leaves: the file's JSON and the table for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.measure import Figure


def document(figures: Sequence[Figure], before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The whole results file. Figures of `before` that were not measured this time stay as they were."""
    kept = (before or {}).get("figures")
    known = dict(kept) if isinstance(kept, Mapping) else {}
    return {"figures": {**known, **{figure.goal.name: entry(figure) for figure in figures}}}


def entry(figure: Figure) -> dict[str, Any]:
    """One figure in the results file."""
    return {
        "value": round(figure.value, 3),
        "unit": figure.goal.unit,
        "goal": figure.goal.goal,
        "better": figure.goal.better,
        "n": figure.n,
        "spread": round(figure.spread, 3),
    }


def table(figures: Sequence[Figure]) -> str:
    """A plain table, one line for each figure, and what each means."""
    rows = [("figure", "value", "goal", "", "n", "spread")]
    for figure in figures:
        sign = "≥" if figure.goal.better == "higher" else "≤"
        rows.append(
            (
                figure.goal.name,
                f"{figure.value:.2f} {figure.goal.unit}",
                f"{sign} {figure.goal.goal:g}",
                "ok" if figure.reached else "short",
                str(figure.n),
                f"{figure.spread:.0%}",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)
