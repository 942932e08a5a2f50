"""Commands that set up the command itself: `context`, `completion`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tieline_ops.cli import completing, contexts, output
from tieline_ops.cli.app import SETUP, app
from tieline_ops.cli.codes import Exit, Problem
from tieline_ops.cli.options import As
from tieline_ops.cli.output import Format
from tieline_ops.cli.shapes import Column

Name = Annotated[str, typer.Argument(metavar="NAME", autocompletion=completing.contexts)]

_CONTEXTS = [
    Column("USED", "used"),
    Column("CONTEXT", "context"),
    Column("NATS", "nats_url"),
    Column("GATEWAY", "gateway_url"),
    Column("DATA", "data"),
    Column("NATS USER", "nats_user", wide=True),
    Column("METRICS", "metrics", wide=True),
]

group = typer.Typer(
    no_args_is_help=True,
    help="Systems by name, in one file: list, show, set, use, remove.",
    rich_markup_mode=None,
)
app.add_typer(group, name="context", rich_help_panel=SETUP)


@group.command("list")
def list_(as_: As = Format.TABLE) -> None:
    """All contexts; one is used where a command names none."""
    current, found = contexts.load()
    rows = [
        {"used": name == current, "context": name, **context.shown()}
        for name, context in sorted(found.items())
    ]
    output.rows(
        as_, _CONTEXTS, rows, f"no contexts: `tieline context set NAME` makes one in {contexts.path()}"
    )


@group.command()
def show(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", autocompletion=completing.contexts, show_default=False)
    ] = "",
    as_: As = Format.YAML,
) -> None:
    """One context, without its secrets; the used one where none is named."""
    name = name or contexts.load()[0]
    if not name:
        raise Problem("no context is used", Exit.NOT_FOUND, "`tieline context use NAME`")
    output.value(
        Format.JSON if as_ is Format.JSON else Format.YAML, {"context": name, **contexts.named(name).shown()}
    )


@group.command("set")
def set_(
    name: Name,
    nats_url: Annotated[str | None, typer.Option("--nats-url", metavar="URL")] = None,
    nats_user: Annotated[str | None, typer.Option("--nats-user", metavar="NAME")] = None,
    nats_password_file: Annotated[str | None, typer.Option("--nats-password-file", metavar="PATH")] = None,
    nats_inbox_prefix: Annotated[str | None, typer.Option("--nats-inbox-prefix", metavar="PREFIX")] = None,
    gateway_url: Annotated[str | None, typer.Option("--gateway-url", metavar="URL")] = None,
    token_file: Annotated[str | None, typer.Option("--token-file", metavar="PATH")] = None,
    metrics: Annotated[
        list[str] | None, typer.Option("--metrics", metavar="URL", help="A service's probes; repeatable.")
    ] = None,
    data: Annotated[str | None, typer.Option("--data", metavar="DIR", help="Of a `tieline up` here.")] = None,
) -> None:
    """Make a context, or change what is named of it. Passwords and tokens stay in files of their own."""
    import dataclasses

    current, found = contexts.load()
    given = {
        "nats_url": nats_url,
        "nats_user": nats_user,
        "nats_password_file": nats_password_file,
        "nats_inbox_prefix": nats_inbox_prefix,
        "gateway_url": gateway_url,
        "token_file": token_file,
        "metrics": tuple(metrics) if metrics else None,
        "data": data,
    }
    known = found.get(name, contexts.Context())
    changes: dict[str, object] = {key: value for key, value in given.items() if value is not None}
    found[name] = dataclasses.replace(known, **changes)  # type: ignore[arg-type]  # their types are those of the fields
    contexts.save(current or name, found)
    output.note(f"{name} stands in {contexts.path()}")


@group.command()
def use(name: Name) -> None:
    """Use this context where a command names none."""
    found = contexts.load()[1]
    contexts.named(name)
    contexts.save(name, found)
    output.note(f"{name} is used from now on")


@group.command()
def remove(name: Name) -> None:
    """Forget a context."""
    current, found = contexts.load()
    contexts.named(name)
    del found[name]
    contexts.save("" if current == name else current, found)
    output.note(f"{name} is gone")


class Shell(StrEnum):
    """The shells that complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command(rich_help_panel=SETUP)
def completion(shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish")]) -> None:
    """Print what makes a shell complete commands, and names of live sessions and remotes.

    bash: eval "$(tieline completion bash)"; zsh: the same; fish: tieline completion fish | source
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # it is there for this

    output.write(
        get_completion_script(prog_name="tieline", complete_var="_TIELINE_COMPLETE", shell=shell) + "\n"
    )
