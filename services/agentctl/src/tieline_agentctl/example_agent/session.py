"""One session of the example agent: what is said in it, and its tool calls and questions to the user."""

from typing import Any, Literal, cast

from acp import AgentSideConnection
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AllowedOutcome,
    AvailableCommand,
    AvailableCommandsUpdate,
    CurrentModeUpdate,
    PermissionOption,
    PlanEntry,
    SessionInfoUpdate,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
    UsageUpdate,
    UserMessageChunk,
)
from pydantic import BaseModel

OPTIONS = [
    PermissionOption(option_id="allow", name="Allow", kind="allow_once"),
    PermissionOption(option_id="always", name="Always allow", kind="allow_always"),
    PermissionOption(option_id="reject", name="Reject", kind="reject_once"),
]
_TOO_BIG_TO_KEEP = 64 * 1024

Kind = Literal["read", "edit", "execute", "other"]


class Session:
    """Talks to the client in the name of one session; `history` is what a later load replays."""

    def __init__(
        self,
        session_id: str,
        cwd: str,
        client: AgentSideConnection,
        history: list[dict[str, Any]],
        servers: list[Any],
    ) -> None:
        self.id = session_id
        self.cwd = cwd
        self.servers = servers
        self.mode = "default"
        self.model = "example-small"
        self.effort = "low"
        self.history = history
        self._client = client
        self._tools = sum(update.get("sessionUpdate") == "tool_call" for update in history)
        self._always: set[str] = set()

    async def _tell(self, update: Any, keep: bool = True) -> None:
        if keep and isinstance(update, BaseModel):
            kept = update.model_dump(mode="json", by_alias=True, exclude_none=True)
            if len(str(kept)) < _TOO_BIG_TO_KEEP:
                self.history.append(kept)
        await self._client.session_update(self.id, update)

    def heard(self, text: str) -> None:
        """The user's prompt, for the history."""
        update = UserMessageChunk(session_update="user_message_chunk", content=_text(text))
        self.history.append(update.model_dump(mode="json", by_alias=True, exclude_none=True))

    async def replay(self) -> None:
        """Everything that was said, again: how ACP wants a session loaded."""
        kinds: dict[str, type[BaseModel]] = {
            "user_message_chunk": UserMessageChunk,
            "agent_message_chunk": AgentMessageChunk,
            "agent_thought_chunk": AgentThoughtChunk,
            "tool_call": ToolCallStart,
            "tool_call_update": ToolCallProgress,
            "plan": AgentPlanUpdate,
        }
        for kept in self.history:
            kind = kinds.get(str(kept.get("sessionUpdate")))
            if kind is not None:
                await self._client.session_update(self.id, cast(Any, kind.model_validate(kept)))

    async def say(self, text: str, message_id: str | None = None) -> None:
        await self._tell(
            AgentMessageChunk(
                session_update="agent_message_chunk", content=_text(text), message_id=message_id
            )
        )

    async def think(self, text: str) -> None:
        await self._tell(AgentThoughtChunk(session_update="agent_thought_chunk", content=_text(text)))

    async def plan(self, steps: list[str]) -> None:
        entries = [
            PlanEntry(content=step, priority="medium", status="pending" if at else "in_progress")
            for at, step in enumerate(steps)
        ]
        await self._tell(AgentPlanUpdate(session_update="plan", entries=entries))

    async def usage(self, used: int, size: int) -> None:
        await self._tell(UsageUpdate(session_update="usage_update", used=used, size=size), keep=False)

    async def commands(self, names: list[str]) -> None:
        commands = [AvailableCommand(name=name, description=f"the command {name}") for name in names]
        await self._tell(
            AvailableCommandsUpdate(session_update="available_commands_update", available_commands=commands),
            keep=False,
        )

    async def change_mode(self, mode: str) -> None:
        self.mode = mode
        await self._tell(
            CurrentModeUpdate(session_update="current_mode_update", current_mode_id=mode), keep=False
        )

    async def title(self, title: str) -> None:
        await self._tell(SessionInfoUpdate(session_update="session_info_update", title=title), keep=False)

    async def tool(self, title: str, kind: Kind, raw_input: dict[str, Any], **more: Any) -> str:
        """Announce a tool call; its id."""
        self._tools += 1
        tool_call_id = f"tool-{self._tools}"
        await self._tell(
            ToolCallStart(
                session_update="tool_call",
                tool_call_id=tool_call_id,
                title=title,
                kind=kind,
                status="pending",
                raw_input=raw_input,
                **more,
            )
        )
        return tool_call_id

    async def tool_update(self, tool_call_id: str, status: str, **more: Any) -> None:
        update = ToolCallProgress(
            session_update="tool_call_update", tool_call_id=tool_call_id, status=cast(Any, status), **more
        )
        await self._tell(update)

    async def allowed(self, tool_call_id: str, title: str, kind: Kind, raw_input: dict[str, Any]) -> str:
        """Ask the user. The chosen option's id, "" when the question was cancelled."""
        if kind in self._always:
            return "always"
        answer = await self._client.request_permission(
            session_id=self.id,
            tool_call=ToolCallUpdate(tool_call_id=tool_call_id, title=title, kind=kind, raw_input=raw_input),
            options=OPTIONS,
        )
        if not isinstance(answer.outcome, AllowedOutcome):
            return ""
        if answer.outcome.option_id == "always":
            self._always.add(kind)
        return answer.outcome.option_id


def _text(text: str) -> TextContentBlock:
    return TextContentBlock(type="text", text=text)
