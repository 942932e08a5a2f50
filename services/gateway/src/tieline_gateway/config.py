"""Pure: the gateway's settings. Each is a knob in `__main__.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath

from tieline_protocol import frontend
from tieline_protocol.lease import Terms


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds, each with its policy. Bytes and seconds."""

    frame_bytes: int = frontend.FRAME_BYTES  # above: close 1009
    result_bytes: int = frontend.RESULT_BYTES  # above: too_large
    in_flight: int = 128  # requests of a connection under way; above: busy
    in_flight_bytes: int = 16 * 1024 * 1024  # their bytes; above: busy
    ordered: int = 4_096  # shell inputs of a connection that wait; above: its socket is not read
    subscriptions: int = 256  # logs that a connection follows; above: too_large
    calls: int = 256  # remote calls of a connection under way, made or to be answered; above: busy
    remotes: int = 64  # remotes that a connection exposes; above: too_large
    wire: int = 64 * 1024  # bytes on their way to the kernel before lanes begin to fill
    send_buffer: int = 128 * 1024  # SO_SNDBUF: a small event waits behind no more than this
    lane: int = 1024 * 1024  # bytes that wait for a viewer per lane; above: caught up from the log
    control: int = 16 * 1024 * 1024  # bytes of answers that wait; above: closed, come back
    ring: int = 1024 * 1024  # newest bytes of a followed log kept for those who join
    burst: int = 8 * 1024 * 1024  # … for a second, for those who could not take them as fast as they came
    pending: int = 16 * 1024 * 1024  # bytes heard of a log and not yet delivered; above: read from the log
    reads: int = 4  # reads of logs at a time
    auth_seconds: float = 5
    ping_seconds: float = 20  # a socket is asked whether it lives
    pong_seconds: float = 20  # no answer for so long: it is gone
    stuck_seconds: float = 20  # nothing read for so long: closed, come back
    close_seconds: float = 4  # for the closing handshake; the three together stay below 45 s
    drain_seconds: float = 5  # SIGTERM: over which sockets are closed
    silence_seconds: float = 5  # a followed log was silent: ask for its head
    silence_most: float = 30  # … and then every so often
    patience: float = 12  # nobody there for a session that is wanted: tried again for so long


@dataclass(frozen=True, slots=True)
class Config:
    """All that the app needs to know."""

    nats_url: str
    secret: bytes
    host: str = "127.0.0.1"
    port: int = 8080
    origins: frozenset[str] = frozenset()
    allow_no_origin: bool = False
    nats_user: str | None = None
    nats_password: str | None = None
    nats_password_file: PurePath | None = None
    nats_inbox_prefix: str = "_INBOX"
    lease: Terms = field(default_factory=Terms)
    limits: Limits = field(default_factory=Limits)
