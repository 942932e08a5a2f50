"""The daemon put together: control server, instances, and one way to the end."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import structlog

from tieline_agentctl.auth import Auth
from tieline_agentctl.config import Config
from tieline_agentctl.control import Control
from tieline_agentctl.instance_app import instance_app
from tieline_agentctl.instances import Instances
from tieline_agentctl.serving import bind, serving

log = structlog.get_logger()


async def main(config: Config) -> None:
    """Serves until SIGINT, SIGTERM or the end of the parent's pipe; then ends every instance."""
    end = asyncio.Event()
    with _told_to_end(config, end):
        auth = Auth(config.nonce, config.token)
        sock = bind(config.host, config.port)
        async with (
            Instances(config, lambda instance: instance_app(instance, auth)) as instances,
            serving(Control(instances, auth).app(), sock) as port,
        ):
            _announce(config, port)
            await end.wait()
            log.info("stopping")
    log.info("stopped")


def _announce(config: Config, port: int) -> None:
    host = "127.0.0.1" if config.host in ("0.0.0.0", "::") else config.host
    facts = {
        "pid": os.getpid(),
        "port": port,
        "url": f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}",
    }
    log.info("listening", **facts)
    if config.ready_file:
        # Whoever waits for the file must never see half of it.
        path = Path(config.ready_file)
        part = path.with_name(path.name + ".part")
        part.write_bytes(orjson.dumps(facts))
        part.replace(path)


@contextmanager
def _told_to_end(config: Config, end: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end.set)
    pipe = config.parent_pipe

    def parent_spoke() -> None:
        assert pipe is not None
        try:
            if os.read(pipe, 4096):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        loop.remove_reader(pipe)
        end.set()

    if pipe is not None:
        os.set_blocking(pipe, False)
        os.set_inheritable(pipe, False)
        loop.add_reader(pipe, parent_spoke)
    try:
        yield
    finally:
        if pipe is not None:
            loop.remove_reader(pipe)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
