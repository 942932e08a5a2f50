"""Pure: the configuration of a NATS server as every part of the system expects it."""

from __future__ import annotations

import json

MAX_PAYLOAD = "8MB"  # an event may have 7 MiB
PING_INTERVAL = "5s"  # a client that hangs must show soon: it is gone after PING_MAX of these
PING_MAX = 2
MAX_FILE_STORE = (
    "64GB"  # said outright: the default is a share of the free disk, and our streams ask for more
)


def config(port: int, store: str, ports_dir: str, host: str = "127.0.0.1") -> str:
    """The text of a nats.conf. Port -1 means any free one; the server then writes it into `ports_dir`."""
    return (
        f"listen: {json.dumps(f'{host}:{port}')}\n"
        f"ports_file_dir: {json.dumps(ports_dir)}\n"
        f"jetstream: {{ store_dir: {json.dumps(store)}, max_file_store: {MAX_FILE_STORE} }}\n"
        f"max_payload: {MAX_PAYLOAD}\n"
        f'ping_interval: "{PING_INTERVAL}"\n'
        f"ping_max: {PING_MAX}\n"
    )


def port_of(ports_file: bytes) -> int | None:
    """The port in what the server writes; None while the file is not whole."""
    try:
        return int(json.loads(ports_file)["nats"][0].rpartition(":")[2])
    except (ValueError, KeyError, IndexError, TypeError):
        return None
