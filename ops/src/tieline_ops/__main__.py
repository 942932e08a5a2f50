"""The `tieline` command. What it does stands in tieline_ops.cli, a module for each group of commands."""

from __future__ import annotations

import os

from typer.completion import completion_init  # type: ignore[attr-defined]  # its name for who completes without options

from tieline_ops.cli.app import make

app = make()


def main() -> None:
    if "_TIELINE_COMPLETE" in os.environ:
        completion_init()
    app(prog_name="tieline")


if __name__ == "__main__":
    main()
