"""Pure: what the agent says over ACP, as events of the agent stream.

Works on raw ACP objects, because agents send more than any schema knows: a part that has a wrong type is left out,
an update of an unknown kind becomes an event `acp_update`, nothing raises. `Translator` keeps what later events
need: the tool calls, the modes, the largest window.
"""

from typing import Any

from tieline_agentctl.normalized import normalized

_MOST_TOOLS = 512
_STATUS = {"completed": "complete", "failed": "error"}
_OPEN = ("pending", "in_progress")
_HISTORY = frozenset(
    ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update")
)
_PLANS = frozenset(("plan", "plan_update", "plan_removed"))
_STARTS_A_TURN = frozenset(("agent_message_chunk", "agent_thought_chunk", "tool_call"))


def event(type: str, **members: Any) -> dict[str, Any]:
    """An event: empty members are left out, the four capabilities are on every one."""
    return {
        "type": type,
        "supports_image": False,
        "supports_audio": False,
        "supports_embedded_context": False,
        "supports_prompt_queueing": False,
    } | present(**members)


def present(**members: Any) -> dict[str, Any]:
    """Only the members that are not empty: how the wire says absent."""
    return {name: value for name, value in members.items() if value not in (None, "", 0, False, [], {})}


def starts_a_turn(update: dict[str, Any]) -> bool:
    """Whether an update outside of any prompt means that the agent works by itself."""
    return update.get("sessionUpdate") in _STARTS_A_TURN


def is_history(update: dict[str, Any]) -> bool:
    """Whether an update that comes while a session is loaded repeats what was said long ago."""
    return update.get("sessionUpdate") in _HISTORY


def is_plan(update: dict[str, Any]) -> bool:
    return update.get("sessionUpdate") in _PLANS


