"""The options that the commands of several services share: their variables and what they mean, each said once.

A knob of one service only stands in that service's `__main__.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tieline_protocol.logs import Format

NATS_URL = "nats://127.0.0.1:4222"
INBOX_PREFIX = "_INBOX"
HEALTH_HOST = "127.0.0.1"
LEASE_SECONDS = 8
DRAIN_SECONDS = 20.0

NatsUrl = Annotated[str, typer.Option(envvar="TIELINE_NATS_URL")]
NatsUser = Annotated[str | None, typer.Option(envvar="TIELINE_NATS_USER")]
NatsPassword = Annotated[str | None, typer.Option(envvar="TIELINE_NATS_PASSWORD")]
NatsPasswordFile = Annotated[
    Path | None, typer.Option(envvar="TIELINE_NATS_PASSWORD_FILE", help="read at each connection")
]
NatsInboxPrefix = Annotated[str, typer.Option(envvar="TIELINE_NATS_INBOX_PREFIX")]
Declare = Annotated[
    bool,
    typer.Option(
        "--declare/--no-declare",
        envvar="TIELINE_DECLARE_STREAMS",
        help="make streams and buckets, or wait until tieline_protocol.migrate has",
    ),
]
Replicas = Annotated[int, typer.Option(envvar="TIELINE_STREAM_REPLICAS", min=1, help="of streams")]
LeaseSeconds = Annotated[
    int, typer.Option(envvar="TIELINE_LEASE_SECONDS", min=2, help="until a silent process counts as dead")
]
DrainSeconds = Annotated[float, typer.Option(envvar="TIELINE_DRAIN_SECONDS")]
HealthHost = Annotated[str, typer.Option(envvar="TIELINE_HEALTH_HOST")]
HealthPort = Annotated[int, typer.Option(envvar="TIELINE_HEALTH_PORT", help="0: any free one")]
ReadyFile = Annotated[Path | None, typer.Option(envvar="TIELINE_READY_FILE", help="written once ready: JSON")]
LogLevel = Annotated[str, typer.Option(envvar="TIELINE_LOG_LEVEL")]
LogFormat = Annotated[Format, typer.Option(envvar="TIELINE_LOG_FORMAT")]
