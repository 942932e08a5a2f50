"""The real daemon as a process, and one instance of it: HTTP answers and workspace frames, nothing interpreted."""

from __future__ import annotations

import asyncio
import secrets
import urllib.parse
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import psutil
from websockets.asyncio.client import ClientConnection, connect

from tests.support.process import Process

Frame = dict[str, Any]


class Daemon:
    """`async with daemon(tmp_path) as it`: started with a nonce, shaken hands with, gone afterwards."""

    def __init__(self, process: Process, token: str) -> None:
        self.process = process
        self.token = token
        self.url = str(process.facts["url"])
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.http = httpx.AsyncClient(
            base_url=self.url, headers=self.headers, timeout=20, trust_env=False, verify=False
        )

    async def __aenter__(self) -> Daemon:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.http.aclose()

    async def create(self, workspace: Path, **fields: Any) -> Instance:
        answer = await self.http.post("/api/v1/instances", json={"workspace_path": str(workspace), **fields})
        assert answer.status_code == 201, answer.text
        return Instance(self, answer.json()["id"], answer.json()["port"])

    @asynccontextmanager
    async def instance(self, workspace: Path, **fields: Any) -> AsyncIterator[Instance]:
        instance = await self.create(workspace, **fields)
        try:
            yield instance
        finally:
            await instance.http.aclose()
            await self.http.delete(f"/api/v1/instances/{instance.id}")