class Translator:
    """The state of one ACP session that its events need."""

    def __init__(self) -> None:
        self._tools: dict[str, dict[str, Any]] = {}
        self._modes: list[dict[str, Any]] = []
        self._mode = ""
        self._window = 0
        self.config_options: list[dict[str, Any]] = []

    # updates

    def translated(self, session_id: str, update: dict[str, Any]) -> list[dict[str, Any]]:
        """The events of one `session/update`."""
        kind = text(update.get("sessionUpdate"))
        match kind:
            case "agent_message_chunk" | "user_message_chunk":
                return [self._message(session_id, update, "user" if kind.startswith("user") else "")]
            case "agent_thought_chunk":
                return [
                    event(
                        "reasoning",
                        session_id=session_id,
                        reasoning_text=text(mapping(update.get("content")).get("text")),
                        protocol_message_id=text(update.get("messageId")),
                    )
                ]
            case "tool_call" | "tool_call_update":
                return [self._tool(session_id, update, kind == "tool_call")]
            case "plan":
                return [_plan(session_id, update.get("entries"))]
            case "plan_update":
                plan = mapping(update.get("plan"))
                if plan.get("type") == "items":
                    return [_plan(session_id, plan.get("entries"))]
                content = text(plan.get("content")) or text(plan.get("uri"))
                return [event("agent_plan", session_id=session_id, plan_content=content)]
            case "plan_removed":
                return [_plan(session_id, [])]
            case "available_commands_update":
                return [
                    event(
                        "available_commands",
                        session_id=session_id,
                        available_commands=[
                            _command(one) for one in objects(update.get("availableCommands"))
                        ],
                    )
                ]
            case "current_mode_update":
                self._mode = text(update.get("currentModeId"))
                return [self._mode_event(session_id)]
            case "config_option_update":
                self.config_options = config_options(update.get("configOptions"))
                return [self.models_event(session_id, "provider_update")]
            case "session_info_update":
                return [
                    event(
                        "session_info",
                        session_id=session_id,
                        session_title=text(update.get("title")),
                        session_updated_at=text(update.get("updatedAt")),
                        session_meta=update.get("_meta"),
                    )
                ]
            case "usage_update":
                return [self._context_window(session_id, update)]
            case _:
                return [event("acp_update", session_id=session_id, data={"update": update})]

    def _message(self, session_id: str, update: dict[str, Any], role: str) -> dict[str, Any]:
        block = mapping(update.get("content"))
        is_text = block.get("type") == "text"
        return event(
            "message_chunk",
            session_id=session_id,
            text=text(block.get("text")) if is_text else "",
            content_blocks=[] if is_text or not block else [content_block(block)],
            protocol_message_id=text(update.get("messageId")),
            role=role,
        )

    def _context_window(self, session_id: str, update: dict[str, Any]) -> dict[str, Any]:
        used = _count(update.get("used"))
        self._window = max(self._window, _count(update.get("size")))
        return event(
            "context_window",
            session_id=session_id,
            context_window_size=self._window,
            context_window_used=used,
            context_window_remaining=max(0, self._window - used),
            context_efficiency=used * 100 / self._window if self._window else 0,
        )

    # tools

    def _tool(self, session_id: str, update: dict[str, Any], born: bool) -> dict[str, Any]:
        tool_call_id = text(update.get("toolCallId"))
        tool = self.tool_known(update)
        status = text(update.get("status"))
        tool["status"] = status or tool.get("status") or "in_progress"
        shared = {
            "session_id": session_id,
            "tool_call_id": tool_call_id,
            "tool_title": text(update.get("title")),
            "normalized": normalized(tool),
            "tool_call_contents": [_tool_content(item) for item in objects(update.get("content"))],
            "parent_tool_call_id": _in_meta(update, "parentToolCallId", "parentToolUseId"),
        }
        if born:
            return event("tool_call", tool_name=_tool_name(tool), tool_status=tool["status"], **shared)
        return event("tool_update", tool_status=_STATUS.get(status, status), **shared)

    def tool_known(self, update: dict[str, Any]) -> dict[str, Any]:
        """Remember what an update or a permission request says of a tool call; what is known of it by now."""
        tool_call_id = text(update.get("toolCallId"))
        tool = self._tools.pop(tool_call_id, {})
        told = ("toolCallId", "title", "kind", "rawInput", "rawOutput", "locations", "content", "_meta")
        tool.update({name: update[name] for name in told if update.get(name) is not None})
        self._tools[tool_call_id] = tool
        if len(self._tools) > _MOST_TOOLS:
            del self._tools[next(iter(self._tools))]
        return tool

    def knows(self, tool_call_id: str) -> bool:
        return tool_call_id in self._tools

    def announced(self, session_id: str, update: dict[str, Any]) -> dict[str, Any]:
        """The `tool_call` event for a tool that the agent asks permission for before it tells of it."""
        tool = self.tool_known(update)
        tool["status"] = "pending"
        return event(
            "tool_call",
            session_id=session_id,
            tool_call_id=text(update.get("toolCallId")),
            tool_name=_tool_name(tool),
            tool_title=text(update.get("title")),
            tool_status="pending_permission",
        )

    def open_tools_cancelled(self, session_id: str, leave_detached: bool = False) -> list[dict[str, Any]]:
        """`tool_update` events that end the tools still open; `leave_detached` spares subagents."""
        events = []
        for tool_call_id, tool in self._tools.items():
            if tool.get("status") not in _OPEN:
                continue
            if leave_detached and normalized(tool)["kind"] == "subagent_task":
                continue
            tool["status"] = "cancelled"
            events.append(
                event(
                    "tool_update", session_id=session_id, tool_call_id=tool_call_id, tool_status="cancelled"
                )
            )
        return events

    # what a session is set up with

    def set_up(self, session_id: str, answer: dict[str, Any]) -> list[dict[str, Any]]:
        """The events that follow `session/new` or `session/load`: mode and models, where the agent has any."""
        events = []
        modes = mapping(answer.get("modes"))
        if modes:
            self._mode = text(modes.get("currentModeId"))
            self._modes = [
                {"id": text(mode.get("id")), "name": text(mode.get("name"))}
                | present(description=text(mode.get("description")))
                for mode in objects(modes.get("availableModes"))
            ]
            events.append(self._mode_event(session_id))
        self.config_options = config_options(answer.get("configOptions"))
        if self.config_options:
            events.append(self.models_event(session_id))
        return events

    def mode_set(self, session_id: str, mode_id: str) -> dict[str, Any]:
        """The backend chose a mode and the agent agreed."""
        self._mode = mode_id
        return self._mode_event(session_id)

    def _mode_event(self, session_id: str) -> dict[str, Any]:
        return event(
            "session_mode", session_id=session_id, current_mode_id=self._mode, available_modes=self._modes
        )

    def options_set(self, session_id: str, config_id: str, answer: dict[str, Any]) -> dict[str, Any]:
        """The backend chose a value and the agent answered with how all options stand now."""
        self.config_options = config_options(answer.get("configOptions"))
        return self.models_event(session_id, "provider_response", config_id)

    def models_event(self, session_id: str, source: str = "", config_id: str = "") -> dict[str, Any]:
        """`session_models` as things stand."""
        option = self.model_option() or {}
        return event(
            "session_models",
            session_id=session_id,
            current_model_id=option.get("current_value"),
            session_models=_models(option),
            config_options=self.config_options,
            data=present(config_options_source=source, config_options_config_id=config_id),
        )

    def model_state(self) -> dict[str, Any]:
        """The member of the answer to `agent.session.new`; empty when the agent exposes nothing."""
        option = self.model_option() or {}
        return present(
            current_model_id=option.get("current_value"),
            models=_models(option),
            config_options=self.config_options,
        )

    def model_option(self) -> dict[str, Any] | None:
        """The config option that chooses the model."""
        return next((option for option in self.config_options if option.get("category") == "model"), None)


