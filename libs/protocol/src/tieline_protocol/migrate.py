"""`python -m tieline_protocol.migrate`: make the streams and buckets, bring them up to the limits asked for, and end.

For a system whose services may not do so themselves. Twice is as good as once. Exit code 1 where the broker refuses
a change; a broker that is away is waited for.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Annotated

import structlog
import typer

from tieline_protocol import bus, jetstream, knobs, logs, streams, subjects
from tieline_protocol.bus import Bus, BusSettings
from tieline_protocol.errors import Unavailable
from tieline_protocol.jetstream import Bucket, StreamRefused
from tieline_protocol.messages import OwnerRecord
from tieline_protocol.ownership import insist
from tieline_protocol.streams import StreamLimits

log = structlog.get_logger()
_L = StreamLimits()


def main(
    nats_url: knobs.NatsUrl = knobs.NATS_URL,
    nats_user: knobs.NatsUser = None,
    nats_password_file: knobs.NatsPasswordFile = None,
    nats_inbox_prefix: knobs.NatsInboxPrefix = knobs.INBOX_PREFIX,
    log_level: knobs.LogLevel = "info",
    log_format: knobs.LogFormat = "json",
    replicas: knobs.Replicas = _L.replicas,
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
    restored: Annotated[
        bool,
        typer.Option(
            "--restored/--not-restored",
            envvar="TIELINE_RESTORED",
            help="a backup was put back, and no service runs: no position is given twice",
        ),
    ] = False,
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
        asyncio.run(_declare(settings, limits, restored))
    except StreamRefused as exc:
        log.error("refused", error=exc.message)
        raise typer.Exit(1) from exc
    log.info("all streams and buckets are as asked for", replicas=replicas)


async def _declare(settings: BusSettings, limits: StreamLimits, restored: bool) -> None:
    async with bus.connect(settings) as connected:
        await streams.ensure(connected, limits)
        if restored:
            await _renew_epochs(connected, limits)


async def _renew_epochs(connected: Bus, limits: StreamLimits) -> None:
    """Make the owners' bucket anew with what was in it: its revisions, the epochs, then rise above all that were given.

    In a store that was put back to an earlier state the epochs given since would be given again. Whoever held a log
    then is gone: each is taken by somebody else, as from an owner that died.
    """
    owners = Bucket(connected, subjects.BUCKET_OWNERS)
    kept = await insist(lambda: owners.entries("*"))
    await insist(lambda: _drop(connected, subjects.bucket_stream(owners.name)))
    await streams.ensure(connected, limits)
    for entry in kept:
        owner = OwnerRecord(holder="restored", released=OwnerRecord.decode(entry.value).released)
        await insist(functools.partial(owners.put, entry.key, owner.encode()))
    log.info("epochs begin anew above all that were given", logs=len(kept))


async def _drop(connected: Bus, stream: str) -> None:
    answer = await jetstream.api(connected, subjects.stream_api("DELETE", stream))
    error = answer.get("error", {})
    if error.get("code") == 503:  # a cluster that has no leader yet
        raise Unavailable(f"{stream}: {error.get('description', error)}")
    if error and error.get("code") != 404:
        raise StreamRefused(f"{stream}: {error.get('description', error)}")


if __name__ == "__main__":
    typer.run(main)
