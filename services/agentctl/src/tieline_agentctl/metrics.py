"""What the machine is doing: processor, memory, disk. Read from the kernel at each question; nothing is kept."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def collect(
    wanted: list[str],
    load: Callable[[], tuple[float, float, float]],
    disk_usage: Callable[[str], Any],
    disk_path: str,
) -> list[dict[str, Any]]:
    sources: dict[str, tuple[str, str, Callable[[], float]]] = {
        "cpu": ("CPU", "percent", lambda: min(100.0, 100.0 * load()[0] / (os.cpu_count() or 1))),
        "memory": ("Memory", "percent", _memory),
        "disk": ("Disk", "percent", lambda: _share(disk_usage(disk_path))),
    }
    return [_one(name, sources) for name in (wanted or list(sources))]


def _one(name: str, sources: dict[str, tuple[str, str, Callable[[], float]]]) -> dict[str, Any]:
    if name not in sources:
        return {"id": name, "label": name, "available": False, "error": "unknown metric"}
    label, unit, read = sources[name]
    try:
        return {"id": name, "label": label, "unit": unit, "value": round(read(), 2), "available": True}
    except (OSError, ValueError, KeyError) as exc:
        return {"id": name, "label": label, "unit": unit, "available": False, "error": str(exc)}


def _memory() -> float:
    facts = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        facts[name] = float(rest.split()[0])
    return 100.0 * (1 - facts["MemAvailable"] / facts["MemTotal"])


def _share(usage: Any) -> float:
    return 100.0 * float(usage.used) / float(usage.total)
