"""Pure: the frames of remote calls as both ends of the benchmark write and read them, and whether each call ended well.

Call number N asks for N and must be answered with N, once.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

FUNCTION = "echo"
_CALL = (
    b'{"type":"request","id":%d,"action":"remote-call",'
    b'"payload":{"remotename":"%b","function":"echo","args":{"value":%d}}}'
)
_RESULT = b'{"type":"notification","action":"remote-call-result","payload":{"requestId":"%b","result":%d}}'


class Wrong(Exception):
    """A call that was refused, failed, or was answered with somebody else's result."""


def registration(remotename: str) -> dict[str, object]:
    """The payload that registers a remote with one function."""
    schema = {"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]}
    function = {"name": FUNCTION, "description": "says what it is given", "parameters": schema}
    return {"remotename": remotename, "functions": [function]}


def call(remotename: str, number: int) -> bytes:
    """The frame that makes a call."""
    return _CALL % (number, remotename.encode(), number)


def answer(text: bytes) -> bytes | None:
    """The frame that answers a call, where `text` is one."""
    if b'"action":"remote-call"' not in text[:64]:
        return None
    payload = orjson.loads(text)["payload"]
    return _RESULT % (payload["requestId"].encode(), payload["args"]["value"])


class Ledger:
    """What the caller hears of its calls."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._ended: set[int] = set()

    def heard(self, text: bytes) -> int | None:
        """The number of the call that ended; None where none did. Raises Wrong."""
        frame = orjson.loads(text)
        kind, payload = frame["type"], frame["payload"]
        if kind == "response":
            self._numbers[payload["requestId"]] = frame["id"]
            return None
        if kind == "notification" and frame["action"] != "remote-call-result":
            return None
        number = self._numbers.pop(payload.get("requestId"), None)
        if number is None or payload.get("result") != number or number in self._ended:
            raise Wrong(f"call {number}: {text[:500].decode(errors='replace')}")
        self._ended.add(number)
        return number


def shares(remotenames: Sequence[str], count: int) -> list[str]:
    """Which remote each of `count` calls asks: all of them alike."""
    return [remotenames[number % len(remotenames)] for number in range(count)]
