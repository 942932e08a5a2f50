"""Pure: what a function's signature and docstring tell a model: name, description, JSON Schema of its arguments.

Types come from the hints, by pydantic; what is said of a parameter comes from the docstring's lines
`name: text` (with or without an `Args:` heading). A parameter of type `Call` is not an argument: it is how the
function reports progress and sees that it is cancelled.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from tieline.errors import TielineError

_PARAMETER = re.compile(r"\s*\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s+(\S.*)")
_HEADING = re.compile(r"\s*(args|arguments|parameters|returns|raises|yields)\s*:\s*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Signature:
    """How a function is offered and called. `context` is the name of its parameter of type Call, if it has one."""

    name: str
    description: str
    parameters: dict[str, Any]
    context: str | None
    _model: type[BaseModel]

    def as_registered(self) -> dict[str, Any]:
        """The entry of `remote-connect`."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}

    def arguments(self, args: Any) -> dict[str, Any]:
        """The arguments of a call, in the types of the hints. Raises TielineError (invalid_arguments)."""
        try:
            values = self._model.model_validate(args)
        except ValidationError as exc:
            problems = (
                f"{'.'.join(map(str, problem['loc'])) or 'the arguments'}: {problem['msg']}"
                for problem in exc.errors(include_url=False)
            )
            raise TielineError("invalid_arguments", "; ".join(problems)) from exc
        return {name: getattr(values, name) for name in values.model_fields_set}


def of(function: Callable[..., Any], context_type: type, name: str | None = None) -> Signature:
    """Read a function. Raises TypeError for one that cannot be called with named arguments."""
    hints = get_type_hints(function, include_extras=True)
    summary, told = _read(inspect.getdoc(function) or "", set(inspect.signature(function).parameters))
    fields: dict[str, Any] = {}
    context: str | None = None
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        if hint is context_type:
            context = parameter.name
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{function.__name__}: {parameter} cannot be passed by name")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hint, Field(default, description=told.get(parameter.name)))
    model = create_model(
        function.__name__, __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=False), **fields
    )
    schema = model.model_json_schema()
    schema.pop("title", None)
    for described in schema.get("properties", {}).values():
        described.pop("title", None)
    schema.setdefault("properties", {})
    return Signature(name or function.__name__, summary, schema, context, model)


def _read(doc: str, names: set[str]) -> tuple[str, dict[str, str]]:
    """What stands before the first heading, without the lines about parameters; and what those say."""
    summary: list[str] = []
    told: dict[str, str] = {}
    current: str | None = None
    headed = False
    for line in doc.splitlines():
        match = None if _HEADING.match(line) else _PARAMETER.match(line)
        if match and match[1] in names:
            current = match[1]
            told[current] = match[2].strip()
        elif current is not None and line.startswith(" ") and line.strip() and not _HEADING.match(line):
            told[current] += " " + line.strip()
        elif _HEADING.match(line):
            current, headed = None, True
        elif not headed:
            current = None
            summary.append(line)
    return "\n".join(summary).strip(), told
