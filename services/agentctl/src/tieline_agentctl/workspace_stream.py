"""The workspace stream's socket: what clients type goes in, everything that happens in the workspace comes out.

Written as plain ASGI: at a hundred megabytes of shell output, what a frame costs is what counts.
"""

import asyncio

import structlog
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from tieline_agentctl import epoch, workspace_frames
from tieline_agentctl.hub import Reader
from tieline_agentctl.instance import Instance
from tieline_agentctl.wall import now_ms
from tieline_agentctl.web import answer, reply
from tieline_agentctl.workspace_frames import Ignored, Ping, ShellInput, ShellResize

log = structlog.get_logger()

LINGER = 0.5
SUPERSEDED = 4409  # a stream of a higher epoch took over


class WorkspaceStream:
    """Any number of sockets; each hears everything. A higher epoch ends the sockets of lower ones."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._readers: dict[Reader, int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        number = epoch.epoch_of(Headers(scope=scope).get(epoch.HEADER))
        if not self._instance.epochs.admits(number):
            await reply(scope, receive, send, answer(self._instance.epochs.refusal(number), 409))
            return
        for reader, other in list(self._readers.items()):
            if other < number:
                reader.close()
        await receive()
        await send({"type": "websocket.accept"})
        # Listening starts before the first status is made, so that nothing falls between them.
        with self._instance.hub.reading() as reader:
            self._readers[reader] = number
            try:
                await self._serve(reader, receive, send)
            finally:
                self._readers.pop(reader, None)

    async def _serve(self, reader: Reader, receive: Receive, send: Send) -> None:
        """Either side's end is the other's: reading and writing are one connection."""
        hearing = asyncio.create_task(self._hear(reader, receive), name="workspace stream: hear")
        saying = asyncio.create_task(self._say(reader, send), name="workspace stream: say")
        closing = asyncio.create_task(reader.ended(), name="workspace stream: closing")
        try:
            await asyncio.wait([hearing, saying, closing], return_when=asyncio.FIRST_COMPLETED)
            if closing.done():
                await asyncio.wait([saying], timeout=LINGER)  # for the Close frame, if the peer reads at all
        finally:
            reader.close()
            for task in (hearing, saying, closing):
                task.cancel()
            await asyncio.wait([hearing, saying, closing])
        for task in (hearing, saying):
            if (
                not task.cancelled()
                and (error := task.exception()) is not None
                and not isinstance(error, OSError)
            ):
                raise error

    async def _say(self, reader: Reader, send: Send) -> None:
        first = await self._instance.workspace.first_frames()
        await send({"type": "websocket.send", "text": workspace_frames.frame("connected", now_ms())})
        for text, key in first:
            reader.fact(text, key)
        async for text in reader.frames():
            await send({"type": "websocket.send", "text": text})
        await send({"type": "websocket.close", "code": SUPERSEDED if not self._instance.stopping else 1001})

    async def _hear(self, reader: Reader, receive: Receive) -> None:
        shell = self._instance.shell
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                return
            match workspace_frames.parse(message.get("text") or message.get("bytes") or ""):
                case ShellInput(data):
                    if not shell.type(data):
                        log.warning("shell input was not taken", instance=self._instance.id, size=len(data))
                        error = "shell input was not taken: there is no shell, or it does not read"
                        reader.fact(workspace_frames.frame("error", now_ms(), error=error))
                case ShellResize(cols, rows):
                    shell.resize(cols, rows)
                case Ping():
                    reader.fact(workspace_frames.frame("pong", now_ms()))
                case Ignored(reason):
                    log.info("a workspace frame was ignored", instance=self._instance.id, reason=reason)
