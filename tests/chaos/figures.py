"""What a kind of service holds: tasks, file descriptors, memory. Taken when nothing is under way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import httpx
import psutil

from tests.support.process import Process

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Held:
    """Of all replicas of a service together; memory in MiB."""

    tasks: int = 0
    files: int = 0
    memory: float = 0.0

    def __add__(self, other: Held) -> Held:
        return Held(self.tasks + other.tasks, self.files + other.files, self.memory + other.memory)

    def grown(self, before: Held, stores: bool = False) -> list[str]:
        """What has grown beyond what chance makes of it. `stores`: its memory grows with what it was given to keep."""
        bounds = [
            ("tasks", self.tasks, before.tasks * 1.1 + 20),
            ("files", self.files, before.files * 1.1 + 60),
            ("MiB", self.memory, before.memory * 1.3 + 60 if not stores else float("inf")),
        ]
        return [
            f"{value:.0f} {what}, at most {most:.0f} expected" for what, value, most in bounds if value > most
        ]

    def __str__(self) -> str:
        return f"{self.tasks} tasks, {self.files} files, {self.memory:.0f} MiB"


async def of_service(processes: Iterable[Process]) -> Held:
    found = Held()
    async with httpx.AsyncClient(trust_env=False) as http:
        for process in processes:
            text = (await http.get(f"{process.facts['health_url']}/metrics")).text
            tasks = sum(
                float(line.split()[-1]) for line in text.splitlines() if line.startswith("tieline_tasks{")
            )
            found += Held(int(tasks)) + of_process(process.pid)
    return found


def of_process(pid: int) -> Held:
    process = psutil.Process(pid)
    return Held(0, process.num_fds(), process.memory_info().rss / _MIB)
