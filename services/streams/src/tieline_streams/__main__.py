"""The knobs of the streams service: `python -m tieline_streams`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from tieline_protocol import service
from tieline_protocol.bus import BusSettings
from tieline_protocol.lease import Terms
from tieline_protocol.service import Common

from tieline_streams import app, config, turn


def main(
    executors_file: Annotated[
        Path, typer.Option(envvar="TIELINE_EXECUTORS_FILE", help="JSON: executors and agents by name")
    ],
    nats_url: Annotated[str, typer.Option(envvar="TIELINE_NATS_URL")] = "nats://127.0.0.1:4222",
    nats_user: Annotated[str | None, typer.Option(envvar="TIELINE_NATS_USER")] = None,
    nats_password: Annotated[str | None, typer.Option(envvar="TIELINE_NATS_PASSWORD")] = None,
    nats_password_file: Annotated[
        Path | None, typer.Option(envvar="TIELINE_NATS_PASSWORD_FILE", help="read at each connection")
    ] = None,
    declare: Annotated[
        bool,
        typer.Option(
            "--declare/--no-declare",
            envvar="TIELINE_DECLARE_STREAMS",
            help="make streams and buckets, or wait until tieline_protocol.migrate has",
        ),
    ] = True,
    replicas: Annotated[int, typer.Option(envvar="TIELINE_STREAM_REPLICAS", help="of streams")] = 1,
    nats_inbox_prefix: Annotated[str, typer.Option(envvar="TIELINE_NATS_INBOX_PREFIX")] = "_INBOX",
    health_host: Annotated[str, typer.Option(envvar="TIELINE_HEALTH_HOST")] = "127.0.0.1",
    health_port: Annotated[int, typer.Option(envvar="TIELINE_HEALTH_PORT")] = 0,
    ready_file: Annotated[Path | None, typer.Option(envvar="TIELINE_READY_FILE")] = None,
    log_level: Annotated[str, typer.Option(envvar="TIELINE_LOG_LEVEL")] = "info",
    log_format: Annotated[str, typer.Option(envvar="TIELINE_LOG_FORMAT")] = "json",
    open_timeout: Annotated[float, typer.Option(envvar="TIELINE_OPEN_TIMEOUT", help="Seconds")] = 60,
    http_timeout: Annotated[float, typer.Option(envvar="TIELINE_HTTP_TIMEOUT", help="Seconds")] = 60,
    operation_timeout: Annotated[float, typer.Option(envvar="TIELINE_OPERATION_TIMEOUT")] = 600,
    heartbeat: Annotated[float, typer.Option(envvar="TIELINE_HEARTBEAT", help="Seconds between pings")] = 4,
    dead_after: Annotated[float, typer.Option(envvar="TIELINE_DEAD_AFTER", help="Seconds of silence")] = 9,
    lease_seconds: Annotated[
        int, typer.Option(envvar="TIELINE_LEASE_SECONDS", min=2, help="Until a silent process is replaced")
    ] = 8,
    cancel_timeout: Annotated[float, typer.Option(envvar="TIELINE_CANCEL_TIMEOUT")] = 10,
    disconnected_after: Annotated[float, typer.Option(envvar="TIELINE_DISCONNECTED_AFTER")] = 40,
    unknown_after: Annotated[float, typer.Option(envvar="TIELINE_UNKNOWN_AFTER")] = 60,
    stalled_after: Annotated[float, typer.Option(envvar="TIELINE_STALLED_AFTER")] = 300,
    silent_after: Annotated[
        float, typer.Option(envvar="TIELINE_SILENT_AFTER", help="Seconds until a silent agent is asked about")
    ] = 5,
    backlog_bytes: Annotated[int, typer.Option(envvar="TIELINE_BACKLOG_BYTES", help="For each log")] = 8
    * 1024
    * 1024,
    process_bytes: Annotated[
        int, typer.Option(envvar="TIELINE_PROCESS_BYTES", help="For all agent logs")
    ] = 256 * 1024 * 1024,
    workspace_bytes: Annotated[
        int, typer.Option(envvar="TIELINE_WORKSPACE_BYTES", help="Of workspace logs on the broker's disk")
    ] = 16 * 1024**3,
) -> None:
    """Own agentctl instances: their connections, their events, their commands."""
    try:
        known = config.load_executors(executors_file)
    except config.BadConfig as exc:
        raise typer.BadParameter(str(exc)) from exc
    if log_format not in ("json", "text"):
        raise typer.BadParameter("json or text", param_hint="--log-format")
    limits = config.Limits(
        open=open_timeout,
        http=http_timeout,
        operation=operation_timeout,
        heartbeat=heartbeat,
        dead=dead_after,
        backlog_bytes=backlog_bytes,
        process_bytes=process_bytes,
        lease=Terms(lease_seconds),
        turn=turn.Limits(
            cancel_timeout, disconnected_after, unknown_after, stalled_after, silent=silent_after
        ),
    )
    nats = BusSettings(
        nats_url, "streams", nats_user, nats_password, nats_inbox_prefix, password_file=nats_password_file
    )
    common = Common(
        "streams",
        health_host,
        health_port,
        ready_file,
        log_level,
        "json" if log_format == "json" else "text",
    )
    service.run(common, app.make(config.Config(nats, known, limits, workspace_bytes, replicas, declare)))


if __name__ == "__main__":
    typer.run(main)
