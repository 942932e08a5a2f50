"""The whole system as people start it: `tieline up` as a process, on free ports, in a directory of the test's own."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from pathlib import Path
from typing import Any

from tieline_ops import tokens

from tests.support.process import Process


class System(Process):
    """`facts` are those of the ready file as it is now."""

    def __init__(self, directory: Path, args: list[str] | None = None, **rest: Any) -> None:
        self.mark = secrets.token_hex(8)  # inherited by all that it starts, local daemons too
        ports = [word for name in ("gateway", "nats", "agentctl") for word in (f"--{name}-port", "0")]
        self.data = directory / "data"
        super().__init__(
            "tieline_ops",
            directory,
            ["up", "--data", str(self.data), *ports, *(args or [])],
            {
                "SYSTEM_UNDER_TEST": self.mark,
                "OPENAI_API_KEY": "",  # whoever has one does not want it used here
                "SHELL": "/bin/sh",
                "HOME": str(directory),
                **rest.pop("env", {}),
            },
            name="up",
            timeout=20,
            **rest,
        )

    def now(self) -> dict[str, Any]:
        """The ready file as it is now."""
        with contextlib.suppress(FileNotFoundError):
            self.facts = json.loads(self.ready_file.read_text())
        return self.facts

    @property
    def url(self) -> str:
        return str(self.facts["gateway_url"])

    @property
    def workspaces(self) -> Path:
        return Path(self.facts["workspaces"])

    def token(self, user: str = "dev") -> str:
        """A token for any user."""
        return tokens.mint((self.data / "jwt-secret").read_text(), user, time.time())

    def processes(self) -> dict[int, str]:
        """Everything that runs because of it, wherever it went: number and command line."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                if self.mark.encode() in (entry / "environ").read_bytes():
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    def tail(self, size: int = 8_000) -> str:
        """The end of its own log and of those of its services."""
        logs = [
            f"--- {path.name}\n{_end(path, 3_000)}" for path in sorted((self.data / "logs").glob("*.log"))
        ]
        return "\n".join([_end(self.log_path, size), *logs])


def _end(path: Path, size: int) -> str:
    return path.read_text(errors="replace")[-size:] if path.exists() else ""
