"""`python -m tieline_agent`: the knobs."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from tieline_protocol import knobs
from tieline_protocol.bus import BusSettings
from tieline_protocol.lease import Terms
from tieline_protocol.service import Common, run

from tieline_agent.app import make
from tieline_agent.config import NO_KEY, Config
from tieline_agent.limits import Limits
from tieline_agent.model import ModelSettings


def serve(
    openai_base_url: Annotated[
        str, typer.Option(envvar="OPENAI_BASE_URL", help="any OpenAI-compatible endpoint")
    ] = "https://api.openai.com/v1",
    model: Annotated[
        str, typer.Option(envvar="TIELINE_MODEL", help="of threads that name none")
    ] = "gpt-5-mini",
    instructions: Annotated[
        str, typer.Option(envvar="TIELINE_INSTRUCTIONS", help="of threads that have none of their own")
    ] = "",
    steps: Annotated[int, typer.Option(envvar="TIELINE_RUN_STEPS", help="answers of one run")] = 24,
    tool_calls: Annotated[int, typer.Option(envvar="TIELINE_RUN_TOOL_CALLS", help="of one run")] = 64,
    tokens: Annotated[int, typer.Option(envvar="TIELINE_RUN_TOKENS", help="of one run")] = 1_000_000,
    run_seconds: Annotated[float, typer.Option(envvar="TIELINE_RUN_SECONDS", help="of one run")] = 900,
    tool_seconds: Annotated[float, typer.Option(envvar="TIELINE_TOOL_SECONDS", help="of one call")] = 30,
    model_idle: Annotated[
        float, typer.Option(envvar="TIELINE_MODEL_IDLE_SECONDS", help="of silence that end a request")
    ] = 90,
    model_total: Annotated[
        float, typer.Option(envvar="TIELINE_MODEL_TOTAL_SECONDS", help="of one request, tries included")
    ] = 600,
    idle: Annotated[
        float, typer.Option(envvar="TIELINE_THREAD_IDLE_SECONDS", help="until a quiet thread is given up")
    ] = 60,
    drain: knobs.DrainSeconds = knobs.DRAIN_SECONDS,
    lease_seconds: knobs.LeaseSeconds = knobs.LEASE_SECONDS,
    replicas: knobs.Replicas = 1,
    nats_url: knobs.NatsUrl = knobs.NATS_URL,
    nats_user: knobs.NatsUser = None,
    nats_password: knobs.NatsPassword = None,
    nats_password_file: knobs.NatsPasswordFile = None,
    declare: knobs.Declare = True,
    nats_inbox_prefix: knobs.NatsInboxPrefix = knobs.INBOX_PREFIX,
    health_host: knobs.HealthHost = knobs.HEALTH_HOST,
    health_port: knobs.HealthPort = 0,
    ready_file: knobs.ReadyFile = None,
    log_level: knobs.LogLevel = "info",
    log_format: knobs.LogFormat = "json",
) -> None:
    """Chat threads, and the expert agent that answers them. The key stands in OPENAI_API_KEY, nowhere else."""
    config = Config(
        nats=BusSettings(
            nats_url,
            "agent",
            nats_user,
            nats_password,
            nats_inbox_prefix,
            password_file=nats_password_file,
        ),
        model=ModelSettings(
            openai_base_url,
            os.environ.get("OPENAI_API_KEY") or NO_KEY,
            model,
            idle=model_idle,
            total=model_total,
        ),
        limits=Limits(
            steps=steps,
            tool_calls=tool_calls,
            tokens=tokens,
            time_ms=int(run_seconds * 1000),
            tool_ms=int(tool_seconds * 1000),
        ),
        instructions=instructions,
        replicas=replicas,
        declare=declare,
        idle=idle,
        drain=drain,
        lease=Terms(lease_seconds),
    )
    common = Common("agent", health_host, health_port, ready_file, log_level, log_format)
    run(common, make(config))


def main() -> None:
    typer.run(serve)


if __name__ == "__main__":
    main()
