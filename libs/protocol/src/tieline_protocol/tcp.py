"""What the kernel knows of a TCP connection and no library asks it."""

from __future__ import annotations

import socket
import struct
from typing import Any

_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)  # Linux has it
_LAST_DATA = 52  # where struct tcp_info has tcpi_last_data_recv, in milliseconds (linux/tcp.h)


def quiet(transport: Any) -> float | None:
    """For how many seconds no byte has come; None where nobody knows.

    A large frame on a slow line is heard long before it is whole, and no pong can overtake it.
    """
    raw = transport.get_extra_info("socket")
    if raw is None or _TCP_INFO is None:
        return None
    try:
        info: bytes = raw.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _LAST_DATA + 4)
    except OSError:  # no TCP, or closed
        return None
    return struct.unpack_from("I", info, _LAST_DATA)[0] / 1000 if len(info) == _LAST_DATA + 4 else None
