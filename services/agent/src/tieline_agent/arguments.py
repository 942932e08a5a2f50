"""Pure: what the model wrote as the arguments of a call: an object, or a sentence that says what is wrong with it.

Nothing but an object ever reaches a tool. Nothing at all, and `null`, mean no arguments. Text that is a JSON string
of an object is unwrapped once (some providers encode twice).
"""

from __future__ import annotations

from typing import Any

from tieline_protocol import jsontext
from tieline_protocol.errors import BadMessage, Code, Refused

_SHOWN = 200


def parse(text: str, *, cut: bool = False) -> dict[str, Any]:
    """The arguments. `cut` says that the answer ended for want of tokens, so that an empty text is not none.

    Raises Refused (`invalid_arguments`) with a message for the model.
    """
    if not text.strip():
        if cut:
            raise _broken("they were cut off by the limit of tokens", text)
        return {}
    try:
        value = jsontext.loads(text)
        if isinstance(value, str):
            value = jsontext.loads(value)
    except BadMessage as exc:
        reason = "they were cut off by the limit of tokens" if cut else exc.message
        raise _broken(reason, text) from exc
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _broken(f"a JSON object is needed, not {_kind(value)}", text)
    return value


def _broken(reason: str, text: str) -> Refused:
    shown = f"; written was: {text[:_SHOWN]}{'…' if len(text) > _SHOWN else ''}" if text else ""
    return Refused(Code.INVALID_ARGUMENTS, f"the arguments cannot be used: {reason}{shown}")


def _kind(value: object) -> str:
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "a string", list: "an array"}
    return kinds[type(value)]


def as_history(text: str) -> str:
    """The arguments as they may stand in a history: always the JSON text of an object.

    Providers that parse what they are sent refuse a whole history for one broken text; the model reads what it
    wrote in the answer to the call.
    """
    try:
        value = parse(text)
    except Refused:
        return "{}"
    if text.lstrip().startswith("{"):
        return text
    return jsontext.dumps(value).decode()