def config_options(value: Any) -> list[dict[str, Any]]:
    """ACP config options in the wire's spelling; options in groups are laid flat."""
    found = []
    for option in objects(value):
        current = option.get("currentValue")
        choices = [
            {"value": text(choice.get("value")), "name": text(choice.get("name"))}
            | present(description=text(choice.get("description")))
            for entry in objects(option.get("options"))
            for choice in (objects(entry["options"]) if "options" in entry else [entry])
        ]
        found.append(
            {
                "type": text(option.get("type")),
                "id": text(option.get("id")),
                "name": text(option.get("name")),
                "current_value": str(current).lower() if isinstance(current, bool) else text(current),
            }
            | present(
                description=text(option.get("description")),
                category=text(option.get("category")),
                options=choices,
            )
        )
    return found


def content_block(block: dict[str, Any]) -> dict[str, Any]:
    """An ACP content block in the wire's spelling."""
    resource = mapping(block.get("resource"))
    size = block.get("size")
    return {"type": text(block.get("type"))} | present(
        text=text(block.get("text")) or text(resource.get("text")),
        data=text(block.get("data")) or text(resource.get("blob")),
        mime_type=text(block.get("mimeType")) or text(resource.get("mimeType")),
        uri=text(block.get("uri")) or text(resource.get("uri")),
        name=text(block.get("name")),
        title=text(block.get("title")),
        description=text(block.get("description")),
        size=size if isinstance(size, int) else None,
    )


def usage(value: Any) -> dict[str, Any]:
    """The `usage` of a `complete` event; empty when the agent reports none."""
    given = mapping(value)
    if not given:
        return {}
    return {
        "input_tokens": _count(given.get("inputTokens")),
        "output_tokens": _count(given.get("outputTokens")),
        "output_tokens_present": given.get("outputTokens") is not None,
        "total_tokens": _count(given.get("totalTokens")),
    } | present(
        cached_read_tokens=_count(given.get("cachedReadTokens")),
        cached_write_tokens=_count(given.get("cachedWriteTokens")),
        thought_tokens=_count(given.get("thoughtTokens")),
    )


def auth_methods(value: Any) -> list[dict[str, Any]]:
    """The agent's ways to log in."""
    return [
        {"id": text(method.get("id")), "name": text(method.get("name"))}
        | present(description=text(method.get("description")), meta=method.get("_meta"))
        | present(terminal_auth=_terminal_auth(method))
        for method in objects(value)
    ]


def _terminal_auth(method: dict[str, Any]) -> dict[str, Any]:
    given = mapping(mapping(method.get("_meta")).get("terminal-auth"))
    command = text(given.get("command"))
    args = given.get("args")
    return (
        {"command": command}
        | present(args=args if isinstance(args, list) else [], label=text(given.get("label")))
        if command
        else {}
    )


def prompt_queueing(capabilities: dict[str, Any]) -> bool:
    """Whether the agent takes a prompt while it works on another; ACP has no field for it, agents say it in `_meta`."""
    meta = mapping(capabilities.get("_meta"))
    return any(part.get("promptQueueing") is True for part in (meta, *map(mapping, meta.values())))


def _plan(session_id: str, entries: Any) -> dict[str, Any]:
    return event(
        "plan",
        session_id=session_id,
        plan_entries=[
            present(
                description=text(entry.get("content")),
                status=text(entry.get("status")),
                priority=text(entry.get("priority")),
            )
            for entry in objects(entries)
        ],
    )


def _command(command: dict[str, Any]) -> dict[str, Any]:
    return {"name": text(command.get("name"))} | present(
        description=text(command.get("description")),
        input_hint=text(mapping(command.get("input")).get("hint")),
    )


def _models(option: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"model_id": choice["value"], "name": choice["name"]} | present(description=choice.get("description"))
        for choice in option.get("options", [])
    ]


def _tool_name(tool: dict[str, Any]) -> str:
    name = _in_meta(tool, "toolName")
    return name if name.startswith("mcp__") else text(tool.get("kind")) or "other"


def _tool_content(item: dict[str, Any]) -> dict[str, Any]:
    content = mapping(item.get("content"))
    found = {"type": text(item.get("type"))} | present(
        content=content_block(content) if content else None,
        path=text(item.get("path")),
        new_text=text(item.get("newText")),
        terminal_id=text(item.get("terminalId")),
    )
    if isinstance(item.get("oldText"), str):
        found["old_text"] = item["oldText"]
    return found


def _in_meta(holder: dict[str, Any], *names: str) -> str:
    meta = mapping(holder.get("_meta"))
    for part in (meta, *map(mapping, meta.values())):
        for name in names:
            if text(part.get(name)):
                return text(part[name])
    return ""


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
