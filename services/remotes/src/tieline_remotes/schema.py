"""Pure: what may be registered, and what may be passed to it.

One bad function is refused by itself, with a pointer; the good ones beside it are kept. A schema never reaches out
(a `$ref` to an address is refused) and never runs away (regular expressions are matched in linear time), since
whoever registers it is not whom it would hurt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NoReturn

import jsonschema_rs
from tieline_protocol import jsontext
from tieline_protocol.errors import BadMessage, Code, Refused
from tieline_protocol.remotes import RemoteFunction

MAX_FUNCTIONS = 512  # in one registration; a model is offered 128 at most
MAX_NAME = 128
MAX_DESCRIPTION = 16_384
MAX_SCHEMA_BYTES = 65_536
MAX_NESTING = 32

_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}


class _Bad(Exception):
    """Why a function is refused, and where."""

    def __init__(self, error: str, pointer: str = "") -> None:
        super().__init__(error)
        self.error = error
        self.pointer = pointer


def check_name(name: object) -> str:
    """A name of a remote or function. Raises Refused (bad_request)."""
    problem = _name_problem(name)
    if problem is not None:
        raise Refused(Code.BAD_REQUEST, f"a name {problem}")
    return str(name)


def _name_problem(name: object) -> str | None:
    if not isinstance(name, str) or not name.strip():
        return "must be a non-empty string"
    if len(name) > MAX_NAME:
        return f"has at most {MAX_NAME} characters"
    if _CONTROL.search(name):
        return "holds no control characters and no halves of surrogate pairs"
    return None


def check_functions(functions: list[Any]) -> tuple[list[RemoteFunction], list[dict[str, str]]]:
    """The functions that are good, and why the others are refused: `{name, error, pointer}` (a JSON pointer).

    Raises Refused where there are too many.
    """
    if len(functions) > MAX_FUNCTIONS:
        raise Refused(Code.TOO_LARGE, f"{len(functions)} functions, at most {MAX_FUNCTIONS}")
    good: dict[str, RemoteFunction] = {}
    refused: list[dict[str, str]] = []
    for index, item in enumerate(functions):
        named = item.get("name") if isinstance(item, dict) else None
        try:
            function = _check(item)
            if function.name in good:
                raise _Bad(f"there is another function {function.name!r} in this remote", "/name")
        except _Bad as bad:
            name = named if isinstance(named, str) else ""
            refused.append({"name": name[:MAX_NAME], "error": bad.error, "pointer": f"/{index}{bad.pointer}"})
        else:
            good[function.name] = function
    return list(good.values()), refused


def _check(item: Any) -> RemoteFunction:
    if not isinstance(item, dict):
        raise _Bad("a function must be an object")
    if problem := _name_problem(item.get("name")):
        raise _Bad(f"a name {problem}", "/name")
    description = item.get("description", "")
    if not isinstance(description, str):
        raise _Bad("a description must be a string", "/description")
    if len(description) > MAX_DESCRIPTION:
        raise _Bad(f"a description has at most {MAX_DESCRIPTION:,} characters", "/description")
    if item.get("type", "function") != "function":
        raise _Bad("a function's type is function", "/type")
    parameters = item.get("parameters", _NO_ARGUMENTS)
    _check_parameters(parameters)
    return RemoteFunction(name=item["name"], description=description, parameters=parameters)


def _check_parameters(parameters: Any) -> None:
    if not isinstance(parameters, dict):
        raise _Bad("parameters must be a JSON Schema object", "/parameters")
    if parameters.get("type") != "object":
        raise _Bad("the schema of parameters must have type object", "/parameters/type")
    for pointer, node, depth in _nodes(parameters, "/parameters", 0):
        if depth > MAX_NESTING:
            raise _Bad(f"a schema nests at most {MAX_NESTING} levels deep", pointer)
        if node.get("type") == "array" and "items" not in node and "prefixItems" not in node:
            raise _Bad("an array must say what its items are", pointer)
        reference = node.get("$ref")
        if isinstance(reference, str) and not reference.startswith("#"):
            raise _Bad("a $ref stays within its schema", f"{pointer}/$ref")
    try:
        if len(jsontext.dumps(parameters)) > MAX_SCHEMA_BYTES:
            raise _Bad(f"a schema has at most {MAX_SCHEMA_BYTES:,} bytes", "/parameters")
        compile_schema(parameters)
    except jsonschema_rs.ValidationError as exc:
        path = "".join(f"/{part}" for part in exc.instance_path)
        raise _Bad(f"not a JSON Schema: {exc.message}"[:500], f"/parameters{path}") from exc
    except (BadMessage, ValueError, jsonschema_rs.ReferencingError) as exc:
        raise _Bad(f"not a JSON Schema: {exc}"[:500], "/parameters") from exc


def _nodes(value: Any, pointer: str, depth: int) -> Iterator[tuple[str, dict[str, Any], int]]:
    """All objects within a schema. Stops one level below what is allowed, so that its own depth is bounded."""
    waiting = [(pointer, value, depth)]
    while waiting:
        where, node, level = waiting.pop()
        if isinstance(node, dict):
            yield where, node, level
            children = [(f"{where}/{key}", child, level + 1) for key, child in node.items()]
        elif isinstance(node, list):
            children = [(f"{where}/{index}", child, level + 1) for index, child in enumerate(node)]
        else:
            continue
        if level <= MAX_NESTING:
            waiting.extend(reversed(children))


def _no_retrieval(uri: str) -> NoReturn:
    raise ValueError(f"a $ref stays within its schema: {uri}")


def compile_schema(parameters: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
    """What arguments are checked with. Raises ValueError and jsonschema_rs's errors for a bad schema."""
    return jsonschema_rs.Draft202012Validator(
        parameters, retriever=_no_retrieval, pattern_options=jsonschema_rs.RegexOptions()
    )


def check_arguments(validator: jsonschema_rs.Draft202012Validator, args: Any) -> dict[str, Any]:
    """Arguments that fit their schema. Raises Refused (invalid_arguments) that says what does not fit, and where."""
    if not isinstance(args, dict):
        raise Refused(Code.INVALID_ARGUMENTS, "the arguments must be an object")
    problem = next(validator.iter_errors(args), None)
    if problem is not None:
        pointer = "".join(f"/{part}" for part in problem.instance_path)
        message = f"{pointer or 'the arguments'}: {problem.message}"[:1000]
        raise Refused(Code.INVALID_ARGUMENTS, message, details={"pointer": pointer})
    return args
