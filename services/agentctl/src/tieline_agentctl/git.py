"""Runs the real git in one repository: bounded in time and output, never asking, its process group ended whole."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tieline_agentctl import git_parse, groups

READ_TIMEOUT = 10.0
WORK_TIMEOUT = 600.0
MOST_OUTPUT = 32 * 1024 * 1024


class Busy(Exception):
    """Another operation has the repository."""


class GitFailed(Exception):
    """Git could not be asked, or did not answer in time."""


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    out: bytes
    err: bytes
    cut: bool = False  # there was more output than we keep

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def text(self) -> str:
        """Both outputs, as a person would have seen them."""
        parts = (self.out.decode("utf-8", "replace").strip(), self.err.decode("utf-8", "replace").strip())
        return "\n".join(part for part in parts if part)


class Repo:
    """`name` is the sub-directory in a workspace of several repositories; empty for the workspace itself."""

    def __init__(self, path: Path, name: str, env: Mapping[str, str]) -> None:
        self.path = path
        self.name = name
        self._env = {
            **{
                key: value
                for key, value in env.items()
                if not key.startswith("GIT_DIR") and key != "GIT_WORK_TREE"
            },
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_EDITOR": "true",
            "GIT_SEQUENCE_EDITOR": "true",
            "GIT_MERGE_AUTOEDIT": "no",
            "GIT_PAGER": "cat",
            "GIT_LITERAL_PATHSPECS": "1",
            "LC_ALL": "C.UTF-8",
        }
        self.busy = ""

    @asynccontextmanager
    async def operation(self, name: str) -> AsyncIterator[None]:
        if self.busy:
            raise Busy(self.busy)
        self.busy = name
        try:
            yield
        finally:
            self.busy = ""

    async def read(self, *args: str, stdin: bytes = b"", most: int = MOST_OUTPUT) -> Done:
        """A question: it takes no locks."""
        return await self._run(args, stdin, READ_TIMEOUT, most, {"GIT_OPTIONAL_LOCKS": "0"})

    async def work(self, *args: str, stdin: bytes = b"") -> Done:
        """Something that changes the repository."""
        return await self._run(args, stdin, WORK_TIMEOUT, MOST_OUTPUT, {})

    async def resolve(self, *refs: str) -> list[str]:
        """The commit of each, empty where there is none."""
        stdin = b"".join(os.fsencode(ref) + b"^{commit}\n" for ref in refs)
        done = await self.read("cat-file", "--batch-check", stdin=stdin)
        return git_parse.parse_batch_check(done.out) if done.ok else [""] * len(refs)

    async def _run(
        self, args: tuple[str, ...], stdin: bytes, timeout: float, most: int, extra: Mapping[str, str]
    ) -> Done:
        try:
            process = await asyncio.create_subprocess_exec(
                "git",
                "-c",
                "core.quotepath=off",
                "-c",
                "color.ui=never",
                *args,
                cwd=self.path,
                env={**self._env, **extra},
                stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as exc:
            raise GitFailed(f"git cannot be run: {exc}") from exc
        try:
            async with asyncio.timeout(timeout):
                (out, cut), (err, _), _ = await asyncio.gather(
                    _take(process.stdout, most),
                    _take(process.stderr, 1024 * 1024),
                    _give(process.stdin, stdin),
                )
                if cut:
                    groups.signal_group(process.pid, signal.SIGKILL)
                code = await process.wait()
                return Done(0 if cut else code, out, err, cut)
        except TimeoutError as exc:
            raise GitFailed(f"git {args[0]} took longer than {timeout:g} s") from exc
        finally:
            if process.returncode is None:
                groups.signal_group(process.pid, signal.SIGKILL)
                await asyncio.shield(process.wait())


async def _take(pipe: asyncio.StreamReader | None, most: int) -> tuple[bytes, bool]:
    assert pipe is not None
    parts: list[bytes] = []
    size = 0
    while data := await pipe.read(64 * 1024):
        parts.append(data)
        size += len(data)
        if size > most:
            return b"".join(parts)[:most], True
    return b"".join(parts), False


async def _give(pipe: asyncio.StreamWriter | None, data: bytes) -> None:
    if pipe is None:
        return
    try:
        pipe.write(data)
        await pipe.drain()
        pipe.close()
        await pipe.wait_closed()
    except (OSError, RuntimeError):
        # Git ended before it read everything (uvloop says so with a RuntimeError); its exit code tells why.
        pass
