"""Pure: the newest output of something, within a bound. The oldest goes first."""

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

Chunk = TypeVar("Chunk")


class Ring(Generic[Chunk]):
    """Chunks with a size each; their sizes together never exceed the bound, save for one single chunk."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.size = 0
        self._chunks: deque[tuple[int, Chunk]] = deque()

    def add(self, chunk: Chunk, size: int) -> None:
        self._chunks.append((size, chunk))
        self.size += size
        while self.size > self.most and len(self._chunks) > 1:
            gone, _ = self._chunks.popleft()
            self.size -= gone

    def __iter__(self) -> Iterator[Chunk]:
        return (chunk for _, chunk in self._chunks)


class TailBuffer:
    """The last characters of a text, at most `most` bytes of UTF-8; never half a character."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._ring: Ring[str] = Ring(most)

    def add(self, text: str) -> None:
        if text:
            self._ring.add(text, len(text.encode()))

    def text(self) -> str:
        whole = "".join(self._ring).encode()
        return whole[-self.most :].decode(errors="ignore") if len(whole) > self.most else whole.decode()
