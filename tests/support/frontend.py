"""A frontend in a few lines: the real client, with everything that it hears kept in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tieline import Client, Event, Subscription

from tests.support.eventually import eventually


class Frontend:
    """Use as `async with Frontend(url, token) as front`. `events` are those of the sessions it watches."""

    def __init__(self, url: str, token: str) -> None:
        self.client = Client(url, token)
        self.events: list[Event] = []
        self.cursors: dict[str, str] = {}
        self.subscriptions: list[Subscription] = []
        self._readers: list[asyncio.Task[None]] = []

    async def open(self, **payload: Any) -> str:
        """A new session's id, once it is ready."""
        told = await self.client.request("session.open", payload)
        assert told["state"] == "ready"
        return str(told["session_id"])

    async def ask(self, action: str, session: str | None = None, **payload: Any) -> dict[str, Any]:
        """One request, about a session where one is named."""
        about = {} if session is None else {"session_id": session}
        return await self.client.request(action, {**about, **payload})

    async def watch(
        self,
        session: str,
        logs: Sequence[str] = ("agent", "workspace"),
        cursors: dict[str, str] | None = None,
    ) -> Subscription:
        """Keep the events of a session from now on."""
        subscription = await self.client.subscribe(session, logs, cursors)
        self.subscriptions.append(subscription)
        self._readers.append(asyncio.create_task(self._read(subscription), name=f"watch {session}"))
        return subscription

    async def _read(self, subscription: Subscription) -> None:
        async for event in subscription:
            self.events.append(event)
            self.cursors[event.log] = event.cursor

    def of(self, *kinds: str) -> list[Event]:
        """The events of some types."""
        return [event for event in self.events if event.type in kinds]

    def text(self, kind: str = "message_chunk", name: str = "text") -> str:
        """What a viewer concatenates."""
        return "".join(event.body.get(name, "") for event in self.of(kind))

    @property
    def screen(self) -> str:
        """The shell's output."""
        return self.text("shell_output", "data")

    async def until(self, kind: str, count: int = 1, *, timeout: float = 15, **fields: Any) -> Event:
        """The `count`-th event of a type with these fields."""

        def found() -> Event | None:
            fitting = [
                event
                for event in self.of(kind)
                if all(event.body.get(name) == value for name, value in fields.items())
            ]
            return fitting[count - 1] if len(fitting) >= count else None

        event = await self.wait(found, timeout, f"{kind} {fields or ''}")
        assert isinstance(event, Event)
        return event

    async def until_screen(self, text: str, timeout: float = 15) -> None:
        """Wait until the shell has written something."""
        await self.wait(
            lambda: text in self.screen, timeout, f"{text!r} on the screen {self.screen[-500:]!r}"
        )

    async def until_ended(self, count: int = 1, timeout: float = 15) -> Event:
        """Wait for the end of the `count`-th turn heard."""
        return await self.until("turn", count, timeout=timeout, state="ended")

    async def allow(self, session: str, count: int = 1, *, timeout: float = 15) -> None:
        """Say yes to the `count`-th permission that was asked for."""
        asked = (await self.until("permission_request", count, timeout=timeout)).body
        option = next(one for one in asked["permission_options"] if one["kind"].startswith("allow"))
        await self.ask(
            "agent.permissions.respond",
            session,
            request_id=asked.get("request_id"),
            pending_id=asked.get("pending_id"),
            option_id=option["option_id"],
        )

    async def wait(self, found: Callable[[], Any], timeout: float, what: str, every: float = 0.01) -> Any:
        """Wait until a function gives something true; what ended a subscription ends this too."""

        def look() -> Any:
            for reader in self._readers:
                if reader.done() and not reader.cancelled():
                    reader.result()  # an error ends the waiting
            return found()

        try:
            return await eventually(look, timeout, every)
        except AssertionError:
            heard = "\n".join(f"{event.log} {str(event.body)[:160]}" for event in self.events[-40:])
            raise AssertionError(f"waited {timeout:g} s for {what}; heard last:\n{heard}") from None

    async def __aenter__(self) -> Frontend:
        await self.client.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        await self.client.__aexit__(*exc)
