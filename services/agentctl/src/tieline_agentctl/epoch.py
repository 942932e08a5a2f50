"""Pure: which stream connections are still wanted, by the `X-Tieline-Epoch` header.

A backend that takes a session over dials with a higher number than the one before it. Who dials with a lower
number has lost the session and does not know it yet: it is refused, and a stream of a lower number is closed.
"""

HEADER = "x-tieline-epoch"


def epoch_of(header: str | None) -> int:
    """The number in the header; 0 when there is none or it is not a number, which is below every real one."""
    text = (header or "").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 19 else 0


class Epochs:
    """The highest epoch that one kind of stream has seen."""

    def __init__(self) -> None:
        self.highest = 0

    def admits(self, epoch: int) -> bool:
        """Whether a connection of this epoch may be served. A higher one makes the lower ones unwanted."""
        if epoch < self.highest:
            return False
        self.highest = epoch
        return True

    def refusal(self, epoch: int) -> dict[str, object]:
        """The body of the 409."""
        return {
            "error": "a newer connection owns this stream",
            "expected_epoch": self.highest,
            "got_epoch": epoch,
        }
