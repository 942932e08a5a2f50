"""The daemon as a process: start, handshake, instances, guard, stop. A test that stops it has its own."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import orjson
import psutil
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.support.daemon import Daemon, Instance, alive, daemon
from tests.support.eventually import eventually
from tests.support.process import Process

pytestmark = pytest.mark.timeout(20)  # the first test of a module waits for the daemon, too


async def test_its_first_line_and_its_ready_file_say_where_it_is(started: tuple[Process, str]) -> None:
    process, _ = started
    first = orjson.loads(process.log.splitlines()[0])

    assert first["event"] == "listening"
    assert {name: first[name] for name in ("pid", "port", "url")} == process.facts
    assert process.facts["pid"] == process.pid


async def test_health_needs_no_token(started: tuple[Process, str]) -> None:
    async with httpx.AsyncClient(base_url=started[0].facts["url"], trust_env=False) as http:
        for path in ("/health", "/api/v1/health"):
            answer = await http.get(path)

            assert answer.status_code == 200
            assert answer.json()["status"] == "ok"
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", answer.json()["timestamp"])


async def test_the_nonce_works_once_and_then_only_the_token_does(tmp_path: Path) -> None:
    async with daemon(tmp_path / "daemon", nonce="n-2f9c") as it:
        assert re.fullmatch("[0-9a-f]{64}", it.token)
        async with httpx.AsyncClient(base_url=it.url, trust_env=False) as http:
            for body in (b"", b"{", b"[]", b'{"nonce":""}', b'{"nonce":" "}', b'{"nonce":7}'):
                answer = await http.post("/auth/handshake", content=body)
                assert (answer.status_code, answer.json()) == (400, {"error": "missing or invalid nonce"})
            for nonce in ("n-2f9c", "other"):
                answer = await http.post("/auth/handshake", json={"nonce": nonce})
                assert answer.status_code == 403
                assert answer.json() == {"error": "invalid or already-consumed nonce"}
            assert (await http.get("/api/v1/instances")).status_code == 401
        assert (await it.http.get("/api/v1/instances")).json() == []


async def test_without_a_nonce_there_is_no_token(tmp_path: Path) -> None:
    async with daemon(tmp_path / "daemon", nonce=None) as it:
        assert (await it.http.get("/api/v1/instances")).json() == []
        assert (await it.http.post("/auth/handshake", json={"nonce": "x"})).status_code == 403


async def test_the_token_may_be_one_that_the_operator_chose(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("chosen\n")
    env = {"AGENTCTL_TOKEN_FILE": str(file), "AGENTCTL_LISTEN_HOST": "127.0.0.1"}
    async with (
        Process("tieline_agentctl", tmp_path, ["-port", "0"], env, ready_option="-ready-file") as process,
        httpx.AsyncClient(base_url=process.facts["url"], trust_env=False) as http,
    ):
        let_in = await http.get("/api/v1/instances", headers={"Authorization": "Bearer chosen"})
        assert (let_in.status_code, let_in.json()) == (200, [])
        assert (await http.get("/api/v1/instances")).status_code == 401
        assert (await http.post("/auth/handshake", json={"nonce": "x"})).status_code == 403


async def test_a_daemon_whose_token_file_is_empty_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("\n")
    env = {"AGENTCTL_TOKEN_FILE": str(file)}
    async with Process("tieline_agentctl", tmp_path, ["-port", "0"], env, ready=False) as process:
        assert await process.wait() == 2
        assert "is empty" in process.log


@pytest.mark.parametrize(
    ("header", "error"),
    [
        ({}, "missing or invalid Authorization header"),
        ({"Authorization": "Basic x"}, "missing or invalid Authorization header"),
        ({"Authorization": "Bearer x"}, "invalid auth token"),
    ],
)
async def test_a_wrong_token_is_refused_everywhere(
    started: tuple[Process, str], tmp_path: Path, header: dict[str, str], error: str
) -> None:
    async with Daemon(*started) as running, running.instance(tmp_path) as instance:
        async with httpx.AsyncClient(headers=header, trust_env=False) as http:
            for url in (
                f"{running.url}/api/v1/instances",
                f"{instance.url}/api/v1/status",
                f"{instance.url}/nope",
            ):
                answer = await http.get(url)
                assert (answer.status_code, answer.json()) == (401, {"error": error})
            assert (await http.get(f"{instance.url}/health")).status_code == 200
        for stream in ("agent", "workspace"):
            status, body = await _refused(instance, f"/api/v1/{stream}/stream", header)
            assert (status, body) == (401, {"error": error})


async def test_a_caller_that_means_another_instance_is_told(
    started: tuple[Process, str], tmp_path: Path
) -> None:
    async with Daemon(*started) as running, running.instance(tmp_path, id="exec-9") as instance:
        header = {**running.headers, "X-Instance-ID": "exec-2"}

        answer = await instance.http.get("/api/v1/status", headers=header)
        refusals = [
            await _refused(instance, f"/api/v1/{name}/stream", header) for name in ("agent", "workspace")
        ]

        assert answer.status_code == 404
        hint = answer.json().pop("port_reuse_hint")
        assert answer.json() == {
            "error": "instance no longer exists at this port",
            "expected_id": "exec-9",
            "got_id": "exec-2",
            "recycled_port": True,
            "port_reuse_hint": hint,
        }
        assert refusals == [(404, answer.json())] * 2
        assert (await instance.http.get("/api/v1/status")).status_code == 200


async def test_an_instance_is_listed_told_and_deleted(started: tuple[Process, str], tmp_path: Path) -> None:
    async with Daemon(*started) as running:
        instance = await running.create(tmp_path, id="exec-41", env={"DEMO": "1"}, agent_command="agent --x")
        told = (await running.http.get("/api/v1/instances/exec-41")).json()

        created = told.pop("created_at")
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", created)
        assert told == {
            "id": "exec-41",
            "port": instance.port,
            "status": "running",
            "workspace_path": str(tmp_path),
            "agent_command": "agent --x",
            "env": {"DEMO": "1"},
        }
        assert [one["id"] for one in (await running.http.get("/api/v1/instances")).json()] == ["exec-41"]

        gone = await running.http.delete("/api/v1/instances/exec-41")
        assert (gone.status_code, gone.json()) == (200, {"message": "instance stopped successfully"})
        for method in ("GET", "DELETE"):
            again = await running.http.request(method, "/api/v1/instances/exec-41")
            assert (again.status_code, again.json()) == (404, {"error": "instance not found"})
        with pytest.raises(httpx.ConnectError):
            await instance.http.get("/health")
        await instance.http.aclose()


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b"", 400, "invalid request body: EOF"),
        (b"{", 400, "invalid request body: "),
        (b"[]", 400, "invalid request body: "),
        (b"{}", 400, "workspace_path is required"),
        (b'{"workspace_path":7}', 400, "invalid request body: "),
        (b'{"workspace_path":"relative"}', 500, "failed to create instance: "),
        (b'{"workspace_path":"/no/such/place"}', 500, "failed to create instance: "),
        (b'{"workspace_path":"/","protocol":"tcp"}', 500, "failed to create instance: "),
    ],
)
async def test_an_instance_that_cannot_be_is_not_created(
    started: tuple[Process, str], body: bytes, status: int, error: str
) -> None:
    async with Daemon(*started) as running:
        answer = await running.http.post("/api/v1/instances", content=body)

        assert answer.status_code == status
        assert answer.json()["error"].startswith(error)


async def test_two_instances_do_not_share_an_id(started: tuple[Process, str], tmp_path: Path) -> None:
    async with Daemon(*started) as running, running.instance(tmp_path, id="same"):
        again = await running.http.post(
            "/api/v1/instances", json={"workspace_path": str(tmp_path), "id": "same"}
        )

        assert again.status_code == 500
        assert "already exists" in again.json()["error"]


async def test_null_fields_are_as_good_as_absent(started: tuple[Process, str], tmp_path: Path) -> None:
    """B28: an empty Go map or list arrives as null."""
    nulls: dict[str, Any] = dict.fromkeys(("env", "mcp_servers", "strip_env", "base_branches", "session_id"))

    async with Daemon(*started) as running, running.instance(tmp_path, **nulls) as instance:
        assert (await instance.get("/api/v1/status")).json()["agent_status"] == "stopped"


async def test_a_deleted_instance_closes_its_streams(started: tuple[Process, str], tmp_path: Path) -> None:
    async with Daemon(*started) as running:
        instance = await running.create(tmp_path)
        agent = f"ws://127.0.0.1:{instance.port}/api/v1/agent/stream"
        async with (
            instance.stream() as workspace,
            connect(agent, additional_headers=instance.headers) as socket,
        ):
            await running.http.delete(f"/api/v1/instances/{instance.id}")

            with pytest.raises(ConnectionClosed):
                await socket.recv()
            with pytest.raises(ConnectionClosed):
                await workspace.until("never")
        await instance.http.aclose()


async def test_ports_come_from_the_pool_lowest_first_and_come_back(tmp_path: Path) -> None:
    base = _free_range(3)
    env = {"AGENTCTL_INSTANCE_PORT_BASE": str(base), "AGENTCTL_INSTANCE_PORT_MAX": str(base + 2)}
    with _occupied(base):
        async with daemon(tmp_path / "daemon", env=env) as it:
            async with it.instance(tmp_path) as first, it.instance(tmp_path) as second:
                assert [first.port, second.port] == [base + 1, base + 2]
                full = await it.http.post("/api/v1/instances", json={"workspace_path": str(tmp_path)})
                assert full.status_code == 500
                assert "no port left" in full.json()["error"]
            async with it.instance(tmp_path) as third:
                assert third.port == base + 1


async def test_an_idle_instance_is_deleted_and_an_open_stream_keeps_it(tmp_path: Path) -> None:
    env = {"KANDEV_ACP_IDLE_TIMEOUT": "300ms", "KANDEV_ACP_IDLE_REAPER_INTERVAL": "50ms"}
    async with daemon(tmp_path / "daemon", env=env) as it:
        idle = await it.create(tmp_path, id="idle")
        used = await it.create(tmp_path, id="used")
        async with used.stream():

            async def ids() -> Any:
                listed = (await it.http.get("/api/v1/instances")).json()
                return [one["id"] for one in listed] == ["used"]

            await eventually(ids)
        await idle.http.aclose()
        await used.http.aclose()


async def test_sigterm_stops_everything_and_leaves_nobody_behind(tmp_path: Path) -> None:
    async with daemon(tmp_path / "daemon") as it:
        instance = await it.create(tmp_path)
        await instance.post("/api/v1/shell/start")
        started = await instance.post(
            "/api/v1/processes/start",
            {"session_id": "s", "kind": "dev", "command": "trap '' TERM INT; sleep 1000 & wait; sleep 1000"},
        )
        assert started.status_code == 200, started.text
        agent = [sys.executable, "-m", "tieline_agentctl.example_agent"]
        await instance.post("/api/v1/agent/configure", {"command": "agent", "agent_args": agent})
        assert (await instance.post("/api/v1/start")).json()["success"] is True
        async with instance.stream() as stream:
            await stream.type("sleep 1000 & sleep 1000\r")
            sleepers: Any = await eventually(
                lambda: len(found := _descendants(it.process.pid)) >= 6 and found
            )

            it.process.signal(signal.SIGTERM)
            assert await it.process.wait(25) == 0

        assert [pid for pid in sleepers if alive(pid)] == []
        await instance.http.aclose()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_ends_with_code_0(tmp_path: Path, number: signal.Signals) -> None:
    async with daemon(tmp_path / "daemon") as it:
        it.process.signal(number)

        assert await it.process.wait() == 0


async def test_it_ends_with_its_parents_pipe(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with subprocess.Popen(  # noqa: ASYNC220  (the test needs pass_fds before anything else runs)
        [sys.executable, "-m", "tieline_agentctl", "-port=0", "-ready-file", str(tmp_path / "ready")],
        env={**os.environ, "KANDEV_PARENT_PIPE_FD": str(reading), "AGENTCTL_LISTEN_HOST": "127.0.0.1"},
        pass_fds=[reading],
        stdout=subprocess.DEVNULL,
    ) as process:
        try:
            os.close(reading)
            await eventually((tmp_path / "ready").exists, timeout=15)
            assert process.poll() is None

            os.close(writing)

            assert await eventually(lambda: process.poll() is not None, timeout=10)
            assert process.returncode == 0
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("args", "env"), [(["-nope"], {}), (["-port", "x"], {}), ([], {"KANDEV_ACP_IDLE_TIMEOUT": "soon"})]
)
def test_bad_settings_end_it_at_once_with_a_reason(args: list[str], env: dict[str, str]) -> None:
    command = [sys.executable, "-m", "tieline_agentctl", *args]
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, check=False, timeout=9)

    assert done.returncode == 2
    assert done.stderr.startswith(b"tieline-agentctl: ")


async def test_a_port_that_is_taken_ends_it_with_a_reason(
    started: tuple[Process, str], tmp_path: Path
) -> None:
    args = ["-port", str(started[0].facts["port"])]
    env = {"AGENTCTL_LISTEN_HOST": "127.0.0.1"}
    process = Process(
        "tieline_agentctl", tmp_path, args, env, name="second", ready=False, ready_option="-ready-file"
    )
    async with process:
        assert await process.wait() == 1
        assert "cannot start" in process.log


async def test_the_agent_is_configured_started_and_stopped(
    started: tuple[Process, str], tmp_path: Path
) -> None:
    agent = [sys.executable, "-m", "tieline_agentctl.example_agent"]
    async with Daemon(*started) as running, running.instance(tmp_path) as instance:
        configured = await instance.post("/api/v1/configure", {"command": "agent", "agent_args": agent})
        assert configured.json() == {"success": True, "message": "agent configured"}

        first = await instance.post("/api/v1/start")
        assert first.json()["message"] == "agent started"
        status = (await instance.get("/api/v1/status")).json()
        assert (status["agent_status"], status["process_info"]["exit_code"]) == ("running", -1)
        again = await instance.post("/api/v1/start")
        assert (again.status_code, again.json()) == (
            500,
            {"success": False, "error": "agent is already running"},
        )
        busy = await instance.post("/api/v1/agent/configure", {"command": "agent"})
        assert busy.status_code == 500
        assert busy.json()["error"] == "cannot configure while agent is running"

        for _ in range(2):
            stopped = await instance.post("/api/v1/stop", {"force": True})
            assert stopped.json() == {"success": True, "message": "agent stopped"}
        assert not alive(status["process_info"]["pid"])
        assert (await instance.get("/api/v1/shell/status")).json()["available"] is False
        assert (await instance.post("/api/v1/start")).json()["success"] is True
        assert (await instance.get("/api/v1/shell/status")).json()["available"] is True


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b"", 400, "invalid request: EOF"),
        (b"{}", 400, "command is required"),
        (b'{"command":" "}', 400, "command is required"),
        (b'{"command":"a","agent_args":"a"}', 400, "invalid request"),
        (b'{"command":"a","agent_args":null}', 500, ""),
        (b'{"command":"a","agent_args":[]}', 500, ""),
        (b'{"command":"a","agent_args":["-x"]}', 500, ""),
    ],
)
async def test_a_configuration_that_names_no_program_is_refused(
    started: tuple[Process, str], tmp_path: Path, body: bytes, status: int, error: str
) -> None:
    async with Daemon(*started) as running, running.instance(tmp_path) as instance:
        answer = await instance.http.post("/api/v1/agent/configure", content=body)

        assert (answer.status_code, answer.json()["success"]) == (status, False)
        assert answer.json()["error"].startswith(error)


async def test_an_agent_that_does_not_exist_does_not_start(
    started: tuple[Process, str], tmp_path: Path
) -> None:
    async with Daemon(*started) as running, running.instance(tmp_path) as instance:
        await instance.post("/api/v1/configure", {"command": "no-such-agent-here"})

        answer = await instance.post("/api/v1/start")

        assert (answer.status_code, answer.json()["success"]) == (500, False)


async def test_our_own_variables_never_reach_children(started: tuple[Process, str], tmp_path: Path) -> None:
    env = {"SEEN": "yes", "HIDDEN": "no"}
    start = {"session_id": "s", "kind": "custom", "command": "env", "env": {"HIDDEN": "later"}}
    async with (
        Daemon(*started) as running,
        running.instance(tmp_path, env=env, strip_env=["GIT_AUTHOR_NAME"]) as instance,
        instance.stream() as stream,
    ):
        await instance.post("/api/v1/processes/start", start)
        await stream.until(lambda frame: frame.get("process_status", {}).get("status") == "exited")
        outputs = [frame["process_output"]["data"] for frame in stream.frames if "process_output" in frame]

    lines = "".join(outputs).splitlines()
    assert {"SEEN=yes", "HIDDEN=later"} <= set(lines)
    assert [line for line in lines if line.startswith(("AGENTCTL_", "npm_", "GIT_AUTHOR_NAME="))] == []


async def _refused(instance: Instance, path: str, headers: dict[str, str]) -> tuple[int, Any]:
    with pytest.raises(InvalidStatus) as refused:
        async with connect(f"ws://127.0.0.1:{instance.port}{path}", additional_headers=headers, proxy=None):
            pass
    response = refused.value.response
    return response.status_code, orjson.loads(response.body or b"null")


def _descendants(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def _free_range(count: int) -> int:
    """Neighbouring ports that are free now; only this test uses them."""
    for base in range(20_000 + os.getpid() % 10_000, 60_000, count):
        sockets = [socket.socket() for _ in range(count)]
        try:
            for offset, sock in enumerate(sockets):
                sock.bind(("127.0.0.1", base + offset))
            return base
        except OSError:
            continue
        finally:
            for sock in sockets:
                sock.close()
    raise AssertionError("no free ports")


def _occupied(port: int) -> Any:
    sock = socket.socket()
    sock.bind(("127.0.0.1", port))
    sock.listen()
    return sock


async def test_the_end_of_an_agent_is_logged_without_secrets(tmp_path: Path) -> None:
    script = "import sys; print('password=hunter2-and-more', file=sys.stderr); sys.exit('no API key')"
    agent = {"command": "python3", "agent_args": ["python3", "-c", script]}
    (tmp_path / "work").mkdir()
    async with daemon(tmp_path) as running, running.instance(tmp_path / "work") as it:
        await it.post("/api/v1/agent/configure", agent)
        await it.post("/api/v1/start")
        await eventually(lambda: "the agent ended" in running.process.log)

    assert "no API key" in running.process.log
    assert "hunter2" not in running.process.log
