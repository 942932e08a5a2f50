"""Pure: bytes that arrive in pieces, as text. A character that is cut between two pieces stays whole."""

import codecs


class TextDecoder:
    """UTF-8 across reads. Bytes that are not UTF-8 become U+FFFD; nothing around them is lost."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, data: bytes) -> str:
        """The characters that are complete now; may be empty."""
        return self._decoder.decode(data)

    def finish(self) -> str:
        """What is left at the end: at most one U+FFFD for a character that never became whole."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest
