"""Pure: the end of the shell's output as it was published: a suffix of it, never half a character."""

from __future__ import annotations

from collections import deque

from tieline_streams import merge

TAIL = 64 * 1024  # in UTF-8 bytes


class Tail:
    """Keeps the events as they are and looks into them only when asked."""

    def __init__(self, size: int = TAIL) -> None:
        self._size = size
        self._raws: deque[bytes] = deque()
        self._bytes = 0

    def numbered(self, raw: bytes) -> None:
        """A `shell_output` that has just been given its offset."""
        self._raws.append(raw)
        self._bytes += len(raw)
        # A control character takes 6 bytes of JSON for one of text; beyond that nothing older can be needed.
        while self._bytes - len(self._raws[0]) > 6 * self._size:
            self._bytes -= len(self._raws.popleft())

    def text(self) -> str:
        """At most the last `size` bytes of the output."""
        parts = (merge.parse(raw).get("data", "") for raw in self._raws)
        text = "".join(part for part in parts if isinstance(part, str))
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")  # halves are joined
        data = text.encode()
        if len(data) <= self._size:
            return text
        cut = len(data) - self._size
        while data[cut] & 0xC0 == 0x80:
            cut += 1
        return data[cut:].decode()
