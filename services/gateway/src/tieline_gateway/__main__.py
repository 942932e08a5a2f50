"""The gateway's knobs: `python -m tieline_gateway --help`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
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
    nats_url: Annotated[str, typer.Option(envvar="TIELINE_NATS_URL")] = "nats://127.0.0.1:4222",
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
    nats_user: Annotated[str | None, typer.Option(envvar="TIELINE_NATS_USER")] = None,
    nats_password: Annotated[str | None, typer.Option(envvar="TIELINE_NATS_PASSWORD")] = None,
    nats_password_file: Annotated[
        Path | None, typer.Option(envvar="TIELINE_NATS_PASSWORD_FILE", help="read at each connection")
    ] = None,
    nats_inbox_prefix: Annotated[str, typer.Option(envvar="TIELINE_NATS_INBOX_PREFIX")] = "_INBOX",
    health_host: Annotated[str, typer.Option(envvar="TIELINE_HEALTH_HOST")] = "127.0.0.1",
    health_port: Annotated[int, typer.Option(envvar="TIELINE_HEALTH_PORT", help="0: any free one")] = 0,
    ready_file: Annotated[
        Path | None, typer.Option(envvar="TIELINE_READY_FILE", help="written once ready: JSON")
    ] = None,
    log_level: Annotated[str, typer.Option(envvar="TIELINE_LOG_LEVEL")] = "info",
    log_format: Annotated[Literal["json", "text"], typer.Option(envvar="TIELINE_LOG_FORMAT")] = "json",
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
    lease_seconds: Annotated[
        int, typer.Option(envvar="TIELINE_LEASE_SECONDS", min=2, help="until a silent process counts as dead")
    ] = 8,
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
