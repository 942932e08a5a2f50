"""Pure: remotes, as their registry, their gateways, agents and coding agents all see them."""

from __future__ import annotations

import functools
import hashlib
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from tieline_protocol.messages import Message

CALL_TIMEOUT_MS = 30_000  # of a call that names none (seeds/remotes.md)
LONGEST_TIMEOUT_MS = 600_000
RESULT_BYTES = 5_000_000


class RemoteFunction(BaseModel):
    """A function that a remote exposes. `parameters` is a JSON Schema of type object, as OpenAI tools have it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    description: str = ""
    parameters: dict[str, Any]


class External(BaseModel):
    """Where an external remote's functions run instead of in the session."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: Literal["http", "mcp"]
    url: str
    headers: dict[str, str] = {}


class RemoteRecord(Message):
    """A registration. It belongs to one connection of one gateway.

    `registration` is an id of its own, minted by the gateway: a call that bears another one is refused there, so
    that nothing runs on functions that were replaced. `gateway` is the id of the gateway's process lease.
    """

    user: str
    remotename: str
    functions: tuple[RemoteFunction, ...]
    external: External | None = None
    gateway: str
    connection: str
    registration: str
    connected_at: int

    def listed(self, connection: str | None = None) -> dict[str, Any]:
        """The entry of `remote-list`; headers of an external remote may hold secrets and stay here."""
        return {
            "remotename": self.remotename,
            "functions": [function.model_dump() for function in self.functions],
            "connected_at": self.connected_at,
            "external": self.external.model_dump(include={"kind", "url"}) if self.external else None,
            "mine": connection is not None and connection == self.connection,
        }


@functools.lru_cache(4_096)
def name_token(remotename: str) -> str:
    """The part of a registration's key that stands for its name: any name, one token, no two alike."""
    return hashlib.sha256(remotename.encode("utf-8", "surrogatepass")).hexdigest()[:32]
