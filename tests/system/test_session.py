"""A coding session from end to end, as frontends see it: one running system, real agent, shell and git."""

import asyncio
import json
import random
import string
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tieline import TielineError

from tests.support import raw_agent, repository
from tests.support.eventually import eventually
from tests.support.frontend import Frontend
from tests.support.repository import git
from tests.support.system import System

NewFrontend = Callable[[], Frontend]

pytestmark = pytest.mark.timeout(40)


async def test_a_prompt_is_answered_word_for_word(frontend: NewFrontend) -> None:
    async with frontend() as front:
        session = await front.open(title="Words")
        await front.watch(session)
        words = "say Hello,\\n\\n    world \\u0000 👋\nthink Hm.\nsay  Bye."
        told = await front.ask("agent.prompt", session, text=words)
        ended = await front.until_ended()

    assert front.text() == "Hello,\n\n    world \x00 👋 Bye."
    assert (told["generation"], ended.body["generation"], ended.body["reason"]) == (1, 1, "end_turn")
    assert front.of("turn")[0].body["state"] == "accepted"
    assert front.of("complete")


async def test_the_agent_asks_before_it_acts(frontend: NewFrontend, shared_system: System) -> None:
    async with frontend() as front:
        session = await front.open(workspace="permissions")
        await front.watch(session)
        await front.ask("agent.prompt", session, text="write note.txt It is allowed.\\n")
        await front.until("turn", state="waiting_permission")
        assert not (shared_system.workspaces / "permissions/note.txt").exists()
        listed = (await front.ask("agent.permissions.list", session))["permissions"]
        await front.allow(session)
        await front.until_ended()
        changed = await front.until("file_change")

    assert len(listed) == 1
    assert (shared_system.workspaces / "permissions/note.txt").read_text() == "It is allowed.\n"
    assert changed.body["file_change"]["path"] == "note.txt"
    assert [len(event.body["open"]) for event in front.of("permissions")][-2:] == [1, 0]


async def test_the_shell_runs_and_resizes(frontend: NewFrontend) -> None:
    async with frontend() as front:
        session = await front.open()
        await front.watch(session)
        await front.ask("shell.resize", session, cols=123, rows=45)
        await front.ask("shell.input", session, data="stty size; echo shell-$((40+2))\n")
        await front.until_screen("shell-42")
        buffer = await front.ask("shell.buffer", session)

    assert "45 123" in front.screen
    assert "shell-42" in buffer["data"]


async def test_a_thousand_single_keys_arrive_in_order(frontend: NewFrontend, shared_system: System) -> None:
    keys = "".join(random.Random(7).choices(string.ascii_letters + string.digits, k=1_000))
    async with frontend() as front:
        session = await front.open(workspace="keys")
        await front.watch(session)
        await front.ask("shell.input", session, data="stty -echo; echo begin-$((1)); cat > keys.txt\n")
        await front.until_screen("begin-1")
        await asyncio.gather(*(front.ask("shell.input", session, data=key) for key in keys + "\n\x04"))
        file = shared_system.workspaces / "keys/keys.txt"
        await eventually(lambda: file.exists() and file.read_text().endswith("\n"), 8)

    assert file.read_text() == keys + "\n"


async def test_what_the_shell_writes_is_seen_to_the_byte(
    frontend: NewFrontend, shared_system: System
) -> None:
    lines = ["", "  two", "\ttab", "👋 é 日本", "\0 nul", "", "x" * 1_048_576, "end"]
    text = "\n".join(lines * 2)
    async with frontend() as front:
        session = await front.open(workspace="bytes")
        (shared_system.workspaces / "bytes/out.txt").write_text(text)
        await front.watch(session)
        await front.ask(
            "shell.input", session, data="stty -opost -echo; printf 'BEG''IN'; cat out.txt; printf 'EN''D.'\n"
        )
        await front.until_screen("END.", 20)
    seen = front.screen.partition("BEGIN")[2].partition("END.")[0]

    assert len(seen) == len(text)
    assert seen == text
    assert not front.of("gap")


async def test_what_the_agent_says_is_seen_to_the_byte(frontend: NewFrontend) -> None:
    async with frontend() as front:
        session = await front.open()
        await front.watch(session)
        await front.ask("agent.prompt", session, text="big 1048576\nsay \\n\\n  after\\u0000👋")
        await front.until_ended(timeout=20)

    assert front.text() == "0123456789abcdef" * 65_536 + "\n\n  after\0👋"


async def test_files_and_git(frontend: NewFrontend, shared_system: System) -> None:
    root = repository.make(shared_system.workspaces / "git")
    async with frontend() as front:
        session = await front.open(workspace="git")
        await front.watch(session)
        await front.ask("workspace.file-create", session, path="src/new.py")
        tree = await front.ask("workspace.file-tree", session, depth=2)
        (root / "README").write_text("Changed.\n")
        content = await front.ask("workspace.file-content", session, path="README")
        await front.ask("git.stage", session, paths=["README"])
        done = await front.ask("git.commit", session, message="Change the README")
        told = await front.until("git_commit")
        with pytest.raises(TielineError, match="within the workspace") as outside:
            await front.ask("workspace.file-delete", session, path="../../lock")

    assert {node["name"] for node in tree["root"]["children"]} == {"README", "src"}
    assert content["content"] == "Changed.\n"
    assert done["success"]
    assert told.body["git_commit"]["commit_sha"] == git(root, "rev-parse", "HEAD")
    assert git(root, "log", "-1", "--format=%s") == "Change the README"
    assert outside.value.code == "bad_request"
    assert (shared_system.data / "lock").exists()


