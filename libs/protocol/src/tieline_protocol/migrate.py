"""`python -m tieline_protocol.migrate`: make the streams and buckets, bring them up to the limits asked for, and end.

For a system whose services may not do so themselves. Twice is as good as once. Exit code 1 where the broker refuses
a change; a broker that is away is waited for.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

import structlog
import typer

from tieline_protocol import bus, logs, streams
from tieline_protocol.bus import BusSettings
from tieline_protocol.jetstream import StreamRefused
from tieline_protocol.streams import StreamLimits

log = structlog.get_logger()
_L = StreamLimits()


def main(
    nats_url: Annotated[str, typer.Option(envvar="TIELINE_NATS_URL")] = "nats://127.0.0.1:4222",
    nats_user: Annotated[str | None, typer.Option(envvar="TIELINE_NATS_USER")] = None,
    nats_password_file: Annotated[Path | None, typer.Option(envvar="TIELINE_NATS_PASSWORD_FILE")] = None,
    nats_inbox_prefix: Annotated[str, typer.Option(envvar="TIELINE_NATS_INBOX_PREFIX")] = "_INBOX",
    log_level: Annotated[str, typer.Option(envvar="TIELINE_LOG_LEVEL")] = "info",
    log_format: Annotated[Literal["json", "text"], typer.Option(envvar="TIELINE_LOG_FORMAT")] = "json",
    replicas: Annotated[int, typer.Option(envvar="TIELINE_STREAM_REPLICAS", min=1)] = _L.replicas,
    agent_days: Annotated[float, typer.Option(envvar="TIELINE_AGENT_DAYS")] = _L.agent_days,
    agent_per_subject: Annotated[
        int, typer.Option(envvar="TIELINE_AGENT_PER_SUBJECT", help="messages of one log and type")
    ] = _L.agent_per_subject,
    agent_bytes: Annotated[
        int, typer.Option(envvar="TIELINE_AGENT_BYTES", help="-1: no limit")
    ] = _L.agent_bytes,
    workspace_days: Annotated[float, typer.Option(envvar="TIELINE_WORKSPACE_DAYS")] = _L.workspace_days,
    workspace_per_subject: Annotated[
        int, typer.Option(envvar="TIELINE_WORKSPACE_PER_SUBJECT")
    ] = _L.workspace_per_subject,
    workspace_bytes: Annotated[int, typer.Option(envvar="TIELINE_WORKSPACE_BYTES")] = _L.workspace_bytes,
) -> None:
    """Declare the JetStream objects."""
    logs.configure("migrate", log_level, log_format)
    limits = StreamLimits(
        replicas=replicas,
        agent_days=agent_days,
        agent_per_subject=agent_per_subject,
        agent_bytes=agent_bytes,
        workspace_days=workspace_days,
        workspace_per_subject=workspace_per_subject,
        workspace_bytes=workspace_bytes,
    )
    settings = BusSettings(
        nats_url, "migrate", nats_user, inbox_prefix=nats_inbox_prefix, password_file=nats_password_file
    )
    try:
        asyncio.run(_declare(settings, limits))
    except StreamRefused as exc:
        log.error("refused", error=exc.message)
        raise typer.Exit(1) from exc
    log.info("all streams and buckets are as asked for", replicas=replicas)


async def _declare(settings: BusSettings, limits: StreamLimits) -> None:
    async with bus.connect(settings) as connected:
        await streams.ensure(connected, limits)


if __name__ == "__main__":
    typer.run(main)
