"""`python -m tieline_remotes`: the knobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from tieline_protocol.bus import BusSettings
from tieline_protocol.lease import Terms
from tieline_protocol.service import Common, run

from tieline_remotes.addresses import networks
from tieline_remotes.app import make
from tieline_remotes.config import Config


def serve(
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
    nats_inbox_prefix: Annotated[str, typer.Option(envvar="TIELINE_NATS_INBOX_PREFIX")] = "_INBOX",
    replicas: Annotated[int, typer.Option(envvar="TIELINE_STREAM_REPLICAS", help="of streams")] = 1,
    allowed_networks: Annotated[
        str,
        typer.Option(
            envvar="TIELINE_ALLOWED_NETWORKS",
            help="networks of our own that external remotes may reach, such as 10.1.0.0/16, separated by commas",
        ),
    ] = "",
    drain: Annotated[float, typer.Option(envvar="TIELINE_DRAIN_SECONDS")] = 20.0,
    lease_seconds: Annotated[
        int, typer.Option(envvar="TIELINE_LEASE_SECONDS", min=2, help="until a silent process counts as dead")
    ] = 8,
    health_host: Annotated[str, typer.Option(envvar="TIELINE_HEALTH_HOST")] = "127.0.0.1",
    health_port: Annotated[int, typer.Option(envvar="TIELINE_HEALTH_PORT")] = 0,
    ready_file: Annotated[Path | None, typer.Option(envvar="TIELINE_READY_FILE")] = None,
    log_level: Annotated[str, typer.Option(envvar="TIELINE_LOG_LEVEL")] = "info",
    log_format: Annotated[str, typer.Option(envvar="TIELINE_LOG_FORMAT", help="json or text")] = "json",
) -> None:
    """Who exposes which functions, and the calls of them."""
    try:
        allowed = networks(allowed_networks)
    except ValueError as exc:
        raise typer.BadParameter(f"--allowed-networks: {exc}") from exc
    config = Config(
        bus=BusSettings(
            nats_url,
            "remotes",
            nats_user,
            nats_password,
            nats_inbox_prefix,
            password_file=nats_password_file,
        ),
        allowed=allowed,
        drain=drain,
        lease=Terms(lease_seconds),
        replicas=replicas,
        declare=declare,
    )
    common = Common(
        "remotes", health_host, health_port, ready_file, log_level, "text" if log_format == "text" else "json"
    )
    run(common, make(config))


def main() -> None:
    typer.run(serve)


if __name__ == "__main__":
    main()
