"""Chats through the whole system: a client's remote, the gateway, the services, the scripted model."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tieline import Client, Remote, Subscription, TielineError

from tests.support.eventually import eventually
from tests.support.system import System

pytestmark = pytest.mark.timeout(60)


@contextlib.asynccontextmanager
async def chatting(system: System, user: str = "dev") -> AsyncIterator[tuple[Client, str, Subscription]]:
    """A user's client, a new thread of theirs, and its events."""
    async with Client(system.url, system.token(user)) as client:
        thread = (await client.request("thread.create", {"title": "A chat"}))["thread_id"]
        async with await client.subscribe_thread(thread) as events:
            yield client, thread, events


async def until_ended(events: Subscription, timeout: float = 40) -> list[dict[str, Any]]:
    """The events up to the end of the next run that ends."""
    heard = []
    async with asyncio.timeout(timeout):
        async for event in events:
            heard.append(event.body)
            if event.type == "run" and event.body["state"] == "ended":
                break
    return heard


def remote(*names: str) -> list[dict[str, str]]:
    return [{"kind": "system", "subkind": "remote", "content": name} for name in names]


def of(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] == kind]


async def test_a_chat_is_streamed_and_says_that_no_ai_answers(shared_system: System) -> None:
    async with chatting(shared_system) as (client, thread, events):
        await client.request("thread.message", {"thread_id": thread, "content": "hello"})
        heard = await until_ended(events)
        listed = (await client.request("thread.list", {}))["threads"]
    answer = of(heard, "message")[-1]

    assert "not an AI" in answer["content"]
    assert "".join(event["text"] for event in of(heard, "delta")) == answer["content"]
    assert of(heard, "run")[-1]["reason"] == "answer"
    assert thread in {one["thread_id"] for one in listed}
    assert shared_system.facts["model"] == "tieline-scripted-no-ai"


async def test_a_chat_uses_a_remote_of_its_user_and_of_nobody_else(shared_system: System) -> None:
    box = Remote("box")
    opened: list[str] = []

    @box.function
    def open_it(name: str) -> str:
        """Open the box.

        name: Who opens it
        """
        opened.append(name)
        return f"opened by {name}"

    async with Client(shared_system.url, shared_system.token("ann")) as ann, ann.serve(box):
        for user in ("ann", "ben"):
            async with chatting(shared_system, user) as (client, thread, events):
                content = f'call box.open_it {{"name": "{user}"}}'
                message = {"thread_id": thread, "content": content, "resources": remote("box")}
                await client.request("thread.message", message)
                heard = await until_ended(events)
                assert of(heard, "run")[-1]["reason"] == "answer"
                assert [event["result"] for event in of(heard, "tool_result")] == (
                    ["opened by ann"] if user == "ann" else []
                )

    assert opened == ["ann"]


async def test_a_chat_of_somebody_else_is_not_found(shared_system: System) -> None:
    async with (
        chatting(shared_system, "ann") as (_, thread, _),
        Client(shared_system.url, shared_system.token("ben")) as ben,
    ):
        for action, more in (
            ("thread.get", {}),
            ("thread.message", {"content": "hi"}),
            ("thread.cancel", {}),
            ("thread.rename", {"title": "mine"}),
            ("thread.delete", {}),
            ("thread.subscribe", {}),
        ):
            with pytest.raises(TielineError) as caught:
                await ben.request(action, {"thread_id": thread, **more})
            assert caught.value.code == "not_found", action


async def test_a_chat_goes_on_when_the_agent_service_and_the_remotes_service_are_killed(
    system: System,
) -> None:
    """The run that was under way ends once the service is back; the remote is registered again by itself."""
    box = Remote("box")
    came = asyncio.Event()
    calls: list[int] = []

    @box.function
    async def look(number: int) -> int:
        """Look into the box.

        number: Which one
        """
        calls.append(number)
        came.set()
        if number == 1:
            await asyncio.sleep(3600)
        return number

    async with (
        Client(system.url, system.token()) as person,
        person.serve(box),
        chatting(system) as (client, thread, events),
    ):
        message = {
            "thread_id": thread,
            "content": 'call box.look {"number": 1}',
            "resources": remote("box"),
        }
        await client.request("thread.message", message)
        await came.wait()
        os.kill(system.now()["pids"]["agent"], signal.SIGKILL)
        heard = await until_ended(events)
        killed = system.now()["pids"]["remotes"]
        os.kill(killed, signal.SIGKILL)
        await eventually(lambda: system.now()["pids"]["remotes"] != killed, timeout=30)
        await eventually(lambda: _listed(client), timeout=30)
        await client.request(
            "thread.message", {"thread_id": thread, "content": 'call box.look {"number": 2}'}, timeout=30
        )
        after = await until_ended(events)

    assert of(heard, "run")[-1]["reason"] == "answer"
    assert "interrupted" in of(heard, "tool_result")[0]["error"]
    assert of(after, "run")[-1]["reason"] == "answer"
    assert [event.get("result") for event in of(after, "tool_result")] == [2]
    assert calls == [1, 2]


async def _listed(client: Client) -> bool:
    """Whether the remotes service answers again, and the remote is there."""
    try:
        return bool((await client.request("remote-list", timeout=10))["remotes"])
    except TielineError:
        return False
