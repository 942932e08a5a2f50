"""Tools as the expert agent's loop takes them: `.name`, `.description`, `.to_openai_dict()`, `.execute_async(**args)`.

How a remote is reached is not known here: a `RemoteToolSpec` has a function that makes the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tieline_protocol import naming
from tieline_protocol.naming import Pair
from tieline_protocol.remotes import RemoteFunction

OnProgress = Callable[[dict[str, Any]], None]

_DESCRIPTION = 1024  # providers refuse a whole request for one longer description


class Call(Protocol):
    """Call a function of the user's remote and return its result. Raises TielineError with the outcome's code."""

    async def __call__(
        self,
        remotename: str,
        function: str,
        args: dict[str, Any],
        timeout: float,
        on_progress: OnProgress | None = None,
        traceparent: str | None = None,
    ) -> Any: ...


class Tool(Protocol):
    """What the loop can use."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    def to_openai_dict(self) -> dict[str, Any]: ...

    async def execute_async(self, /, **args: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class RemoteToolSpec:
    """A function of a remote as a tool. `name` is the model's name for it (naming.py)."""

    name: str
    remotename: str
    function: RemoteFunction
    call: Call
    timeout: float = 30.0
    on_progress: OnProgress | None = None
    traceparent: str | None = None

    @property
    def description(self) -> str:
        return self.function.description

    @property
    def pair(self) -> Pair:
        return Pair(self.remotename, self.function.name)

    def to_openai_dict(self) -> dict[str, Any]:
        function: dict[str, Any] = {"name": self.name, "parameters": _object_schema(self.function.parameters)}
        if self.description:
            function["description"] = _shortened(self.description)
        return {"type": "function", "function": function}

    async def execute_async(self, /, **args: Any) -> Any:
        """The function's result. Raises TielineError; the loop makes a string for the model of it."""
        return await self.call(
            self.remotename, self.function.name, args, self.timeout, self.on_progress, self.traceparent
        )


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of one run: by the name the model uses, what is behind each name, and what found no room."""

    tools: Mapping[str, Tool]
    pairs: Mapping[str, Pair]
    dropped: Sequence[Pair]

    def to_openai(self) -> list[dict[str, Any]]:
        return [tool.to_openai_dict() for tool in self.tools.values()]


def specs(
    remotes: Iterable[tuple[str, Iterable[RemoteFunction]]], call: Call, timeout: float = 30.0
) -> list[RemoteToolSpec]:
    """The tools of remotes: (remote name, its functions)."""
    return [
        RemoteToolSpec(naming.tool_name(Pair(remotename, function.name)), remotename, function, call, timeout)
        for remotename, functions in remotes
        for function in functions
    ]


def toolbox(own: Sequence[Tool], remote: Sequence[RemoteToolSpec]) -> Toolbox:
    """Join the agent's own tools and those of remotes: every name once, at most as many as the API takes."""
    tools: dict[str, Tool] = {tool.name: tool for tool in own[: naming.MOST_TOOLS]}
    pairs = {name: Pair("", name) for name in tools}
    by_pair = {spec.pair: spec for spec in remote}
    chosen, dropped = naming.choose(by_pair, naming.MOST_TOOLS - len(tools))
    for name, pair in naming.names(chosen, taken=tools).items():
        tools[name] = replace(by_pair[pair], name=name)
        pairs[name] = pair
    return Toolbox(tools, pairs, dropped)


def _object_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    # What is not the schema of an object would fail every request of the thread.
    schema = dict(parameters) if parameters.get("type", "object") == "object" else {}
    properties = schema.get("properties")
    return {**schema, "type": "object", "properties": properties if isinstance(properties, Mapping) else {}}


def _shortened(text: str) -> str:
    return text if len(text) <= _DESCRIPTION else text[: _DESCRIPTION - 1] + "…"
