"""People at raw sockets of a running system: they join, a turn asks them, they answer."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tests.support.gateway import Raw, frontend


@contextlib.asynccontextmanager
async def joined(url: str, token: str) -> AsyncIterator[Raw]:
    async with frontend(url, auth=False) as raw:
        assert (await raw.ask("auth", {"token": token}))["type"] == "response"
        yield raw


def events(front: Raw, session: str, kind: str) -> list[dict[str, Any]]:
    return [one["event"] for one in front.of("agent", session) if one["event"].get("type") == kind]


def permission(front: Raw, session: str) -> dict[str, Any] | None:
    return next(iter(events(front, session, "permission_request")), None)


async def turns_end_as_if_nothing_had_been(front: Raw, sessions: list[str]) -> None:
    for session in sessions:
        asking = permission(front, session)
        assert asking is not None
        option = next(one for one in asking["permission_options"] if str(one["kind"]).startswith("allow"))
        answer = {
            "session_id": session,
            "request_id": asking.get("request_id"),
            "pending_id": asking.get("pending_id"),
            "option_id": option["option_id"],
        }
        answer = {key: value for key, value in answer.items() if value is not None}
        assert (await front.ask("agent.permissions.respond", answer, timeout=20))["type"] == "response"

        def ends(session: str = session) -> list[dict[str, Any]]:
            return [one for one in events(front, session, "turn") if one["state"] == "ended"]

        (end,) = await front.until(ends, 30)
        assert end["reason"] == "end_turn"
        text = "".join(one["text"] for one in events(front, session, "message_chunk"))
        assert "one" in text
        assert "two" in text
        assert "gap" not in {one["event"].get("type") for one in front.of("agent", session)}
