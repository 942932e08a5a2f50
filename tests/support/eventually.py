"""Waiting for a condition: the only waiting in tests that is not for a message."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any


async def eventually(condition: Callable[[], Any], timeout: float = 8.0, every: float = 0.01) -> Any:
    """Ask a plain or async function until it gives something true, and return that."""
    until = time.monotonic() + timeout
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if time.monotonic() >= until:
            raise AssertionError(f"not within {timeout:g} s; the last value was {value!r}")
        await asyncio.sleep(every)
