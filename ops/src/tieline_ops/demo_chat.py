"""The demo's second act: a person's own functions, used by the expert agent of a chat and by the coding agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tieline import Client, Remote, Subscription

from tieline_ops import chat_expectations as expectations
from tieline_ops.chat_expectations import FAILURE, FUNCTION, KNOWN, REMOTE, TEMPERATURE
from tieline_ops.timeline import Telling

_PATIENCE = 30.0  # for each step
_TOGETHER = 5.0  # seconds in which the second of two parallel calls must have come

Event = dict[str, Any]


class Weather:
    """A remote, as anybody writes one. Its function ends only once two calls have been under way together."""

    def __init__(self) -> None:
        self.cities: list[str] = []
        self.both = asyncio.Event()
        self.remote = Remote(REMOTE)
        self.remote.function(self._temperature, name=FUNCTION)

    async def _temperature(self, city: str) -> str:
        """How warm it is in a city.

        city: Its name
        """
        self.cities.append(city)
        if len(self.cities) == 2:
            self.both.set()
        async with asyncio.timeout(_TOGETHER):
            await self.both.wait()
        if city != KNOWN:
            raise LookupError(FAILURE)
        return TEMPERATURE


class ChatStory:
    """Plays the act against a running system."""

    def __init__(self, facts: dict[str, Any], telling: Telling) -> None:
        self._url: str = facts["gateway_url"]
        self._token: str = facts["token"]
        self._telling = telling
        self._say = telling.say

    async def play(self) -> list[str]:
        """Returns what is wrong. Raises TielineError, TimeoutError."""
        weather = Weather()
        async with self._client() as person, person.serve(weather.remote) as served:
            self._say("demo", f"a script offers the remote {REMOTE}: {', '.join(served.functions)}")
            async with self._client() as browser:
                found = await self._chat(browser, weather)
                found += await self._code(browser, weather)
        return found

    def _client(self) -> Client:
        return Client(self._url, self._token)

    async def _chat(self, client: Client, weather: Weather) -> list[str]:
        thread = (await client.request("thread.create", {"title": "Weather"}))["thread_id"]
        events = await client.subscribe_thread(thread)
        self._say("demo", "the user asks in a chat that has been given the remote")
        question = {"content": expectations.QUESTION, "resources": [expectations.RESOURCE]}
        await client.request("thread.message", {"thread_id": thread, **question})
        heard = await self._heard(events, expectations.is_ended, tell=True)
        found = expectations.problems(heard, weather.cities, weather.both.is_set())
        self._say("demo", "another viewer reads the whole chat from the log")
        async with self._client() as viewer:
            kept = await self._heard(await viewer.subscribe_thread(thread), expectations.is_ended)
        if kept != heard:
            found.append(
                f"the chat's log holds other events than were received: {len(kept)}, not {len(heard)}"
            )
        await client.request("thread.delete", {"thread_id": thread})
        return found

    async def _code(self, client: Client, weather: Weather) -> list[str]:
        self._say("demo", "the coding agent is given the same remote, and calls the same function")
        before = len(weather.cities)
        opened = await client.request(
            "session.open", {"workspace": "weather", "title": "Weather", "remotes": [REMOTE]}
        )
        session = opened["session_id"]
        events = await client.subscribe(session, cursors={"agent": "now"})
        await client.request("agent.prompt", {"session_id": session, "text": expectations.PROMPT})
        heard = await self._heard(events, _turn_ended, tell=True)
        await client.request("session.close", {"session_id": session})
        said = "".join(str(event.get("text")) for event in heard if event.get("type") == "message_chunk")
        found = []
        if weather.cities[before:] != [KNOWN]:
            found.append(f"the coding agent called the function with {weather.cities[before:]}")
        if said != TEMPERATURE:
            found.append(f"the coding agent says {said!r}")
        return found

    async def _heard(
        self, subscription: Subscription, done: Callable[[list[Event]], bool], *, tell: bool = False
    ) -> list[Event]:
        """All events of a chat or of an agent until `done`."""
        heard: list[Event] = []
        async with asyncio.timeout(_PATIENCE), subscription:
            async for event in subscription:
                if event.log == "workspace":
                    continue
                heard.append(event.body)
                if tell:
                    self._telling.event(event.log, event.body)
                if done(heard):
                    break
        self._telling.flush()
        return heard


def _turn_ended(events: list[Event]) -> bool:
    return any(event.get("type") == "turn" and event.get("state") == "ended" for event in events[-1:])
