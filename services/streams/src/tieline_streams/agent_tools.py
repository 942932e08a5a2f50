"""What the daemon asks in its agent's name: the user's remotes as tools, and questions to the user.

Everything else that a daemon may ask (tasks, plans, reviews of another product) is answered with `unknown action`.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from tieline_protocol.errors import Code, Refused

from tieline_streams.journal import Journal
from tieline_streams.questions import ASK
from tieline_streams.remote_tools import RemoteTools
from tieline_streams.reverse_requests import Asked


class AgentTools:
    """Of one session."""

    def __init__(self, journal: Journal, remotes: RemoteTools) -> None:
        self._journal = journal
        self._remotes = remotes
        self._closed = False
        self.asked_by: str | None = (
            None  # the trace of the newest prompt: what the agent does is a part of it
        )

    def asked(self, asked: Asked) -> dict[str, Any] | Coroutine[Any, Any, dict[str, Any]] | None:
        """The answer to a request, or what will give it; None: it waits for the user. Raises TielineError."""
        if self._closed:
            raise Refused(Code.UNAVAILABLE, "nobody can answer this now")
        match asked.action:
            case "mcp.list_plugin_tools":
                return self._remotes.listed(asked.payload)
            case "mcp.invoke_plugin_tool":
                return self._remotes.invoked(asked.payload, asked.traceparent or self.asked_by)
            case action if action == ASK:
                self._journal.question(asked.id, asked.payload)
                return None
            case "mcp.clarification_timeout":
                # It does not say of which question: an agent has one.
                self._journal.close_questions("the agent does not wait for the answer any more")
                return {}
        raise Refused(Code.UNKNOWN_ACTION, f"{asked.action} is not supported")

    def lost(self) -> None:
        """The agent socket is down: calls end, questions stay."""
        self._remotes.cancel("the connection to the workspace was lost")

    def stop(self, reason: str) -> None:
        """What the agent asked for is not waited for any more."""
        self._remotes.cancel(reason)
        self._journal.close_questions(reason)

    def leave(self) -> None:
        """Another process goes on with the session: calls under way end, what waits for the user stays."""
        self._closed = True
        self._remotes.cancel("the service that made the call is being replaced; it may have run")

    def close(self, reason: str) -> None:
        """The session ends: nothing is begun any more."""
        self._closed = True
        self.stop(reason)