class Instance:
    """One instance's port: requests with token and id, and the workspace stream."""

    def __init__(self, daemon: Daemon, id: str, port: int) -> None:
        self.id = id
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.headers = {**daemon.headers, "X-Instance-ID": id}
        self.http = httpx.AsyncClient(
            base_url=self.url, headers=self.headers, timeout=20, trust_env=False, verify=False
        )

    async def get(self, url: str, **query: Any) -> httpx.Response:
        return await self.http.get(url, params=query)

    async def post(self, url: str, body: Any = None) -> httpx.Response:
        return await self.http.post(url, json={} if body is None else body)

    async def delete(self, url: str, **query: Any) -> httpx.Response:
        return await self.http.delete(url, params=query)

    async def git(self, path: str, **body: Any) -> Any:
        answer = await self.post(f"/api/v1/git/{path}", body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    @asynccontextmanager
    async def stream(self, **headers: str) -> AsyncIterator[Stream]:
        """The workspace stream, after its `connected`."""
        url = f"ws://127.0.0.1:{self.port}/api/v1/workspace/stream"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with connect(
            url,
            additional_headers={**self.headers, **named},
            max_size=None,
            compression=None,
            proxy=None,
            ping_interval=None,
        ) as socket:
            stream = Stream(socket)
            first = await stream.next()
            assert first["type"] == "connected", first
            yield stream


class Stream:
    """A workspace stream. Frames that were passed over stay in `frames`; shell output is gathered in `text`."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.frames: list[Frame] = []
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        """Everything that the shell wrote."""
        self._parts[:] = ["".join(self._parts)]
        return self._parts[0]

    async def next(self) -> Frame:
        frame: Frame = orjson.loads(await self.socket.recv())
        if frame["type"] == "shell_output":
            self._parts.append(frame["data"])
        else:
            self.frames.append(frame)
        return frame

    async def until(self, wanted: str | Callable[[Frame], object], timeout: float = 8) -> Frame:
        """The next frame of this type, or the next one that the function likes."""
        try:
            async with asyncio.timeout(timeout):
                while True:
                    frame = await self.next()
                    if frame["type"] == wanted if isinstance(wanted, str) else wanted(frame):
                        return frame
        except TimeoutError:
            seen = "\n".join(str(frame)[:200] for frame in self.frames[-20:])
            raise AssertionError(f"no such frame within {timeout:g} s; the last ones:\n{seen}") from None

    async def until_text(self, wanted: str, timeout: float = 8) -> str:
        """Everything that the shell wrote, once this is in it."""
        seen = self.text
        try:
            async with asyncio.timeout(timeout):
                while wanted not in seen:
                    frame = await self.next()
                    if frame["type"] == "shell_output":
                        seen = seen[-len(wanted) :] + frame["data"]
        except TimeoutError:
            raise AssertionError(f"{wanted!r} is not in {self.text[-2000:]!r}") from None
        return self.text

    async def send(self, type: str, **fields: Any) -> None:
        await self.socket.send(orjson.dumps({"type": type, "timestamp": 0, **fields}).decode())

    async def type(self, text: str) -> None:
        await self.send("shell_input", data=text)


def process_of(
    directory: Path,
    *,
    nonce: str | None,
    env: dict[str, str] | None = None,
    name: str = "agentctl",
    port: int = 0,
) -> Process:
    """The daemon, not started yet; instances get ports that the system chooses."""
    settings = {
        "AGENTCTL_INSTANCE_PORT_BASE": "0",
        "AGENTCTL_LISTEN_HOST": "127.0.0.1",
        "KANDEV_ACP_IDLE_TIMEOUT": "0",
        "AGENTCTL_SHELL_COMMAND": "/bin/sh",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_AUTHOR_NAME": "Test",
        "GIT_AUTHOR_EMAIL": "test@example.org",
        "GIT_COMMITTER_NAME": "Test",
        "GIT_COMMITTER_EMAIL": "test@example.org",
        "PS1": "$ ",
        **({"AGENTCTL_BOOTSTRAP_NONCE": nonce} if nonce else {}),
        **(env or {}),
    }
    return Process(
        "tieline_agentctl",
        directory,
        ["-port", str(port)],
        settings,
        name=name,
        ready_option="-ready-file",
        timeout=20,
    )


def handshake(url: str, nonce: str) -> str:
    answer = httpx.post(f"{url}/auth/handshake", json={"nonce": nonce}, trust_env=False, verify=False)
    return str(answer.json()["token"])


@asynccontextmanager
async def daemon(
    directory: Path, *, nonce: str | None = "", env: dict[str, str] | None = None, name: str = "agentctl"
) -> AsyncIterator[Daemon]:
    """A daemon of a test's own. `nonce=None` starts it without authentication."""
    nonce = secrets.token_hex(8) if nonce == "" else nonce
    async with process_of(directory, nonce=nonce, env=env, name=name) as process:
        token = await asyncio.to_thread(handshake, process.facts["url"], nonce) if nonce else ""
        async with Daemon(process, token) as it:
            yield it


@contextmanager
def shared_daemon(directory: Path) -> Iterator[tuple[Process, str]]:
    """For a fixture of module scope: the process and its token; each test makes its own `Daemon` of them."""
    nonce = secrets.token_hex(8)
    process = process_of(directory, nonce=nonce)
    try:
        asyncio.run(process.start())
        yield process, handshake(process.facts["url"], nonce)
        assert process.code is None, f"the daemon ended:\n{process.tail()}"
    finally:
        if process.code is None:
            asyncio.run(process.stop(timeout=20))


async def git(path: Path, *args: str) -> str:
    """Runs git in a test's repository."""
    process = await asyncio.create_subprocess_exec(
        "git",
        "-c",
        "user.name=Test",
        "-c",
        "user.email=test@example.org",
        "-c",
        "init.defaultBranch=main",
        "-c",
        "core.quotepath=off",
        *args,
        cwd=path,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, f"git {args}: {err.decode()}"
    return out.decode().strip()


async def repository(path: Path, files: dict[str, str] | None = None) -> Path:
    """A repository with one commit of these files, on the branch main."""
    path.mkdir(parents=True, exist_ok=True)
    await git(path, "init", "--quiet")
    for name, text in (files or {"a.txt": "one\n"}).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    await git(path, "add", "-A")
    await git(path, "commit", "--quiet", "-m", "first")
    return path


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def quoted(path: str) -> str:
    return urllib.parse.quote(path, safe="")
