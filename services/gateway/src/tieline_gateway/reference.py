"""Writes the reference of the frontend protocol from the models: `python -m tieline_gateway.reference [PATH]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tieline_protocol import frontend
from tieline_protocol.errors import Code
from tieline_protocol.frontend import Action, Route

from tieline_gateway.close_codes import CloseCode
from tieline_gateway.config import Limits

DEFAULT = Path("docs/frontend-reference.md")

_INTRODUCTION = """\
# The frontend protocol: reference

Generated from the code by `python -m tieline_gateway.reference`; do not edit it by hand.

One WebSocket, text frames, one JSON object each: `{type?, id?, action, payload?, metadata?}`. `type` is `request`
(the default), `response`, `error` or `notification`; a response or error has the `id` and `action` of its request;
the payload of an error is `{code, message, details?}`. `metadata.traceparent` may stand in any frame. An `id` is a
text of 1 to 256 characters or an integer; while it is pending it cannot be used again. Unknown fields are ignored.
"""

_EVENTS = """\
## Events

`session.subscribe` is answered with `{logs: {log: {cursor, reset}}}`, then the notification `session.event` brings
`{session_id, log, cursor, time, event}`. A cursor is an opaque text: subscribing with it brings everything after the
event that carried it. Instead of a cursor: `start` (everything kept), `snapshot` (the last event of each value type),
`now` (live only). Without one the agent log comes as by `start`, the workspace log as by `snapshot`. `reset: true`:
the cursor names a place that is not kept any more, and a snapshot follows. Subscribing again with the same cursor, or
with none, changes nothing; with another one it begins anew from there. What each event carries: [events.md](events.md).

Value types:
"""

_REMOTES = f"""\
## Remotes and chat

An owner hears the notifications `remote-call {{requestId, remotename, function, args, deadline_ms}}`,
`remote-call-cancel {{requestId, reason}}` (nobody waits any more) and `remote-replaced {{remotename}}` (somebody
registered the name later). It says `remote-call-result` and `remote-call-progress`, as requests or as notifications;
of a call that is not awaited from its connection (unknown, late, answered before, somebody else's) a request is
answered with `not_found`. A caller hears `remote-call-progress` and, once, `remote-call-result`; when its socket
closes the call goes on.

A result is passed on as the text that it is when it is JSON that every parser takes: no NaN or Infinity, no half of a
surrogate pair, at most 254 levels deep, at most {Limits().result_bytes:,} bytes. Otherwise that call alone ends with an
error, also when the whole frame cannot be parsed. Where both `result` and `error` are told the error counts; neither
is an error too.

`thread.event` brings `{{thread_id, cursor, time, event}}`. A thread's log has no value types: `snapshot`, and what
follows `reset: true`, is all of it.
"""


def _who(action: Action) -> str:
    match action.route:
        case Route.GATEWAY:
            return "the gateway"
        case Route.SERVICE:
            return f"any replica of {action.service}"
        case Route.OWNER:
            return f"the {action.named.removesuffix('_id')}'s owner"


def text() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    yield from _limits(Limits())
    yield "## Error codes\n"
    yield ", ".join(f"`{code}`" for code in Code) + "\n"
    yield "## Close codes\n"
    yield "4000–4499: come back, not before `retry_after_ms` of the reason (JSON); 4500–4999: do not.\n"
    yield "| code | meaning | come back |\n|---|---|---|"
    for close in CloseCode:
        yield f"| {int(close)} | {close.meaning} | {'yes' if close.come_back else 'no'} |"
    yield "| 1007 | a text frame that is not UTF-8 | yes |"
    yield "| 1009 | a frame above the limit | yes |\n"
    yield _EVENTS
    for log, types in frontend.VALUE_TYPES.items():
        yield f"- {log}: " + ", ".join(f"`{type}`" for type in types)
    yield "\nThe notification `changed {what, id, change}` says that one of the user's lists changed.\n"
    yield _REMOTES
    yield "## Actions\n"
    for action in frontend.ACTIONS.values():
        yield from _action(action)


def _limits(limits: Limits) -> Iterator[str]:
    yield "## Limits\n"
    yield f"- a frame from a client: {limits.frame_bytes:,} bytes (close 1009)"
    yield f"- an answer: {limits.result_bytes:,} bytes (`too_large`)"
    yield f"- requests of a connection under way: {limits.in_flight} (`busy`), {limits.in_flight_bytes:,} bytes"
    yield f"- logs that a connection follows: {limits.subscriptions} (`too_large`)"
    yield f"- remote calls of a connection under way, made or to be answered: {limits.calls} (`busy`)"
    yield f"- remotes that a connection exposes: {limits.remotes} (`too_large`)"
    yield f"- the first frame: within {limits.auth_seconds:g} s; a ping every 20 s, a pong within 20 s"
    yield f"- a viewer that reads nothing: closed after {limits.stuck_seconds:g} s, come back\n"


def _action(action: Action) -> Iterator[str]:
    yield f"### `{action.name}`\n"
    facts = [f"answered by {_who(action)}", f"within {action.seconds:g} s"]
    if action.ordered:
        facts.append("keeps the order in which it was sent")
    if action.repeat:
        facts.append("sent again when its fate is unknown")
    yield "; ".join(facts).capitalize() + ".\n"
    schema = action.payload.model_json_schema()
    properties: dict[str, Any] = schema.get("properties", {})
    if properties:
        required = set(schema.get("required", ()))
        yield "| field | type | |\n|---|---|---|"
        for name, field in properties.items():
            kind, bounds = _type(field, schema.get("$defs", {}))
            facts = ["" if name in required else "optional", bounds, _described(field)]
            yield f"| `{name}` | {kind} | {'; '.join(filter(None, facts))} |"
        yield ""
    yield f"Answer: `{action.answer}`\n"


def _described(field: dict[str, Any]) -> str:
    """What the model says of a field itself. The text of a whole class is no such thing."""
    for place in (field, *field.get("anyOf", ())):
        if "$ref" not in place and isinstance(text := place.get("description"), str):
            return text
    return ""


def _type(field: dict[str, Any], shapes: dict[str, Any]) -> tuple[str, str]:
    """A field's type and its bounds, in words."""
    if "$ref" in field:
        shape = shapes[field["$ref"].rpartition("/")[2]]
        required = shape.get("required", ())
        fields = ", ".join(name if name in required else f"{name}?" for name in shape["properties"])
        return f"object `{{{fields}}}`", ""
    if "anyOf" in field:
        kinds = [_type(option, shapes) for option in field["anyOf"] if option.get("type") != "null"]
        return " or ".join(kind for kind, _ in kinds), "; ".join(filter(None, (bound for _, bound in kinds)))
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"]), ""
    kind = str(field.get("type", "any JSON"))
    words = {
        "minLength": "at least {} characters",
        "maxLength": "up to {} characters",
        "minimum": "from {}",
        "maximum": "up to {}",
        "minItems": "at least {} of them",
        "maxItems": "up to {} of them",
        "pattern": "`{}`",
    }
    if kind == "string" and field.get("minLength") == 1:
        words["minLength"] = "not empty"
    bounds = ", ".join(said.format(field[key]) for key, said in words.items() if key in field)
    if kind == "array":
        kind = f"list of {_type(field.get('items', {}), shapes)[0]}"
    elif kind == "object" and isinstance(field.get("additionalProperties"), dict):
        kind = f"object of {_type(field['additionalProperties'], shapes)[0]}"
    return kind, bounds


def main() -> None:
    """Write the page."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    path.write_text(text())


if __name__ == "__main__":
    main()
