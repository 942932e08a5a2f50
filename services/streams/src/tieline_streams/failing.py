"""Why a session could not be opened, in words for its user: where the agent has ended, how, and what it said last."""

from __future__ import annotations

import asyncio
from typing import Any

from tieline_protocol import jsontext
from tieline_protocol.errors import Code, Refused, TielineError, Unavailable

from tieline_streams.instance import Instance
from tieline_streams.stream_manager import StreamManager

NOT_RUNNING = "agent not running"  # the wire's words
_ENDS = 3.0  # an agent that has closed its pipes gets 2 s to end
_ALIVE = 0.3  # the answer may be here before the news that the agent has ended
_LAST_WORDS = 0.5
_EVERY = 0.05
_LINES = 10
_MOST = 2_000


async def explained(exc: TielineError, instance: Instance, manager: StreamManager) -> TielineError:
    """What stands behind a refusal at the start: the end of the agent, if it has ended; else the refusal itself."""
    patience = _ENDS if NOT_RUNNING in exc.message else _ALIVE
    try:
        code = await _exit_code(instance, patience)
        if code is None:
            return exc
        lines = await _stderr(manager)
    except TielineError:
        return exc
    told = f"the agent ended with code {code}" + (":\n" + "\n".join(lines) if lines else "")
    return Unavailable(told[:_MOST], details={"exit_code": code, "stderr": lines})


async def _exit_code(instance: Instance, patience: float) -> int | None:
    """None: the agent runs."""
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    while True:
        status = jsontext.loads(await instance.call("status", {}, patience))
        if status.get("agent_status") in ("stopped", "error"):
            code = (status.get("process_info") or {}).get("exit_code")
            return code if isinstance(code, int) else -1
        if loop.time() >= until:
            return None
        await asyncio.sleep(_EVERY)


async def _stderr(manager: StreamManager) -> list[str]:
    loop = asyncio.get_running_loop()
    until = loop.time() + _LAST_WORDS
    while True:
        told: Any = (await manager.send_stream_request("agent.stderr", None, _ENDS)).get("lines")
        lines = [line for line in told if isinstance(line, str)] if isinstance(told, list) else []
        if lines or loop.time() >= until:
            return lines[-_LINES:]
        await asyncio.sleep(_EVERY)


def as_unavailable(exc: BaseException, session: str) -> TielineError:
    """What whoever opens the session is told; what a daemon calls an internal error is not ours."""
    if not isinstance(exc, TielineError):
        exc = TielineError(f"the session could not be opened: {type(exc).__name__}")
    elif isinstance(exc, Refused) and exc.code is Code.INTERNAL:
        exc = Unavailable(exc.message, details=exc.details)
    exc.details = {**(exc.details or {}), "session_id": session}
    return exc