async def test_processes_run_and_tell(frontend: NewFrontend) -> None:
    async with frontend() as front:
        session = await front.open()
        await front.watch(session)
        started = await front.ask(
            "process.start", session, kind="custom", command="echo out; echo err >&2; exit 3"
        )
        await front.until("process_output")
        await eventually(
            lambda: any(e.body["process_status"].get("exit_code") == 3 for e in front.of("process_status"))
        )
        listed = await front.ask("process.list", session)

    assert started
    assert listed is not None


async def test_a_viewer_resumes_where_it_was(frontend: NewFrontend) -> None:
    async with frontend() as front:
        session = await front.open()
        await front.watch(session, cursors={"agent": "start", "workspace": "start"})
        await front.ask("agent.prompt", session, text="say one \nwait 1\nsay two \nsay three")
        await front.until("message_chunk")
        cursors = dict(front.subscriptions[0].cursors)
        before = list(front.events)
    async with frontend() as back:
        await back.watch(session, cursors=cursors)
        await back.until_ended()
        seen = [event.cursor for event in before + back.events if event.log == "agent"]
        async with frontend() as other:
            await other.watch(session, ["agent"])
            await other.until_ended()

    assert len(set(seen)) == len(seen)
    assert seen == [event.cursor for event in other.events][: len(seen)]
    assert (
        "".join(event.body["text"] for event in before + back.events if event.type == "message_chunk")
        == "one two three"
    )


async def test_two_frontends_of_a_user_see_the_same(frontend: NewFrontend) -> None:
    async with frontend() as first, frontend() as second:
        with second.client.notifications("changed") as changed:
            session = await first.open(title="Shared")
            assert (await anext(changed))["id"] == session
        for front in (first, second):
            await front.watch(session, ["agent"])
        await first.ask("agent.prompt", session, text="ask May I?\nsay yes")
        await second.allow(session)
        for front in (first, second):
            await front.until_ended()

    assert [event.cursor for event in first.events] == [event.cursor for event in second.events]
    assert [len(event.body["open"]) for event in first.of("permissions")][-1] == 0


async def test_what_belongs_to_somebody_else_is_not_found(
    frontend: NewFrontend, shared_system: System
) -> None:
    """B31: the same answer as for what does not exist, for every action."""
    async with frontend() as front, Frontend(shared_system.url, shared_system.token("eve")) as eve:
        session = await front.open()
        for action, payload in (
            ("session.get", {}),
            ("session.subscribe", {}),
            ("session.close", {}),
            ("agent.prompt", {"text": "say hello"}),
            ("shell.input", {"data": "echo\n"}),
            ("workspace.file-content", {"path": "README"}),
        ):
            answers = []
            for asked in (session, "s" + "x" * 22):
                with pytest.raises(TielineError) as refused:
                    await eve.ask(action, asked, **payload)
                answers.append((refused.value.code, refused.value.message.replace(asked, "")))
            assert answers[0] == answers[1]
            assert answers[0][0] == "not_found"
        listed = (await eve.ask("session.list"))["sessions"]
        mine = [one["session_id"] for one in (await front.ask("session.list"))["sessions"]]

    assert session in mine
    assert listed == []


async def test_a_closed_session_says_so_and_takes_no_more(frontend: NewFrontend) -> None:
    async with frontend() as front:
        session = await front.open()
        await front.watch(session)
        await front.ask("session.rename", session, title="Renamed")
        await front.ask("session.close", session)
        last = await front.until("session", state="closed")
        record = await front.ask("session.get", session)
        with pytest.raises(TielineError) as refused:
            await front.ask("agent.prompt", session, text="say hello")

    assert last.body["state"] == "closed"
    assert record["title"] == "Renamed"
    assert record["state"] == "closed"
    assert refused.value.code == "conflict"


async def test_a_turn_can_be_cancelled(frontend: NewFrontend) -> None:
    async with frontend() as front:
        session = await front.open()
        await front.watch(session, ["agent"])
        await front.ask("agent.prompt", session, text="say working\nwait 600")
        await front.until("message_chunk")
        await front.ask("agent.cancel", session)
        ended = await front.until_ended()
        await front.ask("agent.prompt", session, text="say next")
        await front.until_ended(2)

    assert ended.body["reason"] == "cancelled"
    assert front.text() == "workingnext"


async def test_an_agent_that_dies_ends_its_turn(frontend: NewFrontend) -> None:
    async with frontend() as front:
        session = await front.open()
        await front.watch(session, ["agent"])
        await front.ask("agent.prompt", session, text="say going\ncrash 3")
        ended = await front.until_ended(timeout=20)

    assert ended.body["reason"] == "agent_exited"
    assert front.text() == "going"


def test_another_agent_can_be_named_and_is_heard_to_the_byte(tmp_path: Path) -> None:
    """B20: half an emoji, which only an escape can write, is passed on and harms nobody."""
    words = ['"half \\ud83d "', '"\\u0000\\n\\n"', '"  \\ud83d\\ude00"']
    update = '{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":%s}}'
    line = '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"raw-1","update":%s}}'
    steps: list[dict] = [{"line": line % (update % word)} for word in words]
    steps.append({"end": {"stopReason": "end_turn"}})

    async def story() -> str:
        command = f"{sys.executable} {raw_agent.__file__}"
        async with (
            System(tmp_path, ["--agent", command]) as system,
            Frontend(system.url, system.token()) as front,
        ):
            session = await front.open(agent="agent")
            await front.watch(session)
            await front.ask("agent.prompt", session, text=json.dumps(steps))
            await front.until_ended()
            return front.text()

    assert asyncio.run(story()) == "half \ud83d \0\n\n  😀"
