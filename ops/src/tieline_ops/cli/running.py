"""Commands that run a system on this machine: `up`, `demo`, `token`."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from tieline_ops.cli.app import RUN, USE, app
from tieline_ops.cli.codes import Exit, Problem

ORIGINS = "http://localhost:3000,http://localhost:5173"

Data = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Where everything is kept.", show_default=".data", envvar="TIELINE_DATA"
    ),
]


def _valid_port(value: int) -> int:
    if not 0 <= value <= 65_535:
        raise typer.BadParameter("0 to 65535")
    return value


def _port(help: str) -> Any:
    return typer.Option(help=help, metavar="PORT", callback=_valid_port)


def _data(ctx: typer.Context, data: Path | None) -> Path:
    return data or ctx.obj.data


def say(name: str, text: str) -> None:
    """One readable line. Nobody reading it any more is no reason to fall over."""
    with contextlib.suppress(OSError):
        sys.stdout.write(f"{time.strftime('%H:%M:%S')}  {name:<9} {text}\n")
        sys.stdout.flush()


@app.command(rich_help_panel=RUN)
def up(
    ctx: typer.Context,
    data: Data = None,
    gateway_port: Annotated[int, _port("Frontends connect here; 0: any free one.")] = 8080,
    nats_port: Annotated[int, _port("0: any free one.")] = 4222,
    agentctl_port: Annotated[int, _port("0: any free one, for its instances too.")] = 39429,
    agent: Annotated[
        str, typer.Option(metavar="COMMAND", help="An ACP agent, instead of the example agent.")
    ] = "",
    agent_env: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A variable that the agent gets; repeatable.")
    ] = None,
    workspaces: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where workspaces are.", show_default="DATA/workspaces"),
    ] = None,
    origins: Annotated[
        str,
        typer.Option(
            metavar="LIST", help="Pages that may connect (comma).", show_default="localhost:3000 and :5173"
        ),
    ] = ORIGINS,
    user: Annotated[str, typer.Option(metavar="NAME", help="Whose token is in the ready file.")] = "dev",
    ready_file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="JSON, written once all answer.")
    ] = None,
    log_level: Annotated[str, typer.Option(metavar="LEVEL", help="For the logs in DATA/logs.")] = "info",
) -> None:
    """Start NATS, the services and a local agentctl; Ctrl-C stops them."""
    from tieline_ops.files import Locked
    from tieline_ops.keeper import StartFailed
    from tieline_ops.layout import Settings
    from tieline_ops.up import until_told

    settings = Settings(
        data=_data(ctx, data).absolute(),
        gateway_port=gateway_port,
        nats_port=nats_port,
        agentctl_port=agentctl_port,
        agent=tuple(shlex.split(agent)) or None,
        agent_env=tuple(agent_env or ()),
        workspaces=workspaces.absolute() if workspaces else None,
        origins=origins,
        user=user,
        ready_file=ready_file.absolute() if ready_file else None,
        log_level=log_level,
    )
    try:
        asyncio.run(until_told(settings, say))
    except (StartFailed, Locked) as exc:
        for line in str(exc).splitlines():
            say("tieline", f"failed: {line}")
        raise typer.Exit(1) from exc


@app.command(rich_help_panel=RUN)
def demo() -> None:
    """Play the main job through, on a system of its own.

    The last line is `demo: ok` if all went as it must.
    """
    from tieline_ops import demo as story
    from tieline_ops.console import Timeline

    problems = asyncio.run(story.demo(Timeline().say))
    for problem in problems:
        typer.echo(f"demo: {problem}", err=True)
    if problems:
        typer.echo("demo: failed", err=True)
        raise typer.Exit(1)
    typer.echo("demo: ok")


@app.command(rich_help_panel=USE)
def token(
    ctx: typer.Context,
    user: Annotated[str, typer.Option(metavar="NAME", help="Who the token is for.")] = "dev",
    hours: Annotated[float, typer.Option(metavar="HOURS", help="How long it is good.")] = 720,
    data: Data = None,
) -> None:
    """Print a token for a user of a system on this machine."""
    from tieline_ops import files, tokens

    directory = _data(ctx, data)
    secret = files.secret_of_system(directory / "jwt-secret")
    if secret is None:
        raise Problem(
            f"there is no system here ({directory}): start `tieline up`, or name its --data", Exit.FAILED
        )
    typer.echo(tokens.mint(secret, user, time.time(), hours * 3600))
