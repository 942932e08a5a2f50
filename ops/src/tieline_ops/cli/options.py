"""Options that many commands share, and how live names complete."""

from __future__ import annotations

from typing import Annotated

import typer

from tieline_ops.cli import completing, contexts
from tieline_ops.cli.contexts import Place
from tieline_ops.cli.output import Format

As = Annotated[
    Format, typer.Option("-o", "--output", help="How to write it.", metavar="table|wide|json|yaml")
]
In = Annotated[
    str,
    typer.Option(
        "-c",
        "--context",
        metavar="NAME",
        help="Another system than usual.",
        autocompletion=completing.contexts,
    ),
]
Whose = Annotated[
    str, typer.Option("--user", metavar="NAME", help="Be this user (on the machine of `tieline up`).")
]
Session = Annotated[
    str,
    typer.Argument(
        metavar="SESSION",
        help="Its id, the beginning of it, or its title.",
        autocompletion=completing.sessions,
    ),
]


def place(ctx: typer.Context, context: str = "") -> Place:
    """The system that a command is about. Raises Problem."""
    wanted = ctx.obj if isinstance(ctx.obj, contexts.Wanted) else contexts.Wanted()
    return contexts.resolve(wanted, context)
