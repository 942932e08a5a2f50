"""The real daemon as a process, and one instance of it: HTTP answers and workspace frames, nothing interpreted."""

from __future__ import annotations

import asyncio
import secrets
import urllib.parse
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
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
        self.http = httpx.AsyncClient(base_url=self.url, headers=self.headers, timeout=20, trust_env=False)

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
        self.http = httpx.AsyncClient(base_url=self.url, headers=self.headers, timeout=20, trust_env=False)

    async def get(self, path: str, **query: Any) -> httpx.Response:
        return await self.http.get(path, params=query)

    async def post(self, path: str, body: Any = None) -> httpx.Response:
        return await self.http.post(path, json={} if body is None else body)

    async def delete(self, path: str, **query: Any) -> httpx.Response:
        return await self.http.delete(path, params=query)

    async def git(self, operation: str, **body: Any) -> Any:
        answer = await self.post(f"/api/v1/git/{operation}", body)
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
    """A workspace stream. Frames that were passed over stay in `frames`."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.frames: list[Frame] = []
        self.text = ""  # everything that the shell wrote

    async def next(self) -> Frame:
        frame: Frame = orjson.loads(await self.socket.recv())
        self.frames.append(frame)
        if frame["type"] == "shell_output":
            self.text += frame["data"]
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
        try:
            async with asyncio.timeout(timeout):
                while wanted not in self.text:
                    await self.next()
        except TimeoutError:
            raise AssertionError(f"{wanted!r} is not in {self.text[-2000:]!r}") from None
        return self.text

    async def send(self, type: str, **fields: Any) -> None:
        await self.socket.send(orjson.dumps({"type": type, "timestamp": 0, **fields}).decode())

    async def type(self, text: str) -> None:
        await self.send("shell_input", data=text)


@asynccontextmanager
async def daemon(
    directory: Path, *, nonce: str | None = "", env: dict[str, str] | None = None, name: str = "agentctl"
) -> AsyncIterator[Daemon]:
    """`nonce=None` starts it without authentication; instances get ports that the system chooses."""
    nonce = secrets.token_hex(8) if nonce == "" else nonce
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
    async with Process(
        "tieline_agentctl", directory, ["-port", "0"], settings, name=name, ready_option="-ready-file"
    ) as process:
        token = ""
        if nonce:
            async with httpx.AsyncClient(trust_env=False) as http:
                answer = await http.post(f"{process.facts['url']}/auth/handshake", json={"nonce": nonce})
                token = answer.json()["token"]
        it = Daemon(process, token)
        try:
            yield it
        finally:
            await it.http.aclose()


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


def quoted(path: str) -> str:
    return urllib.parse.quote(path, safe="")
