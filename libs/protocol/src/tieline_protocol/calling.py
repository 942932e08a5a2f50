"""Calling a remote's function: the one place that speaks the caller's half of a call.

Whoever waits hears `accepted`, then a beat every second, then one final; three missed beats end the call. A call
whose replica or broker was lost is not repeated: it may have run.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import Callable
from typing import Any

from tieline_protocol import jsontext, subjects
from tieline_protocol.bus import Bus, Exchange, Received
from tieline_protocol.errors import Code, FateUnknown, NoResponders, Refused, TimedOut, Unavailable
from tieline_protocol.messages import Request, answer, outcome, refusal
from tieline_protocol.remotes import CALL_TIMEOUT_MS

PATIENCE = 3.0  # s without a sign of life from the replica: three beats
ACCEPT = 10.0  # s until a replica has accepted or refused
PATIENCE_NOBODY = 5.0  # s for a replica to appear where there is none
FIRST_WAIT = 0.05
LAST_WORD = 0.15  # s that a call which is given up waits for its id
_PROCESS = secrets.token_hex(8)
_numbers = itertools.count(1)
_FINALS = (b'{"payload":', b'{"error":')


async def call(
    bus: Bus,
    user: str,
    remotename: str,
    function: str,
    args: Any,
    *,
    timeout_ms: int = CALL_TIMEOUT_MS,
    on_accepted: Callable[[str], None] | None = None,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
    traceparent: str | None = None,
) -> Any:
    """The function's result, or Refused with the code of the call's end (the closed list of design, section 5).

    Cancelling the task that awaits this cancels the call. `on_accepted` hears the requestId.
    """
    final = await call_raw(
        bus,
        user,
        remotename,
        function,
        args,
        timeout_ms=timeout_ms,
        on_accepted=on_accepted,
        on_progress=on_progress,
        traceparent=traceparent,
    )
    return outcome(final)["result"]


async def call_raw(
    bus: Bus,
    user: str,
    remotename: str,
    function: str,
    args: Any,
    *,
    timeout_ms: int = CALL_TIMEOUT_MS,
    on_accepted: Callable[[str], None] | None = None,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
    traceparent: str | None = None,
) -> bytes:
    """Like `call`, but the final as the bytes of a reply (see messages.outcome), so that results pass unchanged."""
    body = request(user, remotename, function, args, timeout_ms, traceparent)
    loop = asyncio.get_running_loop()
    until = loop.time() + min(timeout_ms / 1000, PATIENCE_NOBODY)
    wait = FIRST_WAIT
    while True:
        final = await _attempt(bus, user, body, on_accepted, on_progress)
        if final is not None:
            return final
        if loop.time() + wait > until:
            return refusal(Refused(Code.UNAVAILABLE, "the remotes service is not there"))
        await asyncio.sleep(wait)  # certainly not delivered: a replica that has just started, or is about to
        wait *= 2


async def _attempt(
    bus: Bus,
    user: str,
    body: bytes,
    on_accepted: Callable[[str], None] | None,
    on_progress: Callable[[dict[str, Any]], None] | None,
) -> bytes | None:
    """The final; None where nobody heard the request."""
    request_id: str | None = None
    try:
        async with bus.exchange(subjects.rpc("remotes", "call", user), body) as answers:
            wait = ACCEPT
            try:
                while True:
                    received = await answers.next(wait)
                    if received.data.startswith(_FINALS):
                        return received.data
                    wait = PATIENCE
                    message = jsontext.loads(received.data)
                    if accepted := message.get("accepted"):
                        request_id = accepted["requestId"]
                        if on_accepted is not None:
                            on_accepted(accepted["requestId"])
                    elif (progress := message.get("progress")) is not None and on_progress is not None:
                        on_progress(progress)
            except asyncio.CancelledError:
                await _give_up(bus, user, request_id, answers)
                raise
    except NoResponders:
        return None
    except TimedOut:
        return refusal(Refused(Code.UNAVAILABLE, "the remotes service fell silent; the call may have run"))
    except FateUnknown:
        return refusal(Refused(Code.UNAVAILABLE, "the broker was lost; the call may have run"))


async def _give_up(bus: Bus, user: str, request_id: str | None, answers: Exchange) -> None:
    """Cancel a call; one that was sent and has no id yet gets it within a moment, or was heard by nobody."""
    with contextlib.suppress(Unavailable):
        if request_id is None:
            received = await answers.next(LAST_WORD)
            accepted = jsontext.loads(received.data).get("accepted") or {}
            request_id = accepted.get("requestId")
        if request_id is not None:
            await bus.publish(*cancellation(user, request_id))


def request(
    user: str, remotename: str, function: str, args: Any, timeout_ms: int, traceparent: str | None = None
) -> bytes:
    """What a caller sends: a messages.Request, written without a detour, since every call goes this way.

    Raises BadMessage for arguments that JSON cannot say.
    """
    body: dict[str, Any] = {
        "id": f"{_PROCESS}-{next(_numbers):x}",
        "user": user,
        "budget_ms": timeout_ms,
        "payload": {"remotename": remotename, "function": function, "args": args},
    }
    if traceparent is not None:
        body["traceparent"] = traceparent
    return jsontext.dumps(body)


def cancellation(user: str, request_id: str) -> tuple[str, bytes]:
    """Subject and body that cancel a call. Raises BadSubject for what is no requestId."""
    replica, call = subjects.parse_request_id(request_id)
    return subjects.call(replica, call, "cancel"), jsontext.dumps({"user": user})


async def resolve(bus: Bus, user: str, names: list[str], timeout: float = 5.0) -> dict[str, Any]:
    """The functions of remotes: `{remotes: [{remotename, functions}], missing: [names]}`. Raises Unavailable."""
    return await _ask(bus, "resolve", user, {"names": names}, timeout)


async def listed(bus: Bus, user: str, timeout: float = 5.0) -> dict[str, Any]:
    """What `remote-list` answers, without `mine`. Raises Unavailable, Refused."""
    return await _ask(bus, "list", user, {}, timeout)


async def _ask(bus: Bus, endpoint: str, user: str, payload: dict[str, Any], timeout: float) -> dict[str, Any]:
    request = Request(id=secrets.token_hex(8), user=user, budget_ms=int(timeout * 1000), payload=payload)
    received: Received = await bus.request(subjects.rpc("remotes", endpoint, user), request.encode(), timeout)
    return outcome(received.data)


def result(raw: bytes) -> bytes:
    """The final of a call that ended well; `raw` is the JSON text of its result."""
    return answer(b'{"result":%b}' % raw)
