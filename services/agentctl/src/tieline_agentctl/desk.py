"""Where the agent's questions for permission are answered: asked, told to the backend, answered, once each.

Which answer may be given to which question is decided in permissions.py.
"""

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import Any

import structlog

from tieline_agentctl.acp import Acp, AgentGone
from tieline_agentctl.acp_shapes import present
from tieline_agentctl.agent_settings import AgentSettings
from tieline_agentctl.event_queue import EventQueue
from tieline_agentctl.events import event
from tieline_agentctl.permissions import DELIVERY_FAILED, Permission, Permissions, Refused, from_agent
from tieline_agentctl.scope import Scope

log = structlog.get_logger()


class Desk:
    """The permissions of one agent process."""

    def __init__(
        self,
        settings: AgentSettings,
        acp: Acp,
        events: EventQueue,
        scope: Scope,
        timestamp: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._acp = acp
        self._events = events
        self._scope = scope
        self._timestamp = timestamp
        self._permissions = Permissions()

    def asked(self, rpc_id: Any, params: dict[str, Any], tool: dict[str, Any]) -> None:
        """The agent waits for a decision; `tool` is all that is known of its tool call."""
        permission = from_agent(
            rpc_id,
            params,
            tool,
            request_id=str(uuid.uuid4()),
            nanoseconds=time.time_ns(),
            created_at=self._timestamp(),
        )
        if self._settings.auto_approve:
            self._answer_soon(permission, permission.first_allowing() or None)
        elif not self._permissions.opened(permission):
            log.error("too many permissions are open, one is cancelled", tool_call_id=permission.tool_call_id)
            self._answer_soon(permission, None)
        else:
            self._tell(
                "permission_request",
                permission,
                tool_call_id=permission.tool_call_id,
                permission_title=permission.title,
                permission_options=permission.options,
                action_type=permission.action_type,
                action_details=present(description=permission.description, raw_input=permission.details),
            )

    def listed(self) -> list[dict[str, Any]]:
        return self._permissions.listed(self._settings.task_id, self._settings.session_id)

    def with_pending(self, pending_id: str) -> Permission:
        """The open permission of this pending id; Refused."""
        return self._permissions.with_pending(pending_id)

    async def answer(self, request_id: str, pending_id: str, option_id: str | None) -> Permission:
        """Give the agent its answer, None for cancelled; Refused. Once begun it is carried out."""
        permission = self._permissions.claim(request_id, pending_id, option_id)
        delivery = self._scope.spawn(self._deliver(permission, option_id), "permission's answer")
        if not await asyncio.shield(delivery):
            raise Refused(DELIVERY_FAILED)
        return permission

    async def _deliver(self, permission: Permission, option_id: str | None) -> bool:
        try:
            await self._acp.answer_permission(permission.rpc_id, option_id)
        except AgentGone:
            self._cancelled(permission)
            return False
        if option_id is None:
            self._cancelled(permission)
        else:
            self._permissions.answered(permission)
        return True

    def cancel_all(self) -> None:
        """Nobody will be asked any more: the agent hears that everything open was cancelled."""
        for permission in self._permissions.cancel_all():
            self._cancelled(permission)
            self._answer_soon(permission, None)

    def agent_gone(self) -> None:
        """Nobody waits for an answer any more."""
        for permission in self._permissions.cancel_all():
            self._cancelled(permission)

    def _cancelled(self, permission: Permission) -> None:
        self._permissions.cancelled(permission)
        self._tell("permission_cancelled", permission)

    def _tell(self, type: str, permission: Permission, **members: Any) -> None:
        self._events.put_event(
            event(
                type,
                session_id=self._settings.session_id or permission.acp_session,
                request_id=permission.request_id,
                pending_id=permission.pending_id,
                **members,
            )
        )

    def _answer_soon(self, permission: Permission, option_id: str | None) -> None:
        self._scope.spawn(self._answered(permission, option_id), "permission's answer")

    async def _answered(self, permission: Permission, option_id: str | None) -> None:
        try:
            await self._acp.answer_permission(permission.rpc_id, option_id)
        except AgentGone:
            log.info("the agent is gone before it got an answer", tool_call_id=permission.tool_call_id)
