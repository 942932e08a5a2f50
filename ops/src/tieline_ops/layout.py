"""Pure: what `tieline up` starts, and with which command lines. Where things lie in the data directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from tieline_ops.scripted_model.answers import MODEL as SCRIPTED_MODEL

EXAMPLE_AGENT = ("tieline-example-agent",)
_SHORTLY = "2"  # seconds for what is under way when the system stops: nobody takes it over


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user asked for. A port of 0 means any free one; paths are absolute."""

    data: PurePath
    gateway_port: int = 8080
    nats_port: int = 4222
    agentctl_port: int = 39429
    agent: tuple[str, ...] | None = None  # instead of the example agent
    agent_env: tuple[str, ...] = ()  # names of variables that the agent is given
    workspaces: PurePath | None = None
    origins: str = "http://localhost:3000,http://localhost:5173"
    user: str = "dev"
    ready_file: PurePath | None = None
    log_level: str = "info"

    @property
    def ports(self) -> dict[str, int]:
        """By the option that chooses each."""
        return {
            "--gateway-port": self.gateway_port,
            "--nats-port": self.nats_port,
            "--agentctl-port": self.agentctl_port,
        }

    @property
    def roots(self) -> PurePath:
        return self.workspaces or self.data / "workspaces"

    @property
    def run(self) -> PurePath:
        """Files that mean something only while the system runs."""
        return self.data / "run"

    @property
    def logs(self) -> PurePath:
        return self.data / "logs"

    @property
    def secret_file(self) -> PurePath:
        return self.data / "jwt-secret"

    @property
    def agentctl_token_file(self) -> PurePath:
        return self.run / "agentctl-token"

    @property
    def executors_file(self) -> PurePath:
        return self.run / "executors.json"

    @property
    def lifeline(self) -> PurePath:
        """A named pipe that we hold open: who reads its end learns that we are gone, however we went."""
        return self.run / "lifeline"

    @property
    def daemons(self) -> PurePath:
        """One file for each daemon that streams started."""
        return self.run / "daemons"


@dataclass(frozen=True, slots=True)
class Start:
    """One process to start."""

    command: tuple[str, ...]
    env: Mapping[str, str]


def executors(settings: Settings, python: str, agentctl_url: str) -> dict[str, Any]:
    """The executors file: `static`, the default, is our agentctl; `local` starts one for each session."""
    root = str(settings.roots)
    agents: dict[str, Any] = {}
    if settings.agent is not None:
        agents["agent"] = {"command": list(settings.agent), "env": {}, "env_from": list(settings.agent_env)}
    agents["example"] = {
        "command": list(EXAMPLE_AGENT),
        "env": {"TIELINE_EXAMPLE_AGENT_STATE": str(settings.data / "example-agent")},
        "env_from": [],
    }
    guarded = [python, "-m", "tieline_ops.lifeline", str(settings.lifeline), str(settings.daemons), "--"]
    return {
        "executors": {
            "static": {
                "kind": "static",
                "control_url": agentctl_url,
                "token_file": str(settings.agentctl_token_file),
                "root": root,
                "routes": "field",
            },
            "local": {
                "kind": "local",
                "root": root,
                "command": [*guarded, python, "-m", "tieline_agentctl"],
                "state": str(settings.run / "local"),
            },
        },
        "agents": agents,
    }


def environment(
    settings: Settings, present: Mapping[str, str], unit: str, bin_dir: str, nats_url: str = ""
) -> dict[str, str]:
    """What every process of ours is given: the knobs that all share, and where our commands are."""
    path = present.get("PATH", "/usr/bin:/bin")
    return {
        **present,
        "PATH": f"{path}:{bin_dir}",  # at the end: a workspace's own python must win
        "TIELINE_UNIT": unit,
        "TIELINE_LOG_LEVEL": settings.log_level,
        **({"TIELINE_NATS_URL": nats_url} if nats_url else {}),
    }


def nats(settings: Settings, binary: str) -> Start:
    return Start((binary, "-c", str(settings.run / "nats.conf")), {})


def agentctl(python: str, port: int, ready_file: PurePath, nonce: str, pooled: bool, parent_fd: int) -> Start:
    """Only this machine may connect. Instances get ports from the usual pool, or (not `pooled`) any free ones."""
    pool = {} if pooled else {"AGENTCTL_INSTANCE_PORT_BASE": "0", "AGENTCTL_INSTANCE_PORT_MAX": "0"}
    env = {
        "AGENTCTL_BOOTSTRAP_NONCE": nonce,
        "AGENTCTL_LISTEN_HOST": "127.0.0.1",
        "KANDEV_PARENT_PIPE_FD": str(parent_fd),
        **pool,
    }
    return Start((python, "-m", "tieline_agentctl", "-port", str(port), "-ready-file", str(ready_file)), env)


def streams(settings: Settings, python: str, ready_file: PurePath) -> Start:
    options = ("--executors-file", str(settings.executors_file), "--ready-file", str(ready_file))
    return Start((python, "-m", "tieline_streams", *options), {})


def gateway(settings: Settings, python: str, ready_file: PurePath, port: int) -> Start:
    """A command-line client sends no Origin, a browser does."""
    options = (
        *("--port", str(port)),
        *("--jwt-secret-file", str(settings.secret_file)),
        *("--origins", settings.origins),
        "--allow-no-origin",
        *("--ready-file", str(ready_file)),
    )
    return Start((python, "-m", "tieline_gateway", *options), {})


def remotes(python: str, ready_file: PurePath) -> Start:
    options = (*("--drain", _SHORTLY), *("--ready-file", str(ready_file)))
    return Start((python, "-m", "tieline_remotes", *options), {})


def is_scripted(present: Mapping[str, str]) -> bool:
    """Whether the scripted model answers: there is no key for a real one."""
    return not present.get("OPENAI_API_KEY")


def model(python: str, ready_file: PurePath, port: int) -> Start:
    """The scripted model, for people without a key."""
    options = (*("--port", str(port)), *("--ready-file", str(ready_file)))
    return Start((python, "-m", "tieline_ops.scripted_model", *options), {})


def agent(python: str, ready_file: PurePath, model_port: int | None) -> Start:
    """Which model: the scripted one at `model_port`, else the one that our own environment names."""
    scripted: tuple[str, ...] = ()
    if model_port is not None:
        scripted = ("--openai-base-url", f"http://127.0.0.1:{model_port}/v1", "--model", SCRIPTED_MODEL)
    options = (*("--drain", _SHORTLY), *("--ready-file", str(ready_file)))
    return Start((python, "-m", "tieline_agent", *scripted, *options), {})
