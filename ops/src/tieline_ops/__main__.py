"""The `tieline` command. What it does stands in tieline_ops.cli, a module for each group of commands."""

from __future__ import annotations

from tieline_ops.cli.app import make

app = make()


def main() -> None:
    app(prog_name="tieline")


if __name__ == "__main__":
    main()
