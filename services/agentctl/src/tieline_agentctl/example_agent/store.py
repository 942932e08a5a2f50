"""Where the example agent keeps what was said in its sessions, so that another process of it can load them."""

import json
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from tieline_agentctl.example_agent.language import shortened

MOST_UPDATES = 2_000
KEPT = 24 * 3600.0
_ID = re.compile(r"example-[0-9a-f]{12}")


class Store:
    """One file a session, JSON. What nobody has gone on with for a day is forgotten."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory or Path(tempfile.gettempdir()) / "tieline-example-agent"

    def load(self, session_id: str) -> list[dict[str, Any]] | None:
        """The updates of a session; None when there is no such session."""
        if not _ID.fullmatch(session_id):
            return None
        try:
            history = json.loads((self._directory / f"{session_id}.json").read_text())
        except (OSError, ValueError):
            return None
        return history if isinstance(history, list) else None

    def save(self, session_id: str, history: list[dict[str, Any]]) -> None:
        """Replace what is kept of a session."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._forget()
        path = self._directory / f"{session_id}.json"
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(shortened(history, MOST_UPDATES)))
        fresh.replace(path)

    def _forget(self) -> None:
        oldest = time.time() - KEPT
        for path in self._directory.glob("example-*"):
            try:
                if path.stat().st_mtime < oldest:
                    path.unlink()
            except FileNotFoundError:
                pass  # another agent was first
