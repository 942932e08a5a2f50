"""Pure: every knob of the daemon, from Go-style flags and the environment. Nothing is opened or read here.

A flag wins over its variable. `-x v`, `-x=v`, `--x v` and `--x=v` are the same.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FLAGS = ("port", "protocol", "agent-command", "workdir", "ready-file")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


class BadConfig(Exception):
    """The daemon refuses to start; the text says why."""


@dataclass(frozen=True, slots=True)
class Config:
    port: int = 39429
    instance_port_base: int = 41001
    instance_port_max: int = 41100
    protocol: str = "acp"
    agent_command: tuple[str, ...] = ("auggie", "--acp")
    workdir: str = "/workspace"
    auto_approve: bool = False
    shell_enabled: bool = True
    shell_command: str = ""
    process_buffer: int = 2 * 1024 * 1024
    vscode_command: tuple[str, ...] = ("code-server",)
    listen_host: str = ""
    nonce: str = ""
    token: str = field(default="", repr=False)
    log_level: str = "info"
    log_format: str = "json"
    idle_timeout: float = 3600.0
    idle_interval: float = 60.0
    parent_pipe: int | None = None
    ready_file: str = ""

    @property
    def host(self) -> str:
        """Without a nonce nobody can be told apart, so only this machine may connect."""
        if self.listen_host:
            return self.listen_host
        return "0.0.0.0" if self.nonce or self.token else "127.0.0.1"


def load(argv: Sequence[str], env: Mapping[str, str], token: str) -> Config:
    """`token` is what the daemon asks for once a nonce is set, or from the start where a file holds it; reading that
    file, and chance, are the caller's.
    """
    flags = parse_flags(argv)
    startup = _startup(env.get("KANDEV_INTERNAL_AGENTCTL_STARTUP_CONFIG", ""))
    nonce = env.get("AGENTCTL_BOOTSTRAP_NONCE", "").strip()
    config = Config(
        port=_port(flags.get("port", env.get("AGENTCTL_PORT") or "39429")),
        instance_port_base=_port(env.get("AGENTCTL_INSTANCE_PORT_BASE") or "41001"),
        instance_port_max=_port(env.get("AGENTCTL_INSTANCE_PORT_MAX") or "41100"),
        protocol=flags.get("protocol", env.get("AGENTCTL_PROTOCOL") or "acp"),
        agent_command=tuple(
            flags.get("agent-command", env.get("AGENTCTL_AGENT_COMMAND") or "auggie --acp").split()
        ),
        workdir=flags.get("workdir", env.get("AGENTCTL_WORKDIR") or "/workspace"),
        auto_approve=truth(env.get("AGENTCTL_AUTO_APPROVE_PERMISSIONS", ""), False),
        shell_enabled=truth(env.get("AGENTCTL_SHELL_ENABLED", ""), True),
        shell_command=env.get("AGENTCTL_SHELL_COMMAND") or env.get("SHELL") or "",
        process_buffer=_number("AGENTCTL_PROCESS_BUFFER_MAX_BYTES", env, 2 * 1024 * 1024),
        vscode_command=tuple((env.get("AGENTCTL_VSCODE_COMMAND") or "code-server").split()),
        listen_host=env.get("AGENTCTL_LISTEN_HOST", ""),
        nonce=nonce,
        token=token if nonce or env.get("AGENTCTL_TOKEN_FILE") else "",
        log_level=(env.get("AGENTCTL_LOG_LEVEL") or env.get("KANDEV_LOG_LEVEL") or "info").lower(),
        log_format=env.get("AGENTCTL_LOG_FORMAT") or "json",
        idle_timeout=startup.get("idleTimeout", duration(env.get("KANDEV_ACP_IDLE_TIMEOUT") or "1h")),
        idle_interval=startup.get(
            "idleReaperInterval", duration(env.get("KANDEV_ACP_IDLE_REAPER_INTERVAL") or "1m")
        ),
        parent_pipe=_descriptor(env.get("KANDEV_PARENT_PIPE_FD", "")),
        ready_file=flags.get("ready-file", ""),
    )
    if config.protocol != "acp":
        raise BadConfig(f"unsupported protocol: {config.protocol}")
    if not config.agent_command:
        raise BadConfig("the agent command is empty")
    if config.instance_port_base > config.instance_port_max and config.instance_port_base != 0:
        raise BadConfig("AGENTCTL_INSTANCE_PORT_BASE is above AGENTCTL_INSTANCE_PORT_MAX")
    return config


def parse_flags(argv: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word in ("-", "--"):
            raise BadConfig(f"unexpected argument: {word}")
        name, equals, value = word.lstrip("-").partition("=")
        if name not in FLAGS:
            raise BadConfig(f"flag provided but not defined: -{name}")
        if not equals:
            if not rest:
                raise BadConfig(f"flag needs an argument: -{name}")
            value = rest.pop(0)
        found[name] = value
    return found


def duration(text: str) -> float:
    """Seconds of a Go duration such as `1h30m`, `250ms` or `0`."""
    if text == "0":
        return 0.0
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise BadConfig(f"not a duration: {text!r}")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def truth(text: str, default: bool) -> bool:
    word = text.strip().lower()
    return default if not word else word in ("1", "true", "yes", "t")


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise BadConfig(f"not a port: {text!r}")
    return int(text)


def _number(name: str, env: Mapping[str, str], default: int) -> int:
    text = env.get(name, "")
    if not text:
        return default
    if not text.isdecimal():
        raise BadConfig(f"{name} is not a number: {text!r}")
    return int(text)


def _descriptor(text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal():
        raise BadConfig(f"KANDEV_PARENT_PIPE_FD is not a file descriptor: {text!r}")
    return int(text)


def _startup(text: str) -> dict[str, float]:
    """The durations of the start-up configuration, in seconds. What cannot be read stops the start."""
    if not text:
        return {}
    try:
        found: Any = json.loads(text)
    except ValueError as exc:
        raise BadConfig("KANDEV_INTERNAL_AGENTCTL_STARTUP_CONFIG is not JSON") from exc
    if not isinstance(found, dict):
        raise BadConfig("KANDEV_INTERNAL_AGENTCTL_STARTUP_CONFIG is not an object")
    if found.get("configured") is not True:
        return {}
    values: dict[str, float] = {}
    for name in ("idleTimeout", "idleReaperInterval"):
        value = found.get(name, 0)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise BadConfig(f"KANDEV_INTERNAL_AGENTCTL_STARTUP_CONFIG: {name} is not a number of nanoseconds")
        if name in found:
            values[name] = value / 1e9
    return values
