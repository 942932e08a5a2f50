"""What both sockets to an instance have in common: the dial, the check of each frame, the heartbeat.

What their frames mean: agent_stream.py, workspace_stream.py.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog
from picows import WSCloseCode
from tieline_protocol import agentctl
from tieline_protocol.agentctl import Frame
from tieline_protocol.errors import BadMessage, Unavailable
from tieline_protocol.numbering import gap

from tieline_streams.config import Limits
from tieline_streams.dialling import dial
from tieline_streams.execution import Execution
from tieline_streams.metrics import INVALID
from tieline_streams.sockets import Socket

log = structlog.get_logger()


class Stream:
    """One of the two; after each reconnect its `socket` is another one."""

    name: str
    path: str
    vital = True  # a session cannot go on without it

    def __init__(self, execution: Execution, limits: Limits) -> None:
        self._execution = execution
        self._limits = limits
        self._url = execution.url.replace("http", "ws", 1) + self.path
        self.socket: Socket | None = None
        self.closing = False
        self.leaving = False  # this process may soon not act: what is said meanwhile is for whoever may

    async def _connect(self, on_frames: Callable[[list[Frame]], None], on_up: Callable[[], None]) -> Socket:
        """Dial; frames in one packet with the handshake are heard after `on_up`. Raises Fatal, Unavailable."""
        if self.closing or self.leaving:
            raise Unavailable("closing" if self.closing else "the broker is away")
        early: list[bytes] = []
        socket: Socket | None = None

        def received(raws: list[bytes]) -> None:
            if socket is None:
                early.extend(raws)
                return
            if socket.unused:
                self._execution.on_invalid(self.name, gap("owner_lost", events=socket.unused))
                socket.unused = 0
            frames: list[Frame] = []
            for raw in raws:
                try:
                    frames.append(agentctl.peek(raw))
                except BadMessage as exc:
                    if frames:  # what is told of this one stands after them
                        on_frames(frames)
                        frames = []
                    self._invalid(socket, raw, exc)
            if frames:
                on_frames(frames)

        limits = self._limits
        self.socket = socket = await dial(
            self._url,
            self._execution.headers,
            received,
            limit=limits.dial,
            max_frame=limits.frame_bytes,
            may_act=self._execution.may_act,
        )
        on_up()
        received(early)
        return socket

    async def tend(self, socket: Socket) -> str:
        """Keep it alive until it is lost; returns why."""
        reason = await socket.watch(self.ping, self._limits.heartbeat, self._limits.dead)
        await socket.finished()
        if socket.too_big:
            self._execution.on_invalid(self.name, gap("too_large", events=1))
            reason = "the daemon sent a frame above the limit"
        elif not socket.orderly and not self.closing:
            self.broke()
        return reason

    def broke(self) -> None:
        """What was on its way when the socket broke is gone, and nobody knows what it was."""

    def ping(self) -> None:
        """One heartbeat."""
        raise NotImplementedError

    def cut(self) -> int:
        """Drop the socket without a word. Returns how many frames came that could not be used, and forgets them."""
        if self.socket is None:
            return 0
        self.socket.cut("the session has another owner")
        unused, self.socket.unused = self.socket.unused, 0
        return unused

    def send(self, text: bytes) -> None:
        """Raises Unavailable, Refused (busy)."""
        if self.socket is None:
            raise Unavailable(f"the {self.name} is not connected")
        self.socket.send(text)

    def _invalid(self, socket: Socket, raw: bytes, exc: BadMessage) -> None:
        """Bad bytes on the socket's own level end the socket; a bad event is told."""
        INVALID.labels(self.name).inc()
        log.warning("a daemon sent what is no event", stream=self.name, error=exc.message, bytes=len(raw))
        if not agentctl.is_utf8(raw):
            socket.drop("a text frame that is not UTF-8", WSCloseCode.INVALID_TEXT)
        self._execution.on_invalid(self.name, gap("invalid", events=1, bytes=len(raw)))
