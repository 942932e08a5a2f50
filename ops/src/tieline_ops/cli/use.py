"""Commands that use a system as a frontend does: open, prompt, shell, call, chat, serve."""

from __future__ import annotations

from typing import Annotated

import typer

from tieline_ops.cli import completing, output
from tieline_ops.cli.app import USE, app
from tieline_ops.cli.options import As, In, Session, Whose, place
from tieline_ops.cli.output import Format


@app.command("open", rich_help_panel=USE)
def open_(
    ctx: typer.Context,
    workspace: Annotated[
        str,
        typer.Argument(metavar="[WORKSPACE]", help="A folder under the executor's root.", show_default=False),
    ] = "",
    title: Annotated[str, typer.Option("--title", metavar="TEXT")] = "",
    executor: Annotated[str, typer.Option("--executor", metavar="NAME", help="One of the operator's.")] = "",
    agent: Annotated[str, typer.Option("--agent", metavar="NAME", help="One of the operator's.")] = "",
    remote: Annotated[
        list[str] | None,
        typer.Option(
            "--remote",
            metavar="NAME",
            help="Its functions become tools; repeatable.",
            autocompletion=completing.remotes,
        ),
    ] = None,
    user: Whose = "",
    as_: As = Format.TABLE,
    context: In = "",
) -> None:
    """Open a coding session and print its id, once it is ready."""
    from tieline_ops.cli import using

    given = {"workspace": workspace, "title": title, "executor": executor, "agent": agent, "remotes": remote}
    where = place(ctx, context)
    output.run(
        lambda: using.open_session(where, user, {name: value for name, value in given.items() if value}, as_)
    )


@app.command(rich_help_panel=USE)
def close(ctx: typer.Context, session: Session, user: Whose = "", context: In = "") -> None:
    """Close a session: its agent, shell and processes end."""
    from tieline_ops.cli import using

    where = place(ctx, context)
    output.run(lambda: using.close_session(where, user, session))


@app.command(rich_help_panel=USE)
def prompt(
    ctx: typer.Context,
    session: Session,
    text: Annotated[
        list[str], typer.Argument(metavar="TEXT…", help="`-`: what is read from standard input.")
    ],
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Show the answer until the turn ends.")
    ] = True,
    allow: Annotated[
        bool, typer.Option("--allow", help="Say yes to whatever the agent asks permission for.")
    ] = False,
    queue: Annotated[bool, typer.Option("--queue", help="While a turn runs, be the next one.")] = False,
    user: Whose = "",
    context: In = "",
) -> None:
    """Prompt a session's agent and show its answer. Permissions are asked for on a terminal."""
    from tieline_ops.cli import prompting

    where = place(ctx, context)
    output.run(lambda: prompting.prompt(where, user, session, text, wait=wait, allow=allow, queue=queue))


@app.command(rich_help_panel=USE)
def shell(
    ctx: typer.Context,
    session: Session,
    detach: Annotated[
        str, typer.Option("--detach", metavar="KEY", help="Which key leaves: `^]`, `^a`, …")
    ] = "^]",
    user: Whose = "",
    context: In = "",
) -> None:
    """Attach this terminal to a session's shell; Ctrl-] detaches, the shell goes on."""
    from tieline_ops.cli import attached

    where = place(ctx, context)
    output.run(lambda: attached.attach(where, user, session, detach))


@app.command(rich_help_panel=USE)
def call(
    ctx: typer.Context,
    remote: Annotated[str, typer.Argument(metavar="REMOTE", autocompletion=completing.remotes)],
    function: Annotated[str, typer.Argument(metavar="FUNCTION", autocompletion=completing.functions)],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE…]", help="key=text, or key:=JSON.", show_default=False),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.001, metavar="S", help="Seconds.")] = 30.0,
    user: Whose = "",
    as_: As = Format.TABLE,
    context: In = "",
) -> None:
    """Call a function of a remote and print what it gives."""
    from tieline_ops.cli import using

    where = place(ctx, context)
    output.run(lambda: using.call(where, user, remote, function, arguments or [], timeout, as_))


@app.command(rich_help_panel=USE)
def chat(
    ctx: typer.Context,
    message: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MESSAGE…]", help="One question; else a conversation.", show_default=False),
    ] = None,
    thread: Annotated[str, typer.Option("--thread", metavar="THREAD", help="Go on with this one.")] = "",
    remote: Annotated[
        list[str] | None,
        typer.Option(
            "--remote",
            metavar="NAME",
            help="Its functions become tools; repeatable.",
            autocompletion=completing.remotes,
        ),
    ] = None,
    model: Annotated[str, typer.Option("--model", metavar="NAME")] = "",
    user: Whose = "",
    context: In = "",
) -> None:
    """Chat with the expert agent; Ctrl-C cancels an answer, Ctrl-D ends."""
    from tieline_ops.cli import chatting

    where = place(ctx, context)
    text = " ".join(message or [])
    output.run(lambda: chatting.chat(where, user, text, thread, remote or [], model))


@app.command(rich_help_panel=USE)
def serve(
    ctx: typer.Context,
    module: Annotated[
        str,
        typer.Argument(
            metavar="MODULE[:NAMES]", help="my.module, my.module:one,two, or the name of a Remote in it."
        ),
    ],
    name: Annotated[str, typer.Option("--name", metavar="REMOTE", help="Instead of the module's.")] = "",
    user: Whose = "",
    context: In = "",
) -> None:
    """Expose a Python module's functions as a remote, until Ctrl-C."""
    from tieline_ops.cli import serving

    where = place(ctx, context)
    output.run(lambda: serving.serve(where, user, module, name))
