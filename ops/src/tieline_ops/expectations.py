"""Pure: what the demo must have seen, and what is wrong when it has not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

FILE = "hello.txt"
CONTENT = "Hello from the agent 👋"
BEFORE = "Hello.\n\n    I will write a file:\n"
AFTER = "\nAnd now look at it. 👋\n"
DONE = "Done."
SHELL_INPUT = "echo tieline-$((40+2))\n"
SHELL_OUTPUT = "tieline-42"
MESSAGE = "Add a greeting"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


PROMPT = "\n".join(
    (
        "think The user wants a greeting in a file.",
        "plan Write the file | Look at it",
        f"say {_escaped(BEFORE)}",
        f"write {FILE} {CONTENT}\\n",
        f"say {_escaped(AFTER)}",
        f"run cat {FILE}",
        f"say {DONE}",
    )
)


@dataclass
class Heard:
    """The events of a session as one viewer got them: (log, cursor, event)."""

    events: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    def add(self, log: str, cursor: str, event: dict[str, Any]) -> None:
        self.events.append((log, cursor, event))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for _, _, event in self.events if event.get("type") == kind]

    def text(self, kind: str, name: str) -> str:
        """What a viewer concatenates."""
        return "".join(str(event.get(name, "")) for event in self.of(kind))

    def cursors(self, log: str) -> list[str]:
        return [cursor for name, cursor, _ in self.events if name == log]

    def log(self, log: str) -> list[tuple[str, dict[str, Any]]]:
        """Cursors and events of one log."""
        return [(cursor, event) for name, cursor, event in self.events if name == log]

    @property
    def ended(self) -> bool:
        """Whether the turn has ended."""
        return any(event.get("state") == "ended" for event in self.of("turn"))


def problems(heard: Heard) -> list[str]:
    """What is not as it must be in what one viewer heard, over its reconnect."""
    found = []
    said = heard.text("message_chunk", "text")
    if said != BEFORE + AFTER + DONE:
        found.append(f"the agent's words are {said!r}")
    ends = [event.get("reason") for event in heard.of("turn") if event.get("state") == "ended"]
    if ends != ["end_turn"]:
        found.append(f"the turn ended {len(ends)} times: {ends}")
    tools = {event.get("tool_call_id") for event in heard.of("tool_call")}
    finished = {
        event.get("tool_call_id")
        for event in heard.of("tool_update")
        if event.get("tool_status") == "complete"
    }
    if len(tools) != 2 or tools != finished:
        found.append(f"{len(tools)} tool calls began and {len(finished)} of them were completed, not 2")
    if len(heard.of("permission_request")) != 2:
        found.append(f"{len(heard.of('permission_request'))} permissions were asked for, not 2")
    if SHELL_OUTPUT not in heard.text("shell_output", "data"):
        found.append("the shell's output is missing")
    found += [
        f"an event of the {log} log came twice"
        for log in ("agent", "workspace")
        if len(set(heard.cursors(log))) != len(heard.cursors(log))
    ]
    if heard.of("gap"):
        found.append(f"there are gaps: {heard.of('gap')}")
    return found


def differences(heard: Heard, kept: Heard) -> list[str]:
    """Where the log, read from its start, differs from what was heard live and after the reconnect."""
    return [
        f"the {log} log holds other events than were received: {len(kept.log(log))}, not {len(heard.log(log))}"
        for log in ("agent", "workspace")
        if kept.log(log) != heard.log(log)
    ]
