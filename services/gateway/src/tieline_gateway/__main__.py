"""The gateway's knobs: `python -m tieline_gateway --help`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from tieline_protocol import knobs
from tieline_protocol.lease import Terms
from tieline_protocol.service import Common, run

from tieline_gateway.access import MIN_SECRET, allowed_origins
from tieline_gateway.app import app
from tieline_gateway.config import Config, Limits

_L = Limits()


def main(
    jwt_secret_file: Annotated[
        Path, typer.Option(envvar="TIELINE_JWT_SECRET_FILE", help="HS256 secret, at least 32 bytes")
    ],
    nats_url: knobs.NatsUrl = knobs.NATS_URL,
    host: Annotated[str, typer.Option(envvar="TIELINE_GATEWAY_HOST")] = "127.0.0.1",
    port: Annotated[int, typer.Option(envvar="TIELINE_GATEWAY_PORT", help="0: any free one")] = 8080,
    origins: Annotated[
        str, typer.Option(envvar="TIELINE_ORIGINS", help="comma list of scheme://host[:port]")
    ] = "",
    allow_no_origin: Annotated[
        bool,
        typer.Option(
            "--allow-no-origin", envvar="TIELINE_ALLOW_NO_ORIGIN", help="for clients other than browsers"
        ),
    ] = False,
    nats_user: knobs.NatsUser = None,
    nats_password: knobs.NatsPassword = None,
    nats_password_file: knobs.NatsPasswordFile = None,
    nats_inbox_prefix: knobs.NatsInboxPrefix = knobs.INBOX_PREFIX,
    health_host: knobs.HealthHost = knobs.HEALTH_HOST,
    health_port: knobs.HealthPort = 0,
    ready_file: knobs.ReadyFile = None,
    log_level: knobs.LogLevel = "info",
    log_format: knobs.LogFormat = "json",
    in_flight: Annotated[int, typer.Option(envvar="TIELINE_GATEWAY_IN_FLIGHT", min=1)] = _L.in_flight,
    subscriptions: Annotated[
        int, typer.Option(envvar="TIELINE_GATEWAY_SUBSCRIPTIONS", min=1)
    ] = _L.subscriptions,
    lane_bytes: Annotated[
        int, typer.Option(envvar="TIELINE_GATEWAY_LANE_BYTES", min=1, help="that wait for a viewer, per lane")
    ] = _L.lane,
    stuck_seconds: Annotated[
        float, typer.Option(envvar="TIELINE_GATEWAY_STUCK_SECONDS", min=0.1, help="a viewer may read nothing")
    ] = _L.stuck_seconds,
    drain_seconds: Annotated[
        float, typer.Option(envvar="TIELINE_GATEWAY_DRAIN_SECONDS", min=0, help="for closing all sockets")
    ] = _L.drain_seconds,
    auth_seconds: Annotated[
        float, typer.Option(envvar="TIELINE_GATEWAY_AUTH_SECONDS", min=0.1, help="for the first frame")
    ] = _L.auth_seconds,
    lease_seconds: knobs.LeaseSeconds = knobs.LEASE_SECONDS,
) -> None:
    """Bridge frontend WebSockets into NATS."""
    try:
        secret = jwt_secret_file.read_bytes().strip()
        allowed = allowed_origins(origins)
    except (OSError, ValueError) as exc:
        raise typer.BadParameter(str(exc)) from exc
    if len(secret) < MIN_SECRET:
        raise typer.BadParameter(f"{jwt_secret_file}: a secret must have at least {MIN_SECRET} bytes")
    config = Config(
        nats_url=nats_url,
        secret=secret,
        host=host,
        port=port,
        origins=allowed,
        allow_no_origin=allow_no_origin,
        nats_user=nats_user,
        nats_password=nats_password,
        nats_password_file=nats_password_file,
        nats_inbox_prefix=nats_inbox_prefix,
        lease=Terms(lease_seconds),
        limits=Limits(
            in_flight=in_flight,
            subscriptions=subscriptions,
            lane=lane_bytes,
            stuck_seconds=stuck_seconds,
            drain_seconds=drain_seconds,
            auth_seconds=auth_seconds,
        ),
    )
    common = Common("gateway", health_host, health_port, ready_file, log_level, log_format)
    run(common, app(config))


if __name__ == "__main__":
    typer.run(main)
