"""Which system a command is about: contexts in one file, the environment, or a system of `tieline up` on this machine.

The first of these that names one counts: the options --nats-url and --gateway-url; a context named with --context (or
TIELINE_CONTEXT); the environment (TIELINE_NATS_URL, TIELINE_URL); the context chosen with `tieline context use`; the
data directory of a running system (--data, `.data`). Secrets are never among a command's arguments and never shown.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tieline_ops import broker, files
from tieline_ops.cli.codes import Exit, Problem

SECRET = ("nats_password", "token")


@dataclass(frozen=True, slots=True)
class Context:
    """Where a system is and how to log in. A secret may stand in a file of its own instead (`…_file`)."""

    nats_url: str = ""
    nats_user: str = ""
    nats_password: str = ""
    nats_password_file: str = ""
    nats_inbox_prefix: str = ""
    gateway_url: str = ""
    token: str = ""
    token_file: str = ""
    metrics: tuple[str, ...] = ()  # base URLs of services' probes
    data: str = ""  # of a system of `tieline up`: it says all of the above

    def shown(self) -> dict[str, Any]:
        """Without what nobody may see."""
        told = {item.name: getattr(self, item.name) for item in fields(self)}
        return {
            name: "***" if name in SECRET else list(value) if isinstance(value, tuple) else value
            for name, value in told.items()
            if value
        }


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the options before a command say."""

    context: str = ""
    nats_url: str = ""
    gateway_url: str = ""
    data: Path = Path(".data")


@dataclass(frozen=True, slots=True)
class Place:
    """A system, and how we know of it."""

    name: str
    found: str
    context: Context
    missing: str = ""
    secret: Path | None = field(default=None, repr=False)

    @property
    def nats_url(self) -> str:
        """Raises Problem where none is known."""
        return self._known(self.context.nats_url, "NATS", "--nats-url, TIELINE_NATS_URL")

    @property
    def gateway_url(self) -> str:
        """Raises Problem where none is known."""
        return self._known(self.context.gateway_url, "gateway", "--gateway-url, TIELINE_URL")

    @property
    def password(self) -> str | None:
        context = self.context
        return context.nats_password or (
            _read(context.nats_password_file) if context.nats_password_file else None
        )

    def token(self, user: str = "") -> str:
        """A token for the gateway. `user`: whose, where this machine has the system's own secret. Raises Problem."""
        if self.secret is not None and (user or not os.environ.get("TIELINE_TOKEN")):
            from tieline_ops import tokens

            return tokens.mint(self.secret.read_text().strip(), user or "dev", time.time())
        if user:
            raise Problem(f"a token for {user} can only be made on the machine of `tieline up`", Exit.USAGE)
        context = self.context
        token = os.environ.get("TIELINE_TOKEN") or context.token
        if not token and context.token_file:
            token = _read(context.token_file)
        if not token:
            raise Problem(
                f"no token is known for {self.found}", Exit.DENIED, "set TIELINE_TOKEN, or token_file in it"
            )
        return token

    def _known(self, url: str, what: str, how: str) -> str:
        if url:
            return url
        raise Problem(
            self.missing or f"{self.found} says nothing of a {what}",
            Exit.UNAVAILABLE if self.missing else Exit.USAGE,
            f"start one with `tieline up`, name its --data, or name the {what}: {how}, or a context",
        )


def path() -> Path:
    """The file of contexts."""
    if named := os.environ.get("TIELINE_CONTEXTS"):
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "tieline" / "contexts.json"


def load() -> tuple[str, dict[str, Context]]:
    """The name of the chosen context ("" is none), and all of them. Raises Problem for a file that is broken."""
    try:
        told = json.loads(path().read_text())
    except FileNotFoundError:
        return "", {}
    except (ValueError, OSError) as exc:
        raise Problem(f"{path()} cannot be read: {exc}", Exit.USAGE) from exc
    try:
        return str(told.get("current", "")), {name: _context(item) for name, item in told["contexts"].items()}
    except (AttributeError, KeyError, TypeError) as exc:
        raise Problem(f"{path()}: {exc!r} is wrong", Exit.USAGE) from exc


