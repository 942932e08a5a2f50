"""What a subscription hears. No connection here: see bus.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Received(NamedTuple):
    """A message. `headers` is None where there are none."""

    subject: str
    data: bytes
    reply: str = ""
    headers: Mapping[str, str] | None = None


def status(received: Received) -> str:
    """The status line that the server put into a reply's headers: "204", "404", … or ""."""
    headers: Any = received.headers
    return str(headers.get("Status", "")) if headers else ""


def nobody(received: Received) -> bool:
    """Whether the server says, in place of an answer, that nobody listens."""
    return received.headers is not None and not received.data and status(received) == "503"
