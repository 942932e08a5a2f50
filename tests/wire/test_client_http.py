"""Our HTTP client of agentctl, held to requests and answers that were written down from the wire's description."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from tieline_protocol import jsontext
from tieline_protocol.errors import Code, Refused, TielineError, TimedOut, Unavailable
from tieline_streams.dialling import Fatal
from tieline_streams.executors import Wanted, control
from tieline_streams.instance import Instance

from tests.support.agentctl import Agentctl, Asked


@pytest.fixture
async def daemon() -> AsyncIterator[Agentctl]:
    async with Agentctl() as scripted:
        yield scripted


@pytest.fixture
async def instance(daemon: Agentctl) -> AsyncIterator[Instance]:
    record = await control.create(
        daemon.control_url, daemon.script.token, Wanted("exec-41", Path("/srv/w/41"))
    )
    headers = {"Authorization": f"Bearer {record.token}", "X-Instance-ID": record.instance}
    found = Instance(record.url, headers, "field", 5_000_000)
    yield found
    await found.close()


async def test_an_instance_is_made_as_the_control_server_wants_it(
    instance: Instance, daemon: Agentctl
) -> None:
    asked = daemon.controlled[0]

    assert (asked.method, asked.path) == ("POST", "/api/v1/instances")
    assert asked.headers["authorization"] == f"Bearer {daemon.script.token}"
    assert asked.json == {
        "id": "exec-41",
        "workspace_path": "/srv/w/41",
        "protocol": "acp",
        "session_id": "exec-41",
    }


async def test_a_nonce_is_traded_for_the_token(daemon: Agentctl) -> None:
    daemon.script.http["POST", "/auth/handshake"] = lambda asked: (200, {"token": asked.json["nonce"] * 2})
    daemon.script.token = ""
    with pytest.raises(Fatal):
        await control.handshake(daemon.control_url, "boot-77")


async def test_deleting_what_is_gone_is_fine(instance: Instance, daemon: Agentctl) -> None:
    for _ in range(2):
        await control.delete(daemon.control_url, daemon.script.token, "exec-41")
    daemon.script.http["DELETE", "/api/v1/instances/x"] = lambda _: (204, b"")
    await control.delete(daemon.control_url, daemon.script.token, "x")

    assert daemon.instances == {}


async def test_a_control_server_that_cannot_is_said_to_be_unavailable(daemon: Agentctl) -> None:
    daemon.script.http["POST", "/api/v1/instances"] = lambda _: (500, {"error": "pool exhausted"})
    with pytest.raises(Unavailable, match="pool exhausted"):
        await control.create(daemon.control_url, daemon.script.token, Wanted("x", Path("/")))

    daemon.script.http["POST", "/api/v1/instances"] = lambda _: (201, {"id": 5})
    with pytest.raises(Refused, match="names no instance"):
        await control.create(daemon.control_url, daemon.script.token, Wanted("x", Path("/")))


async def test_deleting_a_file_puts_its_name_into_the_query(instance: Instance, daemon: Agentctl) -> None:
    daemon.script.http["DELETE", "/api/v1/workspace/file"] = lambda asked: (
        200,
        {"path": asked.query["path"]},
    )

    answer = await instance.call("workspace.file-delete", {"path": "a b/ü&x=1"}, 5)

    assert jsontext.loads(answer) == {"path": "a b/ü&x=1"}
    assert daemon.asked[-1].body == b""


async def test_vscode_starts_with_a_body_even_when_there_is_nothing_to_say(
    instance: Instance, daemon: Agentctl
) -> None:
    daemon.script.http["POST", "/api/v1/vscode/start"] = lambda asked: (
        200,
        {"success": True, "body": asked.json},
    )

    assert jsontext.loads(await instance.call("vscode.start", {}, 5)) == {"success": True, "body": {}}
    assert daemon.asked[-1].headers["content-type"] == "application/json"


async def test_an_answer_is_passed_on_byte_for_byte(instance: Instance, daemon: Agentctl) -> None:
    raw = b'{"content":"\\u00fc\\ud83d", "size" : 1e2,"path":"a"}'
    daemon.script.http["GET", "/api/v1/workspace/file/content"] = lambda _: (200, raw)

    assert await instance.call("workspace.file-content", {"path": "a"}, 5) == raw


async def test_a_file_above_10_mib_is_too_large(instance: Instance, daemon: Agentctl) -> None:
    body = {
        "request_id": "",
        "path": "a",
        "content": "",
        "size": 10_485_761,
        "error": "file too large (max 10MB)",
    }
    daemon.script.http["GET", "/api/v1/workspace/file/content"] = lambda _: (400, body)
    with pytest.raises(Refused) as refused:
        await instance.call("workspace.file-content", {"path": "a"}, 5)

    assert refused.value.code is Code.TOO_LARGE


async def test_a_wrong_instance_and_a_wrong_token_are_fatal(instance: Instance, daemon: Agentctl) -> None:
    gone = {"error": "instance no longer exists at this port", "expected_id": "exec-9", "recycled_port": True}
    for answer in ((404, gone), (401, {"error": "invalid auth token"})):
        daemon.script.http["GET", "/api/v1/git/status"] = partial(_always, answer)
        with pytest.raises(Fatal):
            await instance.call("git.status", {}, 5)


def _always(answer: tuple[int, dict], _: Asked) -> tuple[int, dict]:
    return answer


async def test_the_whole_call_has_one_time_limit(instance: Instance, daemon: Agentctl) -> None:

    async def never(_: Asked) -> tuple[int, dict]:
        await asyncio.Event().wait()
        return 200, {}

    daemon.script.http["GET", "/api/v1/git/status"] = never
    with pytest.raises(TimedOut):
        await instance.call("git.status", {}, 0.1)


async def test_a_daemon_that_is_not_there_is_unavailable() -> None:
    nobody = Instance("http://127.0.0.1:9", {}, "field", 1_000)
    try:
        with pytest.raises(Unavailable) as error:
            await nobody.call("git.status", {}, 5)
        assert type(error.value) is Unavailable  # certainly not run
        with pytest.raises(TielineError, match="not healthy"):
            await nobody.healthy(0.2)
    finally:
        await nobody.close()


async def test_reads_share_connections_and_writes_have_their_own(
    instance: Instance, daemon: Agentctl
) -> None:
    """B87: a write never meets a connection that the daemon has just closed."""
    daemon.script.http["GET", "/api/v1/git/status"] = lambda _: (200, {})
    daemon.script.http["POST", "/api/v1/git/stage"] = lambda _: (200, {})
    for _ in range(3):
        await instance.call("git.status", {}, 5)
        await instance.call("git.stage", {}, 5)

    reads = {one.connection for one in daemon.asked if one.method == "GET"}
    writes = {one.connection for one in daemon.asked if one.method == "POST"}
    assert len(reads) == 1
    assert len(writes) == 3
