"""The work of `check` and `doctor`: facts are learnt, the objectives are judged."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tieline_ops.cli import (
    contexts,
    describe,
    gather,
    inventory,
    objectives,
    output,
    reach,
    scrape,
    shapes,
    verdicts,
)
from tieline_ops.cli.codes import Exit, Problem
from tieline_ops.cli.contexts import Place
from tieline_ops.cli.output import Format
from tieline_ops.cli.shapes import Column
from tieline_ops.cli.verdicts import Facts, State, Verdict

_SHADES = {State.OK: "good", State.WARNING: "warn", State.CRITICAL: "bad", State.UNKNOWN: "dim"}
_CONNECT = 3.0


async def learn(where: Place) -> Facts:
    """All facts that can be had; a part that does not answer leaves its facts out."""
    known: dict[str, Any] = {}
    try:
        async with reach.bus(where, _CONNECT) as bus:
            began = time.monotonic()
            await bus.flush()
            known["rtt"] = time.monotonic() - began
            told = await asyncio.gather(
                gather.asked(bus, "STATS"),
                gather.leases(bus),
                inventory.sessions(bus, all=False),
                inventory.threads(bus),
                gather.streams(bus),
                return_exceptions=True,
            )
    except Exception as exc:  # noqa: BLE001  # whatever it is, it is what is to be told
        known["unreachable"] = getattr(exc, "message", str(exc))
    else:
        names = ("services", "leases", "sessions", "threads", "streams")
        known |= {
            name: value
            for name, value in zip(names, told, strict=True)
            if not isinstance(value, BaseException)
        }
        if "services" in known:
            known["services"] = describe.services(known["services"])
    known["metrics"], known["scraped"] = await scrape.worst(where.context.metrics)
    return Facts(**known, **await _gateway(where))


async def _gateway(where: Place) -> dict[str, Any]:
    try:
        where.gateway_url, where.token()  # whether they are known
    except Problem as problem:
        return {"gateway_error": problem.message} if problem.exit is Exit.UNAVAILABLE else {}
    began = time.monotonic()
    try:
        async with reach.client(where):
            return {"gateway": time.monotonic() - began}
    except Exception as exc:  # noqa: BLE001  # the same
        return {"gateway_error": getattr(exc, "message", str(exc))}


async def check(place: Callable[[], Place], wanted: list[str], format: Format) -> int:
    unknown = [name for name in wanted if name not in objectives.OBJECTIVES]
    if unknown:
        output.note(
            f"there is no objective {', '.join(unknown)}; there are: {', '.join(objectives.OBJECTIVES)}"
        )
        return State.UNKNOWN
    try:
        facts = await learn(place())
    except Problem as problem:  # for Nagios every failure to look is `unknown`
        output.note(problem.message)
        return State.UNKNOWN
    found = objectives.judge(facts, wanted)
    if format in (Format.JSON, Format.YAML):
        output.value(format, [told(verdict) for verdict in found])
    else:
        colour = output.colour()
        output.lines(
            shapes.styled(verdicts.line(verdict), _SHADES[verdict.state] if colour else "")
            for verdict in found
        )
    return verdicts.worst(found)


def told(verdict: Verdict) -> dict[str, Any]:
    """A verdict for programs."""
    return {
        "objective": verdict.objective,
        "state": verdict.state.name.lower(),
        "text": verdict.text,
        "performance": dict(verdict.performance),
        "advice": verdict.advice or None,
    }


_COLUMNS = [Column("WHAT", "what"), Column("STATE", "state", state=True), Column("FOUND", "found", most=200)]


async def doctor(place: Callable[[], Place], format: Format) -> int:
    where = place()
    facts = await learn(where)
    rows = [
        {
            "what": verdict.objective,
            "state": verdict.state.name.lower(),
            "found": verdict.text,
            "do": verdict.advice,
        }
        for verdict in objectives.judge(facts)
    ]
    rows += _here(where)
    bad = [row for row in rows if row["state"] in ("warning", "critical")]
    if format in (Format.JSON, Format.YAML):
        output.value(format, rows)
    else:
        output.lines([f"about {where.found}", ""])
        output.rows(format, _COLUMNS, rows, "")
        advice = [f"{row['what']}: {row['do']}" for row in bad if row["do"]]
        output.lines(["", *advice] if advice else ["", "nothing is wrong" if not bad else ""])
    return Exit.FAILED if bad else Exit.OK


def _here(where: Place) -> list[dict[str, Any]]:
    """What can be wrong with this machine and with the command's own files."""
    rows = []
    path = contexts.path()
    if path.exists() and path.stat().st_mode & 0o077:
        rows.append(_row("contexts", "warning", f"others may read {path}", f"chmod 600 {path}"))
    if where.context.data:
        data = Path(where.context.data)
        if data.is_dir():
            disk = shutil.disk_usage(data)
            low = disk.free < 1024**3
            found = f"{shapes.size(disk.free)} free for {data}"
            rows.append(
                _row(
                    "disk",
                    "critical" if low else "ok",
                    found,
                    "the broker stops storing: free some" if low else "",
                )
            )
            crashed = [log.stem for log in sorted((data / "logs").glob("*.log")) if _ends_badly(log)]
            if crashed:
                logs = ", ".join(str(data / "logs" / f"{name}.log") for name in crashed)
                rows.append(
                    _row("logs", "warning", f"failures were logged by {', '.join(crashed)}", f"see {logs}")
                )
    if os.environ.get("TIELINE_TOKEN") and where.secret is not None:
        rows.append(_row("token", "ok", "TIELINE_TOKEN is set and used instead of a fresh one", ""))
    return rows


def _row(what: str, state: str, found: str, do: str) -> dict[str, Any]:
    return {"what": what, "state": state, "found": found, "do": do}


def _ends_badly(log: Path) -> bool:
    """Whether the last of what a service logged says that it failed."""
    with log.open("rb") as file:
        file.seek(max(log.stat().st_size - 20_000, 0))
        return b'"event": "the service failed"' in file.read()
