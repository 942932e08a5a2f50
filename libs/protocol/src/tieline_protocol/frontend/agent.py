"""Pure: the coding agent of a session: prompts, permissions, questions."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import StringConstraints, model_validator

from tieline_protocol.frontend.actions import Action, MessageId, OfSession, Text, said


class AgentInitialize(OfSession):
    client_name: str | None = None
    client_version: str | None = None


class AgentSessionNew(OfSession):
    cwd: str | None = None
    mcp_servers: list[dict[str, Any]] | None = None


class AgentSessionLoad(OfSession):
    acp_session_id: (
        Annotated[Text, said("the agent's own id; without it, the one that the session has")] | None
    ) = None
    mcp_servers: list[dict[str, Any]] | None = None


class AgentSetMode(OfSession):
    mode_id: Text


class AgentSetModel(OfSession):
    model_id: Text


class AgentSetConfigOption(OfSession):
    config_id: Text
    value: str


class AgentAuthenticate(OfSession):
    method_id: Text


class AgentPrompt(OfSession):
    text: str
    attachments: (
        Annotated[
            list[dict[str, Any]],
            said(
                "each `{type: image, audio or resource, data: base64, mime_type?, name?}`, of a kind that"
                " `agent_capabilities` names"
            ),
        ]
        | None
    ) = None
    client_message_id: MessageId | None = None
    queue: (
        Annotated[bool, said("while a turn runs, wait for its end and be the next; else that is a conflict")]
        | None
    ) = None


class PermissionRespond(OfSession):
    request_id: str | None = None
    pending_id: Text
    option_id: str | None = None
    cancelled: bool | None = None

    @model_validator(mode="after")
    def _decided(self) -> PermissionRespond:
        if not self.cancelled and not self.option_id:
            raise ValueError("option_id, or cancelled: true, is required")
        return self


class QuestionAnswer(OfSession):
    question_id: Text
    answers: list[Any] | dict[str, Any] | None = None
    rejected: bool | None = None
    reject_reason: (
        Annotated[str, StringConstraints(max_length=4_000), said("what the agent reads of why")] | None
    ) = None

    @model_validator(mode="after")
    def _decided(self) -> QuestionAnswer:
        if self.answers is None and not self.rejected:
            raise ValueError("answers, or rejected: true, is required")
        return self


ACTIONS = (
    Action("agent.initialize", AgentInitialize, "{success, agent_info?, error?}", seconds=185),
    Action("agent.session.new", AgentSessionNew, "{success, session_id?, model_state?, error?}", seconds=125),
    Action(
        "agent.session.load", AgentSessionLoad, "{success, session_id?, model_state?, error?}", seconds=125
    ),
    Action(
        "agent.session.reset", AgentSessionNew, "{success, session_id?, model_state?, error?}", seconds=125
    ),
    Action("agent.session.set_mode", AgentSetMode, "{success}"),
    Action("agent.session.set_model", AgentSetModel, "{success}"),
    Action("agent.session.set_config_option", AgentSetConfigOption, "{success}"),
    Action("agent.session.authenticate", AgentAuthenticate, "{success}"),
    Action("agent.stderr", OfSession, "{lines}", repeat=True),
    Action("agent.prompt", AgentPrompt, "{generation}", repeat=True),
    Action("agent.cancel", OfSession, "{state}", seconds=45),
    Action("agent.permissions.list", OfSession, "{permissions}", repeat=True),
    Action("agent.permissions.respond", PermissionRespond, "{status}"),
    Action("question.answer", QuestionAnswer, "{}"),
)
