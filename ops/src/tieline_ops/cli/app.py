"""The command put together: its groups, the options before a command, `--help` in sections.

Help is plain text: the one that typer draws takes twice as long to appear.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tieline_ops.cli import contexts, output

RUN, LOOK, USE, CHECK, SETUP = "Run it", "Look at it", "Use it", "Is it well?", "Set up the command"
_SECTIONS = (RUN, LOOK, USE, CHECK, SETUP)


class Sections(TyperGroup):
    """A group whose help lists its commands in sections, and whose errors end as ours do."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        found: dict[str, list[tuple[str, str]]] = {section: [] for section in _SECTIONS}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                section = str(getattr(command, "rich_help_panel", "") or SETUP)
                found.setdefault(section, []).append((name, command.get_short_help_str(78)))
        for section, rows in found.items():
            if rows:
                with formatter.section(section):
                    formatter.write_dl(rows)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except BrokenPipeError:
            raise typer.Exit(output.nobody_reads()) from None
        except Exception as exc:
            if hasattr(exc, "format_message"):  # a mistake in the command line, which typer tells itself
                raise
            raise typer.Exit(output.failed(exc)) from exc


app = typer.Typer(
    cls=Sections,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _version(wanted: bool) -> None:
    if wanted:
        import importlib.metadata

        typer.echo(f"tieline {importlib.metadata.version('tieline-ops')}")
        raise typer.Exit


@app.callback()
def tieline(
    ctx: typer.Context,
    context: Annotated[
        str,
        typer.Option(
            "-c",
            "--context",
            metavar="NAME",
            help="Which system (`tieline context`).",
            envvar="TIELINE_CONTEXT",
        ),
    ] = "",
    nats_url: Annotated[str, typer.Option("--nats-url", metavar="URL", help="Its NATS.")] = "",
    gateway_url: Annotated[
        str, typer.Option("--gateway-url", metavar="URL", help="Its gateway: ws://…/ws.")
    ] = "",
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="A system of `tieline up`.", envvar="TIELINE_DATA")
    ] = Path(".data"),
    version: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Run Tieline on this machine, look at a running system, and use it.

    Without options it is about the system of `tieline up` whose data are in ./.data.
    """
    ctx.obj = contexts.Wanted(context, nats_url, gateway_url, data)


def make() -> typer.Typer:
    """The whole command."""
    from tieline_ops.cli import events, look, running, setup, use, well  # noqa: F401  # they register their commands

    return app
