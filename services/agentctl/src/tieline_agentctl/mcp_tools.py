"""The tools that the agent finds at its instance's MCP endpoint, carried out over the tunnel to the backend.

Of the wire's many actions only these are offered: the backend's plugin tools (`mcp.list_plugin_tools`,
`mcp.invoke_plugin_tool`), which is how a user's remotes reach a coding agent, and `mcp.ask_user_question`. All others
work on the task board of the backend in the field (tasks, workflows, plans, reviews), which nothing here has.

No MCP types live here: tools and results are the protocol's JSON, so that the `mcp` package is only loaded by whoever
serves the endpoint.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import structlog

from tieline_agentctl import mcp_questions, mcp_results
from tieline_agentctl.mcp_catalogue import SURFACES, BadTools, Catalogue, PluginTool, snapshot
from tieline_agentctl.mcp_tunnel import McpFailed
from tieline_agentctl.scope import Scope

log = structlog.get_logger()

LIST_PATIENCE = 2.0  # a backend that does not answer delays a listing by no more
KEEP_ALIVE = 20.0
GONE = "tieline.gone"  # in the ASGI scope of a request: an event, set once its peer has hung up


class Caller(Protocol):
    """Who waits for a tool's result."""

    @property
    def gone(self) -> asyncio.Event | None:
        """Set once nobody can take the result any more."""

    async def progress(self, count: int) -> None:
        """Show that the call is under way."""


class GivenUp(Exception):
    """The caller went away; there is nobody to answer."""


class McpTools:
    """One instance's tools. `ask` is the tunnel; `session_id` is the backend's own."""

    def __init__(
        self,
        ask: Callable[[str, Any], Awaitable[Any]],
        tasks: Scope,
        *,
        session_id: str = "",
        mode: str = "",
        profile: Mapping[str, Any] | None = None,
        disable_ask_question: bool = False,
        keep_alive: float = KEEP_ALIVE,
    ) -> None:
        self._ask = ask
        self._tasks = tasks
        self._session_id = session_id
        self._keep_alive = keep_alive
        profile = profile or {}
        capabilities = profile.get("capabilities")
        able = not isinstance(capabilities, list) or "user-question" in capabilities
        self._asks_questions = able and not disable_ask_question
        self.catalogue = Catalogue()
        surface = profile.get("surface")
        self.surface = (
            surface if isinstance(surface, str) and surface else SURFACES.get(mode, SURFACES["task"])
        )

    async def listed(self) -> list[dict[str, Any]]:
        """Every tool, after the backend was asked for its own."""
        await self._refresh()
        plugins = self._plugins()
        own = [mcp_questions.SHOWN] if self._asks_questions else []
        return [*own, *(dict(tool.shown) for tool in plugins.values())]

    def _plugins(self) -> dict[str, PluginTool]:
        tools = self.catalogue.tools(self.surface)
        tools.pop(mcp_questions.NAME, None)
        return tools

    async def _refresh(self) -> None:
        try:
            async with asyncio.timeout(LIST_PATIENCE):
                answer = await self._ask("mcp.list_plugin_tools", {"surface": self.surface})
            self.catalogue.answer(snapshot(answer, lenient=True))
        except TimeoutError:
            log.info("the backend did not say which tools it has")
        except (McpFailed, BadTools) as error:
            log.debug("the backend has no tools", error=str(error))

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """As it was last listed; None when the tool is not known."""
        tool = self.catalogue.tools(self.surface).get(name)
        schema: Mapping[str, Any] | None = tool.shown["inputSchema"] if tool else None
        return schema

    async def called(self, name: str, arguments: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """The result of a tool, its failure too; GivenUp. Cancelling frees what waits for the backend."""
        try:
            if name == mcp_questions.NAME and self._asks_questions:
                return await self._ask_user(arguments, caller)
            return await self._invoke(name, arguments, caller)
        except McpFailed as failure:
            return mcp_results.failed(failure.code, failure.message)

    async def _invoke(self, name: str, arguments: dict[str, Any], caller: Caller) -> dict[str, Any]:
        tool = self._plugins().get(name)
        if tool is None:
            await self._refresh()
            tool = self._plugins().get(name)
        if tool is None:
            return mcp_results.said(f"unknown tool: {name}", is_error=True)
        payload = {
            "plugin_id": tool.plugin_id,
            "local_name": tool.local_name,
            "arguments": arguments,
            "invocation_id": str(uuid.uuid4()),
            "surface": self.surface,
        }
        return mcp_results.invoked(await self._waited("mcp.invoke_plugin_tool", payload, caller))

    async def _ask_user(self, arguments: dict[str, Any], caller: Caller) -> dict[str, Any]:
        try:
            payload = mcp_questions.asked(arguments, self._session_id)
        except mcp_questions.BadQuestion as error:
            return mcp_results.said(str(error), is_error=True)
        try:
            answer = await self._waited("mcp.ask_user_question", payload, caller)
        except (asyncio.CancelledError, GivenUp):
            # The agent waits no longer, so the user need not answer. It is told by a task of its own: this one is over.
            self._tasks.spawn(self._tell_timeout(), "clarification timeout")
            raise
        return mcp_results.said(mcp_questions.told(answer, payload))

    async def _tell_timeout(self) -> None:
        try:
            await self._ask("mcp.clarification_timeout", {"session_id": self._session_id})
        except McpFailed as failure:
            log.debug("the backend does not care for the timeout", error=str(failure))

    async def _waited(self, action: str, payload: Any, caller: Caller) -> Any:
        """The backend's answer, however long it takes; McpFailed, GivenUp."""
        asking = self._tasks.spawn(self._outcome(action, payload), action)
        waits: set[asyncio.Task[Any]] = {asking}
        if caller.gone is not None:
            waits.add(self._tasks.spawn(caller.gone.wait(), f"{action} given up"))
        count = 0
        try:
            while True:
                done, _ = await asyncio.wait(
                    waits, timeout=self._keep_alive, return_when=asyncio.FIRST_COMPLETED
                )
                if asking in done:
                    answer = asking.result()
                    if isinstance(answer, McpFailed):
                        raise answer
                    return answer
                if done:
                    raise GivenUp
                count += 1
                await self._show(caller, count)
        finally:
            for task in waits:
                task.cancel()

    async def _outcome(self, action: str, payload: Any) -> Any:
        try:
            return await self._ask(action, payload)
        except McpFailed as failure:
            return failure

    async def _show(self, caller: Caller, count: int) -> None:
        try:
            async with asyncio.timeout(self._keep_alive):
                await caller.progress(count)
        except TimeoutError:
            log.info("a caller does not read its progress")
