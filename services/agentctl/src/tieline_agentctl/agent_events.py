"""Pure: what the agent says over ACP, as events of the agent stream.

Works on raw ACP objects, because agents send more than any schema knows: a part that has a wrong type is left out,
an update of an unknown kind becomes an event `acp_update`, nothing raises. `Translator` keeps what later events
need: the tool calls, the modes, the largest window.
"""

from typing import Any

from tieline_agentctl.acp_shapes import (
    command,
    config_options,
    content_block,
    count,
    mapping,
    models,
    objects,
    present,
    text,
)
from tieline_agentctl.events import event
from tieline_agentctl.tool_calls import ToolCalls

_HISTORY = (
    "user_message_chunk",
    "agent_message_chunk",
    "agent_thought_chunk",
    "tool_call",
    "tool_call_update",
)
_PLANS = ("plan", "plan_update", "plan_removed")
_STARTS_A_TURN = ("agent_message_chunk", "agent_thought_chunk", "tool_call")


def starts_a_turn(update: dict[str, Any]) -> bool:
    """Whether an update outside of any prompt means that the agent works by itself."""
    return update.get("sessionUpdate") in _STARTS_A_TURN


def is_history(update: dict[str, Any]) -> bool:
    """Whether an update that comes while a session is loaded repeats what was said long ago."""
    return update.get("sessionUpdate") in _HISTORY


def is_plan(update: dict[str, Any]) -> bool:
    return update.get("sessionUpdate") in _PLANS


class NotOffered(Exception):
    """The agent does not have what it is asked for; the text says what there is."""


class Translator:
    """The state of one ACP session that its events need."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._modes: list[dict[str, Any]] = []
        self._mode = ""
        self._window = 0
        self.tools = ToolCalls()
        self.config_options: list[dict[str, Any]] = []

    def event_of(self, update: dict[str, Any]) -> dict[str, Any]:
        """The event of one `session/update`."""
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                return self._message(update, "")
            case "user_message_chunk":
                return self._message(update, "user")
            case "agent_thought_chunk":
                thought = text(mapping(update.get("content")).get("text"))
                return self._event(
                    "reasoning", reasoning_text=thought, protocol_message_id=text(update.get("messageId"))
                )
            case "tool_call" | "tool_call_update":
                return self.tools.event(self._session_id, update)
            case "plan":
                return self._plan(update.get("entries"))
            case "plan_update":
                return self._plan_update(mapping(update.get("plan")))
            case "plan_removed":
                return self._plan([])
            case "available_commands_update":
                commands = [command(one) for one in objects(update.get("availableCommands"))]
                return self._event("available_commands", available_commands=commands)
            case "current_mode_update":
                return self.mode_set(text(update.get("currentModeId")))
            case "config_option_update":
                self.config_options = config_options(update.get("configOptions"))
                return self._models_event("provider_update")
            case "session_info_update":
                return self._event(
                    "session_info",
                    session_title=text(update.get("title")),
                    session_updated_at=text(update.get("updatedAt")),
                    session_meta=update.get("_meta"),
                )
            case "usage_update":
                return self._context_window(update)
            case _:
                return self._event("acp_update", data={"update": update})

    def _event(self, type: str, **members: Any) -> dict[str, Any]:
        return event(type, session_id=self._session_id, **members)

    def _message(self, update: dict[str, Any], role: str) -> dict[str, Any]:
        block = mapping(update.get("content"))
        is_text = block.get("type") == "text"
        return self._event(
            "message_chunk",
            text=text(block.get("text")) if is_text else "",
            content_blocks=[] if is_text or not block else [content_block(block)],
            protocol_message_id=text(update.get("messageId")),
            role=role,
        )

    def _plan(self, entries: Any) -> dict[str, Any]:
        return self._event(
            "plan",
            plan_entries=[
                present(
                    description=text(entry.get("content")),
                    status=text(entry.get("status")),
                    priority=text(entry.get("priority")),
                )
                for entry in objects(entries)
            ],
        )

    def _plan_update(self, plan: dict[str, Any]) -> dict[str, Any]:
        if plan.get("type") == "items":
            return self._plan(plan.get("entries"))
        return self._event("agent_plan", plan_content=text(plan.get("content")) or text(plan.get("uri")))

    def _context_window(self, update: dict[str, Any]) -> dict[str, Any]:
        used = count(update.get("used"))
        self._window = max(self._window, count(update.get("size")))  # it never shrinks within a session
        return self._event(
            "context_window",
            context_window_size=self._window,
            context_window_used=used,
            context_window_remaining=max(0, self._window - used),
            context_efficiency=used * 100 / self._window if self._window else 0,
        )

    def set_up(self, answer: dict[str, Any]) -> list[dict[str, Any]]:
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
            events.append(self._mode_event())
        self.config_options = config_options(answer.get("configOptions"))
        if self.config_options:
            events.append(self._models_event())
        return events

    def mode_set(self, mode_id: str) -> dict[str, Any]:
        """The mode is another one now, whoever chose it."""
        self._mode = mode_id
        return self._mode_event()

    def _mode_event(self) -> dict[str, Any]:
        return self._event("session_mode", current_mode_id=self._mode, available_modes=self._modes)

    def options_set(self, config_id: str, answer: dict[str, Any]) -> dict[str, Any]:
        """The backend chose a value and the agent answered with how all options stand now."""
        self.config_options = config_options(answer.get("configOptions"))
        return self._models_event("provider_response", config_id)

    def _models_event(self, source: str = "", config_id: str = "") -> dict[str, Any]:
        option = self.model_option() or {}
        return self._event(
            "session_models",
            current_model_id=option.get("current_value"),
            session_models=models(option),
            config_options=self.config_options,
            data=present(config_options_source=source, config_options_config_id=config_id),
        )

    def model_state(self) -> dict[str, Any]:
        """The member of the answer to `agent.session.new`; empty when the agent exposes nothing."""
        option = self.model_option() or {}
        return present(
            current_model_id=option.get("current_value"),
            models=models(option),
            config_options=self.config_options,
        )

    # what the agent can be asked for

    def check_mode(self, mode_id: str) -> None:
        """Raises NotOffered."""
        _among("mode", mode_id, [mode["id"] for mode in self._modes])

    def check_option(self, config_id: str, value: str) -> None:
        """Raises NotOffered."""
        _among("option", config_id, [option["id"] for option in self.config_options])
        option = next(option for option in self.config_options if option["id"] == config_id)
        values = [choice["value"] for choice in option.get("options", [])]
        if option["type"] == "boolean":
            values = ["true", "false"]
        if values:
            _among("value", value, values)

    def model_option(self) -> dict[str, Any] | None:
        """The config option that chooses the model."""
        return next((option for option in self.config_options if option.get("category") == "model"), None)


def _among(what: str, wanted: str, offered: list[str]) -> None:
    if wanted not in offered:
        known = f"there are {', '.join(offered)}" if offered else "the agent offers none"
        raise NotOffered(f"no such {what}: {wanted:.100}; {known}")
