"""`tieline demo`: the main job, end to end, as a frontend does it, on a system of its own in a scratch directory.

The first act, a coding session, stands here; the second one, a chat that uses remotes, in demo_chat.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from tieline import Client, Event, Subscription, TielineError

from tieline_ops import expectations
from tieline_ops.demo_chat import ChatStory
from tieline_ops.demo_system import PATIENCE, Failed, Say, git, make_repository, system
from tieline_ops.expectations import Heard
from tieline_ops.timeline import Telling


async def demo(say: Say) -> list[str]:
    """Play it through; returns what is wrong. Everything is gone afterwards."""
    telling = Telling(say)
    say = telling.say
    with tempfile.TemporaryDirectory(prefix="tieline-demo-") as directory:
        root = Path(directory)
        repository = root / "workspaces" / "demo"
        make_repository(repository)
        say("demo", f"a scratch repository in {repository}")
        found: list[str] = []
        try:
            async with system(root, say) as facts:
                found = await play(facts, repository, telling)
        except* (Failed, TielineError, TimeoutError) as failed:
            found += [str(exc) or type(exc).__name__ for exc in _leaves(failed)]
        return found


async def play(facts: dict[str, Any], repository: Path, telling: Telling) -> list[str]:
    """Both acts against a system that runs: `facts` has gateway_url and token, `repository` is its workspace `demo`.

    Returns what is wrong. Raises Failed, TielineError, TimeoutError.
    """
    return [
        *await _Story(facts, repository, telling).play(),
        *await ChatStory(facts, telling).play(),
    ]


def _leaves(exc: BaseException) -> list[BaseException]:
    if not isinstance(exc, BaseExceptionGroup):
        return [exc]
    return [leaf for inner in exc.exceptions for leaf in _leaves(inner)]


class _Story:
    def __init__(self, facts: dict[str, Any], repository: Path, telling: Telling) -> None:
        self._url: str = facts["gateway_url"]
        self._token: str = facts["token"]
        self._repository = repository
        self._say = telling.say
        self._tell = telling.event
        self._heard = Heard()
        self._cursors: dict[str, str] = {}
        self._session = ""

    async def play(self) -> list[str]:
        async with self._client() as client:
            answer = await client.request("session.open", {"workspace": "demo", "title": "Demo"})
            self._session = answer["session_id"]
            self._say("demo", f"session {self._session} is {answer['state']}")
            async with self._watching(client, dict.fromkeys(("agent", "workspace"), "start")):
                self._say("demo", "the user prompts the agent")
                await self._request(client, "agent.prompt", text=expectations.PROMPT)
                await self._allow(client, 1)
                self._say("demo", "the user types in the shell")
                await self._request(client, "shell.input", data=expectations.SHELL_INPUT)
                await self._until(self._in_shell, "the shell's output")
                await self._until(lambda: len(self._asked()) == 2, "the second permission")
        self._say("demo", "the connection is lost in the middle of the turn; the viewer resumes by cursor")
        async with self._client() as client:
            async with self._watching(client, self._cursors):
                await self._allow(client, 2)
                await self._until(lambda: self._heard.ended, "the end of the turn")
                await self._until(self._changed, "the file's change")
                commit = await self._commit(client)
            found = expectations.problems(self._heard) + self._wrong_on_disk(commit)
            found += await self._wrong_in_log()
            await self._request(client, "session.close")
            self._say("demo", "the session is closed")
        return found

    def _client(self) -> Client:
        return Client(self._url, self._token)

    async def _request(self, client: Client, action: str, **payload: Any) -> dict[str, Any]:
        return await client.request(action, {"session_id": self._session, **payload})

    @contextlib.asynccontextmanager
    async def _watching(self, client: Client, cursors: dict[str, str]) -> AsyncIterator[None]:
        subscription = await client.subscribe(self._session, cursors=cursors)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(self._read(subscription), name="reading events")
            try:
                yield
            finally:
                reading.cancel()
        self._cursors = {**self._cursors, **subscription.cursors}

    async def _read(self, subscription: Subscription) -> None:
        async for event in subscription:
            self._hear(event)

    def _hear(self, event: Event) -> None:
        self._heard.add(event.log, event.cursor, event.body)
        self._tell(event.log, event.body)

    def _asked(self) -> list[dict[str, Any]]:
        return self._heard.of("permission_request")

    def _in_shell(self) -> bool:
        return expectations.SHELL_OUTPUT in self._heard.text("shell_output", "data")

    def _changed(self) -> bool:
        changes = [event.get("file_change", {}) for event in self._heard.of("file_change")]
        return any(change.get("path") == expectations.FILE for change in changes)

    async def _allow(self, client: Client, number: int) -> None:
        await self._until(lambda: len(self._asked()) >= number, "a permission to be asked for")
        asked = self._asked()[number - 1]
        option = next(one for one in asked["permission_options"] if str(one.get("kind")).startswith("allow"))
        self._say("demo", f"the user answers: {option.get('name')}")
        await self._request(
            client,
            "agent.permissions.respond",
            request_id=asked.get("request_id"),
            pending_id=asked.get("pending_id"),
            option_id=option["option_id"],
        )

    async def _commit(self, client: Client) -> str:
        told = await self._request(client, "workspace.file-content", path=expectations.FILE)
        if told.get("content") != expectations.CONTENT + "\n":
            raise Failed(f"the file holds {told.get('content')!r}")
        self._say("demo", f"the user reads {expectations.FILE}, stages and commits it")
        for action, payload in (
            ("git.stage", {"paths": [expectations.FILE]}),
            ("git.commit", {"message": expectations.MESSAGE}),
        ):
            done = await self._request(client, action, **payload)
            if not done.get("success", "operation_id" in done):
                raise Failed(f"{action}: {done.get('error')}")
        await self._until(lambda: self._heard.of("git_commit"), "the commit")
        return str(self._heard.of("git_commit")[0]["git_commit"]["commit_sha"])

    def _wrong_on_disk(self, commit: str) -> list[str]:
        found = []
        head = git(self._repository, "rev-parse", "HEAD")
        if head != commit:
            found.append(f"the commit that was told, {commit}, is not HEAD, {head}")
        if git(self._repository, "log", "-1", "--format=%s") != expectations.MESSAGE:
            found.append("the commit has another message")
        if git(self._repository, "show", f"HEAD:{expectations.FILE}") != expectations.CONTENT:
            found.append("the committed file holds something else")
        if status := git(self._repository, "status", "--porcelain"):
            found.append(f"the repository is not clean: {status}")
        return found

    async def _wrong_in_log(self) -> list[str]:
        """A third viewer reads both logs from their start, up to where the second one was."""
        self._say("demo", "another viewer reads the whole session from the log")
        kept, heard = Heard(), Heard(list(self._heard.events))  # events go on to come
        last = {log: heard.cursors(log)[-1] for log in ("agent", "workspace")}
        async with self._client() as client:
            cursors = dict.fromkeys(last, "start")
            async with await client.subscribe(self._session, cursors=cursors) as subscription:
                try:
                    async with asyncio.timeout(PATIENCE):
                        while last:
                            event = await anext(subscription)
                            if event.log in last:
                                kept.add(event.log, event.cursor, event.body)
                                if event.cursor == last[event.log]:
                                    del last[event.log]
                except TimeoutError:
                    return [f"the log lacks what was received last: {', '.join(last)}"]
        return expectations.differences(heard, kept)

    async def _until(self, condition: Callable[[], object], what: str) -> None:
        until = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > until:
                raise Failed(f"waited {PATIENCE:g} s for {what}")
            await asyncio.sleep(0.01)
