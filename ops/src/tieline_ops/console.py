"""The timeline on a terminal, in colour; plain lines anywhere else."""

from __future__ import annotations

import time

from rich.console import Console
from rich.text import Text

_COLOURS = {"demo": "bold", "agent": "cyan", "thread": "cyan", "workspace": "green"}


class Timeline:
    """Lines with the seconds since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._console = Console(highlight=False, soft_wrap=True)

    def say(self, name: str, text: str) -> None:
        line = f"{time.monotonic() - self._began:7.2f}s  {name:<9}  {text}"
        self._console.print(Text(line, style=_COLOURS.get(name, "dim")))
