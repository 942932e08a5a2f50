"""The `tieline` command: its sub-commands and their options. Work is done elsewhere, imported when it is needed."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Run Tieline on this machine, and use it.")

Data = Annotated[Path, typer.Option(help="Where everything is kept.", envvar="TIELINE_DATA")]


def say(name: str, text: str) -> None:
    """One readable line. Nobody reading it any more is no reason to fall over."""
    with contextlib.suppress(OSError):
        sys.stdout.write(f"{time.strftime('%H:%M:%S')}  {name:<9} {text}\n")
        sys.stdout.flush()


@app.command()
def up(
    data: Data = Path(".data"),
    gateway_port: Annotated[int, typer.Option(help="0 = any free one.")] = 8080,
    nats_port: Annotated[int, typer.Option(help="0 = any free one.")] = 4222,
    agentctl_port: Annotated[int, typer.Option(help="0 = any free one, for its instances too.")] = 39429,
    agent: Annotated[str, typer.Option(help="Another ACP agent: its command and arguments.")] = "",
    agent_env: Annotated[list[str] | None, typer.Option(help="A variable that the agent may see.")] = None,
    workspaces: Annotated[Path | None, typer.Option(help="Where workspaces are (DATA/workspaces).")] = None,
    origins: Annotated[
        str, typer.Option(help="Pages that may connect, separated by commas.")
    ] = "http://localhost:3000,http://localhost:5173",
    user: Annotated[str, typer.Option(help="Whose token stands in the ready file.")] = "dev",
    ready_file: Annotated[Path | None, typer.Option(help="JSON, written once everything answers.")] = None,
    log_level: Annotated[str, typer.Option(help="For the logs in DATA/logs.")] = "info",
) -> None:
    """Start NATS, the services and a local agentctl; Ctrl-C stops them."""
    from tieline_ops.files import Locked
    from tieline_ops.keeper import StartFailed
    from tieline_ops.layout import Settings
    from tieline_ops.up import until_told

    settings = Settings(
        data=data.absolute(),
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
        say("tieline", f"failed: {exc}")
        raise typer.Exit(1) from exc


@app.command()
def demo() -> None:
    """Play the main job through, on a system of its own; the last line is `demo: ok` if all went as it must."""
    from tieline_ops import demo as story
    from tieline_ops.console import Timeline

    problems = asyncio.run(story.demo(Timeline().say))
    for problem in problems:
        typer.echo(f"demo: {problem}", err=True)
    if problems:
        typer.echo("demo: failed", err=True)
        raise typer.Exit(1)
    typer.echo("demo: ok")


@app.command()
def token(
    user: Annotated[str, typer.Option(help="Who the token is for.")] = "dev",
    hours: Annotated[float, typer.Option(help="How long it is good.")] = 720,
    data: Data = Path(".data"),
) -> None:
    """Print a token for a user of the system whose data directory this is."""
    from tieline_ops import files, tokens

    typer.echo(tokens.mint(files.secret(data / "jwt-secret"), user, time.time(), hours * 3600))


def main() -> None:
    app()


if __name__ == "__main__":
    main()
