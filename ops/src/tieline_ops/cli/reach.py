"""Connections of a command: to NATS, for looking; to a gateway, for using. Both give up soon and say why."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, NoReturn

from tieline_ops.cli.codes import Exit, Problem
from tieline_ops.cli.contexts import Place
from tieline_ops.cli.output import note

if TYPE_CHECKING:
    from tieline import Client
    from tieline_protocol.bus import Bus

CONNECT = 5.0  # s until a broker or gateway that does not answer counts as away
_SOON = 0.3  # s until one does that says no
_HOPELESS = {  # what a broker's connection complains of when trying again is no use, and what people are told
    "refused": "nobody listens there",
    "authorization": "",
    "name or service not known": "there is no such host",
    "temporary failure in name resolution": "there is no such host",
    "certificate_verify_failed": "nobody who is known here vouches for its certificate",
}
_HINTS = {
    "authorization": "its user and password stand in the context",
    "certificate_verify_failed": "SSL_CERT_FILE names a file with its authority",
}


@contextlib.asynccontextmanager
async def bus(place: Place, patience: float = CONNECT) -> AsyncIterator[Bus]:
    """A connection to the system's NATS. Raises Problem where there is none in time."""
    from tieline_protocol import bus as broker

    told: list[str] = []
    limit = asyncio.timeout(patience)
    loop = asyncio.get_running_loop()

    def complained(error: str) -> None:
        if not told or "authorization" not in told[-1].lower():  # the server hangs up, too, where it says so
            told[:] = [error]
        if any(sign in error.lower() for sign in _HOPELESS) and (until := limit.when()) is not None:
            with contextlib.suppress(RuntimeError):  # it is connected
                limit.reschedule(min(until, loop.time() + _SOON))

    _quiet(complained)
    settings = broker.BusSettings(
        place.nats_url,
        "tieline-cli",
        user=place.context.nats_user or None,
        password=place.password,
        inbox_prefix=place.context.nats_inbox_prefix or "_INBOX",
    )
    async with contextlib.AsyncExitStack() as stack:
        try:
            async with limit:
                connected = await stack.enter_async_context(broker.connect(settings))
        except TimeoutError:
            why = told[-1] if told else "it does not answer"
            sign = next((sign for sign in _HOPELESS if sign in why.lower()), "")
            raise Problem(
                f"NATS cannot be reached at {settings.url}: {_HOPELESS.get(sign) or why}",
                Exit.DENIED if sign == "authorization" else Exit.UNAVAILABLE,
                _HINTS.get(sign, f"found by: {place.found}"),
            ) from None
        yield connected


@contextlib.asynccontextmanager
async def client(place: Place, user: str = "") -> AsyncIterator[Client]:
    """A connection to the system's gateway; what is asked belongs to the trace in TRACEPARENT, if any.

    Raises Problem, TielineError.
    """
    from tieline import Client, TielineError, tracing

    url = place.gateway_url
    opening = Client(url, place.token(user), connect_timeout=CONNECT)
    try:
        await opening.__aenter__()
    except (TielineError, OSError) as exc:
        if getattr(exc, "code", "") == "unauthorized":
            raise
        message = getattr(exc, "message", str(exc))
        raise Problem(f"the gateway cannot be reached at {url}: {message}", Exit.UNAVAILABLE) from exc
    try:
        with tracing.within(os.environ.get("TRACEPARENT")):
            yield opening
    finally:
        await opening.close()


def _quiet(complained: Callable[[str], None]) -> None:
    """Logs of libraries do not belong on a person's screen; what the broker connection complains of is handed on."""
    import structlog

    def drop(_: Any, method: str, event: MutableMapping[str, Any]) -> NoReturn:
        if "error" in event:
            complained(str(event["error"]))
        if event.get("event") in ("the broker went away", "the broker is back"):
            note(str(event["event"]))
        raise structlog.DropEvent

    structlog.configure(processors=[drop], cache_logger_on_first_use=False)
    logging.getLogger().setLevel(logging.CRITICAL)
