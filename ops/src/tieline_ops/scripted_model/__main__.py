"""`python -m tieline_ops.scripted_model`: the scripted model as a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Annotated

import orjson
import typer
from tieline_protocol.service import write_whole

from tieline_ops.scripted_model import answers, server
from tieline_ops.scripted_model.script import Script


def main(
    host: Annotated[str, typer.Option(envvar="TIELINE_MODEL_HOST")] = "127.0.0.1",
    port: Annotated[int, typer.Option(envvar="TIELINE_MODEL_PORT", help="0 means any free one")] = 0,
    ready_file: Annotated[
        Path | None, typer.Option(envvar="TIELINE_READY_FILE", help="gets {pid, url, model} when ready")
    ] = None,
    script: Annotated[
        Path | None, typer.Option(envvar="TIELINE_MODEL_SCRIPT", help="replies, see script.py")
    ] = None,
    pace: Annotated[float, typer.Option(help="seconds between two words of an answer")] = 0.02,
) -> None:
    """Serve an OpenAI-compatible API without any AI behind it, until SIGTERM."""
    try:
        given = Script.parse(script.read_bytes()) if script is not None else Script()
    except (OSError, ValueError) as exc:
        raise typer.BadParameter(f"{script}: {exc}") from exc
    asyncio.run(_serve(server.ScriptedModel(given, pace=pace), host, port, ready_file))


async def _serve(model: server.ScriptedModel, host: str, port: int, ready_file: Path | None) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with server.serving(model, host, port) as url:
        facts = {"pid": os.getpid(), "url": url, "model": answers.MODEL}
        if ready_file is not None:
            write_whole(ready_file, orjson.dumps(facts))
        typer.echo(f"scripted model, no AI: {url}")
        await stopping.wait()


if __name__ == "__main__":
    typer.run(main)
