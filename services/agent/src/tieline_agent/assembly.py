"""Pure: a model's answer put together from the pieces of its stream.

The standard way is: each call has an index, its first piece brings id and name, further ones bring arguments. What
else is seen, and understood here: no index, no id, an index used again for the next call, id and name in every
piece, a new id in every piece, null for "nothing", half of a character at the end of a piece.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tieline_protocol import jsontext
from tieline_protocol.errors import BadMessage


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Some text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """Some of what the model thinks, where the provider tells."""

    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of a tool call."""

    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, as the provider counts them; `estimated` where it does not."""

    input_tokens: int = 0
    output_tokens: int = 0
    estimated: bool = False

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens

    def plus(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.estimated or other.estimated,
        )


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is whole. `reason` is the provider's: stop, length, tool_calls, content_filter …"""

    reason: str
    usage: Usage | None = None


Delta = TextDelta | ReasoningDelta | CallDelta | Finished


@dataclass(slots=True)
class CallParts:
    """One tool call as far as it has come."""

    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class Assembly:
    """The tool calls of one answer."""

    calls: list[CallParts] = field(default_factory=list)
    size: int = 0
    _slots: dict[int, CallParts] = field(default_factory=dict)

    def add(self, piece: CallDelta) -> None:
        call = self._slots.get(piece.index) if piece.index is not None else self._without_index(piece)
        if call is None or _starts_another(call, piece):
            call = CallParts()
            self.calls.append(call)
        if piece.index is not None:
            self._slots[piece.index] = call
        call.id = call.id or piece.id or ""
        if piece.name and piece.name != call.name:
            call.name += piece.name
        call.arguments += piece.arguments or ""
        # A stream of empty pieces must reach a bound too.
        self.size += 16 + len(piece.id or "") + len(piece.name or "") + len(piece.arguments or "")

    def _without_index(self, piece: CallDelta) -> CallParts | None:
        if piece.id:
            return next((call for call in self.calls if call.id == piece.id), None)
        return self.calls[-1] if self.calls else None


def _starts_another(call: CallParts, piece: CallDelta) -> bool:
    if not (piece.name and call.name):
        return False
    if piece.id and call.id:
        return piece.id != call.id
    return _is_whole(call.arguments)


def _is_whole(arguments: str) -> bool:
    try:
        jsontext.loads(arguments)
    except BadMessage:
        return False
    return True


@dataclass(slots=True)
class Joiner:
    """Text in pieces, where a piece may end within a surrogate pair: the half waits for the next piece."""

    _half: str = ""

    def add(self, text: str) -> str:
        text, self._half = self._half + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return _mended(text)

    def rest(self) -> str:
        """What is left at the end: U+FFFD for a half that nothing completed."""
        half, self._half = self._half, ""
        return _mended(half)


def _mended(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
