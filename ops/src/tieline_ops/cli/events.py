"""Commands about events: `tail`, `history`, `replay`, `trace`."""

from __future__ import annotations

from typing import Annotated

import typer

from tieline_ops.cli import completing, output
from tieline_ops.cli.app import LOOK, app
from tieline_ops.cli.lines import As as EventsAs
from tieline_ops.cli.options import As, In, Session, place
from tieline_ops.cli.output import Format

Log = Annotated[str, typer.Option("--log", metavar="agent|workspace|thread", help="Only this log.")]
Type = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="TYPE", help="Only this type of event, also a glob; repeatable."),
]
Grep = Annotated[
    str,
    typer.Option("--grep", metavar="REGEX", help="Only events whose JSON has this; small letters find both."),
]
Since = Annotated[str, typer.Option("--since", metavar="AGE", help="From so long ago on: 90s, 5m, 2h.")]
EventsAs_ = Annotated[
    EventsAs, typer.Option("-o", "--output", metavar="line|wide|raw|json|ndjson", help="How to write events.")
]


@app.command(rich_help_panel=LOOK)
def tail(
    ctx: typer.Context,
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="[PATTERN]", help="Subjects: USER.ID.LOG.TYPE with * and >.", show_default=False
        ),
    ] = "",
    session: Annotated[
        str,
        typer.Option(
            "--session",
            "-s",
            metavar="SESSION",
            help="Only this one; a thread's id too.",
            autocompletion=completing.sessions,
        ),
    ] = "",
    user: Annotated[str, typer.Option("--user", metavar="NAME", help="Only this user's.")] = "",
    log: Log = "",
    type: Type = None,
    since: Since = "",
    grep: Grep = "",
    count: Annotated[int, typer.Option("--count", "-n", min=0, metavar="N", help="End after so many.")] = 0,
    as_: EventsAs_ = EventsAs.LINE,
    context: In = "",
) -> None:
    """Events as they happen, a line each. Listens to events only, never to requests."""
    from tieline_ops.cli import following, patterns

    wanted = patterns.Filter(pattern, user, session, log, tuple(type or ()), patterns.expression(grep))
    age = patterns.seconds(since) if since else 0.0
    where = place(ctx, context)
    output.run(lambda: following.tail(where, wanted, age, count, as_))


@app.command(rich_help_panel=LOOK)
def history(
    ctx: typer.Context,
    session: Session,
    log: Log = "",
    type: Type = None,
    since: Since = "",
    grep: Grep = "",
    last: Annotated[int, typer.Option("--last", "-n", min=0, metavar="N", help="Only the newest N.")] = 0,
    as_: EventsAs_ = EventsAs.LINE,
    context: In = "",
) -> None:
    """What the logs of a session (or a thread) keep: each event once, in order, and what is missing."""
    from tieline_ops.cli import following, patterns

    wanted = patterns.Filter("", "", session, log, tuple(type or ()), patterns.expression(grep))
    age = patterns.seconds(since) if since else 0.0
    where = place(ctx, context)
    output.run(lambda: following.history(where, wanted, age, last, as_))


@app.command(rich_help_panel=LOOK)
def replay(
    ctx: typer.Context,
    session: Session,
    speed: Annotated[
        float, typer.Option("--speed", min=0.01, metavar="X", help="So many times as fast.")
    ] = 1.0,
    most: Annotated[
        float,
        typer.Option("--max-wait", min=0, metavar="S", help="Longest wait between two events, in seconds."),
    ] = 3.0,
    log: Log = "",
    type: Type = None,
    since: Since = "",
    as_: EventsAs_ = EventsAs.LINE,
    context: In = "",
) -> None:
    """Show a session's past again, with the pauses that it had. Changes nothing, sends nothing."""
    from tieline_ops.cli import following, patterns

    wanted = patterns.Filter("", "", session, log, tuple(type or ()))
    age = patterns.seconds(since) if since else 0.0
    where = place(ctx, context)
    output.run(lambda: following.replay(where, wanted, age, speed, most, as_))


@app.command(rich_help_panel=LOOK)
def trace(
    ctx: typer.Context,
    id: Annotated[
        str,
        typer.Argument(
            metavar="SESSION|RUN", help="A session, a thread or a run.", autocompletion=completing.sessions
        ),
    ],
    last: Annotated[
        int, typer.Option("--last", "-n", min=0, metavar="N", help="Only the newest N turns or runs.")
    ] = 0,
    as_: As = Format.TABLE,
    context: In = "",
) -> None:
    """Where the time of each turn or run went: models, tools, permissions."""
    from tieline_ops.cli import following

    where = place(ctx, context)
    output.run(lambda: following.trace(where, id, last, as_))
