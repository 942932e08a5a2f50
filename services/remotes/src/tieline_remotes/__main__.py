"""`python -m tieline_remotes`: the knobs."""

from __future__ import annotations

from typing import Annotated

import typer
from tieline_protocol import knobs
from tieline_protocol.bus import BusSettings
from tieline_protocol.lease import Terms
from tieline_protocol.service import Common, run

from tieline_remotes.addresses import networks
from tieline_remotes.app import make
from tieline_remotes.config import Config


def serve(
    nats_url: knobs.NatsUrl = knobs.NATS_URL,
    nats_user: knobs.NatsUser = None,
    nats_password: knobs.NatsPassword = None,
    nats_password_file: knobs.NatsPasswordFile = None,
    declare: knobs.Declare = True,
    nats_inbox_prefix: knobs.NatsInboxPrefix = knobs.INBOX_PREFIX,
    replicas: knobs.Replicas = 1,
    allowed_networks: Annotated[
        str,
        typer.Option(
            envvar="TIELINE_ALLOWED_NETWORKS",
            help="networks of our own that external remotes may reach, such as 10.1.0.0/16, separated by commas",
        ),
    ] = "",
    drain: knobs.DrainSeconds = knobs.DRAIN_SECONDS,
    lease_seconds: knobs.LeaseSeconds = knobs.LEASE_SECONDS,
    health_host: knobs.HealthHost = knobs.HEALTH_HOST,
    health_port: knobs.HealthPort = 0,
    ready_file: knobs.ReadyFile = None,
    log_level: knobs.LogLevel = "info",
    log_format: knobs.LogFormat = "json",
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
    common = Common("remotes", health_host, health_port, ready_file, log_level, log_format)
    run(common, make(config))


def main() -> None:
    typer.run(serve)


if __name__ == "__main__":
    main()
