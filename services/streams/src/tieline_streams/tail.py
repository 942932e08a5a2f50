"""Pure: the end of the shell's output as it was published: a suffix of it, never half a character."""

from __future__ import annotations

from collections.abc import Sequence

from tieline_protocol import merge

TAIL = 64 * 1024  # in UTF-8 bytes
_RAW = 16  # times that much JSON is kept before anybody looks into it: a flood costs next to nothing


class Tail:
    """Keeps the events as they are and looks only into those that can still matter."""

    def __init__(self, size: int = TAIL) -> None:
        self._size = size
        self._before = ""  # what is known to come before the events; halves of characters stay as they are
        self._raws: list[bytes] = []
        self._bytes = 0

    def numbered(self, raws: Sequence[bytes]) -> None:
        """`shell_output` that has just been given its offsets."""
        self._raws += raws
        self._bytes += sum(map(len, raws))
        if self._bytes > _RAW * self._size:
            self._before = self._text()
            self._raws.clear()
            self._bytes = 0

    def text(self) -> str:
        """At most the last `size` bytes of the output; halves of characters that met no other half become U+FFFD."""
        return self._text().encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def _text(self) -> str:
        parts: list[str] = []
        size = 0
        for raw in reversed(self._raws):
            data = merge.parse(raw).get("data", "")
            if isinstance(data, str):
                parts.append(data)
                size += len(data)
            if size > self._size:
                break
        else:
            parts.append(self._before)
        whole = "".join(reversed(parts)).encode("utf-16-le", "surrogatepass")
        data = whole.decode("utf-16-le", "surrogatepass").encode("utf-8", "surrogatepass")
        cut = max(len(data) - self._size, 0)
        while cut < len(data) and data[cut] & 0xC0 == 0x80:
            cut += 1
        return data[cut:].decode("utf-8", "surrogatepass")
