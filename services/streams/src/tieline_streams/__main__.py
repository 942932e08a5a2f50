"""The knobs of the streams service: `python -m tieline_streams`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from tieline_protocol import knobs, service
from tieline_protocol.bus import BusSettings
from tieline_protocol.lease import Terms
from tieline_protocol.service import Common

from tieline_streams import app, config, turn


def main(
    executors_file: Annotated[
        Path, typer.Option(envvar="TIELINE_EXECUTORS_FILE", help="JSON: executors and agents by name")
    ],
    nats_url: knobs.NatsUrl = knobs.NATS_URL,
    nats_user: knobs.NatsUser = None,
    nats_password: knobs.NatsPassword = None,
    nats_password_file: knobs.NatsPasswordFile = None,
    declare: knobs.Declare = True,
    replicas: knobs.Replicas = 1,
    nats_inbox_prefix: knobs.NatsInboxPrefix = knobs.INBOX_PREFIX,
    health_host: knobs.HealthHost = knobs.HEALTH_HOST,
    health_port: knobs.HealthPort = 0,
    ready_file: knobs.ReadyFile = None,
    log_level: knobs.LogLevel = "info",
    log_format: knobs.LogFormat = "json",
    open_timeout: Annotated[float, typer.Option(envvar="TIELINE_OPEN_TIMEOUT", help="Seconds")] = 60,
    http_timeout: Annotated[float, typer.Option(envvar="TIELINE_HTTP_TIMEOUT", help="Seconds")] = 60,
    operation_timeout: Annotated[float, typer.Option(envvar="TIELINE_OPERATION_TIMEOUT")] = 600,
    heartbeat: Annotated[float, typer.Option(envvar="TIELINE_HEARTBEAT", help="Seconds between pings")] = 4,
    dead_after: Annotated[float, typer.Option(envvar="TIELINE_DEAD_AFTER", help="Seconds of silence")] = 9,
    lease_seconds: knobs.LeaseSeconds = knobs.LEASE_SECONDS,
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
        log_format,
    )
    service.run(common, app.make(config.Config(nats, known, limits, workspace_bytes, replicas, declare)))


if __name__ == "__main__":
    typer.run(main)
