"""Commands that say whether all is well: `check`, `doctor`, `top`."""

from __future__ import annotations

from typing import Annotated

import typer

from tieline_ops.cli import output
from tieline_ops.cli.app import CHECK, app
from tieline_ops.cli.options import As, In, place
from tieline_ops.cli.output import Format


@app.command(rich_help_panel=CHECK)
def check(
    ctx: typer.Context,
    objectives: Annotated[
        list[str] | None, typer.Argument(metavar="[OBJECTIVE…]", help="Only these.", show_default=False)
    ] = None,
    as_: As = Format.TABLE,
    context: In = "",
) -> None:
    """A line for each objective, as Nagios reads it.

    The worst is the exit code: 0 ok, 1 warning, 2 critical, 3 unknown.
    """
    from tieline_ops.cli import checking

    output.run(lambda: checking.check(lambda: place(ctx, context), objectives or [], as_))


@app.command(rich_help_panel=CHECK)
def doctor(ctx: typer.Context, as_: As = Format.TABLE, context: In = "") -> None:
    """What is wrong, and what to do about it."""
    from tieline_ops.cli import checking

    output.run(lambda: checking.doctor(lambda: place(ctx, context), as_))


@app.command(rich_help_panel=CHECK)
def top(
    ctx: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Print it once and end.")] = False,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.2, max=60, metavar="S", help="Between two looks.")
    ] = 2.0,
    as_: As = Format.TABLE,
    context: In = "",
) -> None:
    """One live screen: services, sessions, runs, streams, what is slow or stuck."""
    from tieline_ops.cli import topping

    where = place(ctx, context)
    output.run(lambda: topping.top(where, once or as_ in (Format.JSON, Format.YAML), seconds, as_))
