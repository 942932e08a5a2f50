"""docs/events.md, held to what a running system really says."""

import subprocess
from pathlib import Path

import pytest
from tieline import Call, Client, Remote

from tests.support.events_page import unknown
from tests.support.frontend import Frontend
from tests.support.system import System

PROMPT = "\n".join(
    (
        "think first",
        "plan A | B",
        "say hello",
        "write a.txt hi",
        "read a.txt",
        "run echo hi; exit 3",
        "ask Really?",
        "usage 10 100",
        "commands a b",
        "mode plan",
        "title A title",
        "servers",
        "tools",
    )
)


def make_repository(path: Path) -> None:
    subprocess.run(["git", "init", "-q", "-b", "main", str(path)], check=True)
    for name, value in (("user.name", "Test"), ("user.email", "test@example.org")):
        subprocess.run(["git", "-C", str(path), "config", name, value], check=True)


def wrong(front: Frontend) -> set[str]:
    return {problem for event in front.events for problem in unknown(event.log, event.body)}


@pytest.mark.timeout(60)
async def test_a_session_says_nothing_that_the_page_lacks(shared_system: System) -> None:
    make_repository(shared_system.workspaces / "events")
    async with Frontend(shared_system.url, shared_system.token()) as front:
        session = await front.open(workspace="events")
        await front.watch(session, cursors={"agent": "start", "workspace": "start"})
        await front.ask("agent.prompt", session, text=PROMPT, client_message_id="m1")
        for number in (1, 2, 3):
            await front.allow(session, number)
        await front.until_ended()
        await front.ask("git.stage", session, paths=["a.txt"])
        await front.ask("git.commit", session, message="Begin")
        first = (await front.until("git_commit")).body["git_commit"]["commit_sha"]
        await front.ask("workspace.file-create", session, path="b.txt")
        await front.ask("git.commit", session, message="Go on", stage_all=True)
        await front.until("git_commit", 2)
        await front.ask("git.reset", session, commit_sha=first, mode="hard")
        await front.until("git_reset")
        await front.ask("process.start", session, kind="custom", command="echo out; exit 3")
        await front.until("process_output")
        await front.until("processes", running=[])
        await front.ask("shell.input", session, data="git checkout -q -b other\nexit 4\n")
        await front.until("shell_exit")
        await front.until("branch_switch")
        await front.ask("agent.prompt", session, text="fail no")
        await front.until_ended(2)
        await front.ask("agent.prompt", session, text="crash 3")
        await front.until_ended(3)
        await front.ask("session.close", session)
        await front.until("session", state="closed")

        problems = wrong(front)

        assert problems == set()
        assert {"plan", "context_window", "available_commands", "session_mode", "session_info"} <= {
            event.type for event in front.events
        }


@pytest.mark.timeout(60)
async def test_a_chat_says_nothing_that_the_page_lacks(shared_system: System) -> None:
    box = Remote("box")

    @box.function
    async def open_it(name: str, call: Call) -> str:
        """Open the box."""
        await call.progress("opening", 1, 2)
        if name == "nobody":
            raise LookupError("nobody is there")
        return f"opened by {name}"

    calls = "\n".join(f'call box.open_it {{"name": "{name}"}}' for name in ("ann", "nobody"))
    resources = [{"kind": "system", "subkind": "remote", "content": name} for name in ("box", "gone")]
    problems: set[str] = set()
    kinds = set()
    async with Client(shared_system.url, shared_system.token()) as client, client.serve(box):
        thread = (await client.request("thread.create", {}))["thread_id"]
        message = {"thread_id": thread, "content": calls, "resources": resources}
        async with await client.subscribe_thread(thread) as events:
            await client.request("thread.message", message)
            async for event in events:
                kinds.add(event.type)
                problems |= set(unknown("thread", event.body))
                if event.type == "run" and event.body["state"] == "ended":
                    break

    assert problems == set()
    assert kinds == {
        "epoch",
        "message",
        "run",
        "delta",
        "tool_call",
        "tool_progress",
        "tool_result",
    }
