"""Metrics of services, read from their probes where a context (or the system on this machine) says where those are."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Sequence

_TIMEOUT = 2.0


async def worst(urls: Sequence[str]) -> tuple[dict[str, float], int]:
    """The highest value of each gauge over all services, `unready` (how many are), and how many were read."""
    told = await asyncio.gather(*(asyncio.to_thread(_read, url) for url in urls))
    texts = [text for text in told if text]
    found: dict[str, float] = {"unready": 0.0}
    for text in texts:
        for line in text.splitlines():
            name, _, rest = line.partition("{" if "{" in line else " ")
            if not line.startswith("tieline_"):
                continue
            try:
                value = float(rest.rpartition(" ")[2])
            except ValueError:
                continue
            found[name] = max(found.get(name, value), value)
            if name == "tieline_service_ready" and not value:
                found["unready"] += 1
    return found, len(texts)


def _read(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        return ""
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/metrics", timeout=_TIMEOUT) as answer:
            return str(answer.read().decode("utf-8", "replace"))
    except (OSError, ValueError):
        return ""
