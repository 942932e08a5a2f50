"""The prompts of one agent process as they are run: handed to the agent, ended, cancelled, lost with it.

Which prompt runs and which one's end is told is decided in prompts.py. Ends are told in the agent's order: whatever
it said before its answer is in the queue by then.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tieline_agentctl import tracing
from tieline_agentctl.acp import Acp, AcpFailed, AgentGone
from tieline_agentctl.acp_shapes import text, usage
from tieline_agentctl.event_queue import EventQueue
from tieline_agentctl.events import event
from tieline_agentctl.prompts import Prompt, Prompts
from tieline_agentctl.scope import Scope

CANCEL_PATIENCE = 3.0


class NotAcknowledged(Exception):
    """The agent did not end its prompt in time after a cancel."""


@dataclass(slots=True)
class _Run:
    """A prompt that the agent has or is about to get."""

    session_id: str
    traceparent: str | None
    written: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Hooks:
    """What else happens around a prompt, done by the conversation. None of them waits."""

    started: Callable[[], None]
    written: Callable[[], None]  # the agent has the prompt in its pipe
    close_tools: Callable[[str, bool], None]  # of this session; True spares what works by itself
    cancel_permissions: Callable[[], None]


class Turns:
    """Runs prompts, one current one at a time. `unusable` ends an agent that closed its pipes but lives."""

    def __init__(
        self,
        acp: Acp,
        events: EventQueue,
        scope: Scope,
        hooks: Hooks,
        unusable: Callable[[], Awaitable[None]],
    ) -> None:
        self._acp = acp
        self._events = events
        self._scope = scope
        self._hooks = hooks
        self._unusable = unusable
        self._runs: dict[Prompt, _Run] = {}
        self.prompts = Prompts()

    def submit(self, prompt: Prompt, session_id: str, can_queue: bool) -> None:
        """Take a prompt; TooManyWaiting. Permissions that are open belong to the past."""
        start = self.prompts.submitted(prompt, can_queue)
        self._hooks.cancel_permissions()
        self._runs[prompt] = _Run(session_id, tracing.current())
        if start:
            self._start(prompt)

    def _start(self, prompt: Prompt) -> None:
        self._hooks.started()
        self._scope.spawn(self._run(prompt, self._runs[prompt]), f"prompt {prompt.generation}")

    async def _run(self, prompt: Prompt, run: _Run) -> None:
        def written() -> None:
            run.written.set()
            self._hooks.written()

        try:
            answer = await self._asked(prompt, run, written)
        except AgentGone:
            # Its exit ends the turn, when all of its output has been read. One that only closed its pipes is
            # of no use either.
            await self._unusable()
            return
        except AcpFailed as failure:
            end = event("error", error=str(failure), prompt_generation=prompt.generation)
        else:
            end = event(
                "complete",
                session_id=run.session_id,
                prompt_generation=prompt.generation,
                data={"stop_reason": text(answer.get("stopReason"))},
                usage=usage(answer.get("usage")),
            )
        self._ended(prompt, end)

    async def _asked(self, prompt: Prompt, run: _Run, written: Callable[[], None]) -> dict[str, Any]:
        """The agent's answer. What it does until then is a part of what was asked."""
        about = {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": run.session_id}
        with tracing.work("invoke_agent", "internal", run.traceparent, about) as doing:
            run.traceparent = doing.traceparent
            answer = await self._acp.prompt(run.session_id, prompt.content, written, run.traceparent)
            used = usage(answer.get("usage"))
            doing.set({"gen_ai.response.finish_reasons": [text(answer.get("stopReason"))]})
            if used:
                doing.set({f"gen_ai.usage.{name}": used[name] for name in ("input_tokens", "output_tokens")})
        return answer

    @property
    def traceparent(self) -> str | None:
        """What the current prompt is a part of."""
        current = self.prompts.current
        return self._runs[current].traceparent if current is not None else None

    def _ended(self, prompt: Prompt, end: dict[str, Any]) -> None:
        ending = self.prompts.ended(prompt)
        run = self._release(prompt)
        if ending.told:
            self._hooks.cancel_permissions()
            self._hooks.close_tools(run.session_id, False)
            self._events.put_event(end)
        if ending.next is not None:
            self._start(ending.next)

    def _release(self, prompt: Prompt) -> _Run:
        """Whoever waits for something of this prompt goes on."""
        run = self._runs.pop(prompt)
        run.written.set()
        run.ended.set()
        return run

    async def cancel(self) -> None:
        """Returns when the current prompt has ended, at once when there is none; NotAcknowledged."""
        prompt = self.prompts.current
        if prompt is None:
            return
        run = self._runs[prompt]
        self._hooks.close_tools(run.session_id, True)
        try:
            async with asyncio.timeout(CANCEL_PATIENCE):
                await run.written.wait()
                await self._acp.cancel(run.session_id)
                self._hooks.cancel_permissions()
                await run.ended.wait()
        except AgentGone:
            await run.ended.wait()
        except TimeoutError:
            if prompt is self.prompts.current:
                following = self.prompts.abandoned()
                if following is not None:
                    self._start(following)
            raise NotAcknowledged from None

    def agent_gone(self, error: str, data: dict[str, Any]) -> bool:
        """Every prompt ends here, running or waiting. False when there was none to tell of."""
        ended = self.prompts.all_ended()
        for session_id in {run.session_id: None for run in self._runs.values()}:
            self._hooks.close_tools(session_id, False)
        for prompt in ended:
            end = event("error", error=error, prompt_generation=prompt.generation, data=data)
            self._events.put_event(end)
        for prompt in list(self._runs):
            self._release(prompt)
        return bool(ended)
