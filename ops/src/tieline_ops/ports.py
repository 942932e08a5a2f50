"""Ports of this machine: a free one, and whether those that were asked for are."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping

HOST = "127.0.0.1"


def free() -> int:
    """Any port that nobody has right now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def taken(wanted: Mapping[str, int]) -> list[str]:
    """What is wrong with ports, by the option that names each; 0 is any free one."""
    return [
        f"port {port} is in use: choose another with {option} (0: any free one)"
        for option, port in wanted.items()
        if port and _in_use(port)
    ]


def _in_use(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # connections that have ended do not count
        try:
            probe.bind((HOST, port))
        except OSError as exc:
            return exc.errno == errno.EADDRINUSE
    return False