def _context(told: Mapping[str, Any]) -> Context:
    known = {item.name for item in fields(Context)}
    if unknown := told.keys() - known:
        raise TypeError(f"unknown: {', '.join(sorted(unknown))}")
    values = {name: tuple(value) if name == "metrics" else str(value) for name, value in told.items()}
    return Context(**values)  # type: ignore[arg-type]  # their types are those of the fields


def save(current: str, contexts: Mapping[str, Context]) -> None:
    """Write all contexts; nobody else may read the file."""
    path().parent.mkdir(parents=True, exist_ok=True)
    told = {
        name: {item.name: value for item in fields(Context) if (value := getattr(context, item.name))}
        for name, context in sorted(contexts.items())
    }
    files.write_whole(path(), json.dumps({"current": current, "contexts": told}, indent=2) + "\n")


def named(name: str) -> Context:
    """A context. Raises Problem (not found)."""
    contexts = load()[1]
    if name not in contexts:
        known = ", ".join(sorted(contexts)) or "none"
        raise Problem(f"there is no context {name!r}", Exit.NOT_FOUND, f"there are: {known}")
    return contexts[name]


def resolve(wanted: Wanted, context: str = "") -> Place:
    """The system that a command is about; it need not run. Raises Problem."""
    place = _resolve(wanted, context or wanted.context)
    if not (wanted.nats_url or wanted.gateway_url):
        return place
    given = replace(
        place.context,
        nats_url=wanted.nats_url or place.context.nats_url,
        gateway_url=wanted.gateway_url or place.context.gateway_url,
    )
    return replace(place, name="options", found="what the options name", context=given)


def _resolve(wanted: Wanted, context: str) -> Place:
    if context:
        return _placed(context, named(context))
    environment = Context(
        nats_url=os.environ.get("TIELINE_NATS_URL", ""),
        nats_user=os.environ.get("TIELINE_NATS_USER", ""),
        nats_password=os.environ.get("TIELINE_NATS_PASSWORD", ""),
        nats_inbox_prefix=os.environ.get("TIELINE_NATS_INBOX_PREFIX", ""),
        gateway_url=os.environ.get("TIELINE_URL", ""),
    )
    if environment.nats_url or environment.gateway_url:
        return Place("environment", "the environment", environment)
    current, contexts = load()
    if current and current in contexts:
        return _placed(current, contexts[current])
    return _local("local", wanted.data)


def _placed(name: str, context: Context) -> Place:
    if context.data:
        return _local(name, Path(context.data))
    return Place(name, f"the context {name!r}", context)


def _local(name: str, data: Path) -> Place:
    """What a system of `tieline up` writes down while it runs."""
    run = data / "run"
    ports = next(iter(run.glob("*.ports")), None)
    port = broker.port_of(_bytes(ports)) if ports is not None else None
    told = {path.stem: _facts(path) for path in sorted(run.glob("*.ready"))}
    context = Context(
        nats_url=f"nats://127.0.0.1:{port}" if port else "",
        gateway_url=str(told.get("gateway", {}).get("url", "")),
        metrics=tuple(str(facts["health_url"]) for facts in told.values() if "health_url" in facts),
        data=str(data),
    )
    secret = data / "jwt-secret"
    return Place(
        name,
        f"the system in {data}",
        context,
        "" if context.nats_url and context.gateway_url else f"no system runs here ({data})",
        secret if secret.exists() else None,
    )


def _facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _read(name: str) -> str:
    try:
        return Path(name).expanduser().read_text().strip()
    except OSError as exc:
        raise Problem(f"{name} cannot be read: {exc.strerror}", Exit.USAGE) from exc
