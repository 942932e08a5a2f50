"""One subscription of a connection: a function that hears its messages, until it is closed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription
from nats.errors import Error as NatsError

from tieline_protocol.errors import Unavailable
from tieline_protocol.nats_client import heeding
from tieline_protocol.received import Received

if TYPE_CHECKING:
    from tieline_protocol.bus import Bus


class Subscription:
    """Made by `Bus.subscribe`. An error in its function is logged and does not end it."""

    def __init__(
        self, bus: Bus, handler: Callable[[Received], None], on_lost: Callable[[], None] | None
    ) -> None:
        self._bus = bus
        self._handler = handler
        self._on_lost = on_lost
        self._subscription: NatsSubscription | None = None

    async def _start(self, subject: str, queue: str) -> None:
        self._bus.check(subject)
        nc = self._bus._nc
        sid = nc._sid + 1  # the one it is about to give: a first message may come before it returns
        nc.direct[sid] = self._handler
        try:
            self._subscription = await heeding(nc.subscribe(subject, queue, cb=unused))
        except NatsError as exc:
            del nc.direct[sid]
            raise Unavailable(f"cannot subscribe: {exc}") from exc
        self._bus._subscriptions[sid] = self

    def _lost(self) -> None:
        if self._on_lost is not None:
            self._on_lost()

    async def close(self, *, drain: bool = False) -> None:
        """Stop hearing. What came and was not handled yet is dropped, or handled first (`drain`)."""
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            return
        self._bus._subscriptions.pop(subscription._id, None)
        with contextlib.suppress(NatsError, TimeoutError):
            if drain and self._bus.connected:
                await asyncio.wait_for(subscription.drain(), 2)  # type: ignore[no-untyped-call]
            else:
                self._bus._nc.direct.pop(subscription._id, None)
                await heeding(subscription.unsubscribe())
        self._bus._nc.direct.pop(subscription._id, None)


async def unused(msg: Msg) -> None:
    """What makes nats-py keep no messages for `next_msg`; all of them are handled directly."""
