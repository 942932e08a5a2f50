"""Pure: which offset an event gets, in which batch it travels, and what is an event at all.

Rule 1: offset 1 of an epoch is its opening. Offsets have no holes and are given when an event is framed, so what was
        dropped before never had one.
Rule 2: a batch holds events of one type. Bulk types gather until `flush` (once per turn of the event loop) or 128 KB;
        everything else flushes what is before it and goes at once.
Rule 3: a peer cannot make up our events, nor more than 64 subjects beside the well-known types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tieline_protocol import batch, jsontext, subjects
from tieline_protocol.batch import AFTER, Framer

BULK = frozenset({"message_chunk", "reasoning", "shell_output", "process_output", "delta"})
RESERVED = frozenset(
    {
        "session",
        "connection",
        "epoch",
        "turn",
        "permissions",
        "questions",
        "processes",
        "operation",
        "gap",
        "foreign",
    }
)
WELL_KNOWN = (
    RESERVED
    | BULK
    | frozenset(
        {
            "tool_call",
            "tool_update",
            "plan",
            "agent_plan",
            "complete",
            "error",
            "permission_request",
            "permission_cancelled",
            "session_status",
            "context_window",
            "foreground_idle",
            "background_complete",
            "available_commands",
            "session_mode",
            "session_models",
            "session_info",
            "agent_capabilities",
            "auth_required",
            "mcp_attachment",
            "connected",
            "git_status",
            "git_commit",
            "git_reset",
            "branch_switch",
            "file_change",
            "process_status",
            "shell_exit",
            "message",
            "run",
            "tool_result",
            "tool_progress",
        }
    )
)
MAX_TYPES = 64
BATCH_BYTES = 128 * 1024  # a quarter of the messages that 32 KB would make: a fourth less work at every hop


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A batch, ready to be published."""

    subject: str
    data: bytes
    first: int
    last: int


def admit(type: str, raw: bytes, limit: int) -> tuple[str, bytes]:
    """What a peer's event becomes: itself, `foreign` where its type is one of ours, a `gap` where it is too large."""
    if len(raw) > limit:
        return "gap", gap("too_large", type=type, events=1, bytes=len(raw))
    if type in RESERVED:
        return "foreign", b'{"type":"foreign","event":%b}' % raw
    return type, raw


def gap(reason: str, type: str | None = None, events: int | None = None, bytes: int | None = None) -> bytes:
    """The event that stands for what could not be kept. `event_type`, since `type` is the event's own."""
    event: dict[str, object] = {"type": "gap", "reason": reason}
    if type is not None:
        event["event_type"] = type
    if events is not None:
        event["events"] = events
    if bytes is not None:
        event["bytes"] = bytes
    return jsontext.dumps(event)


class Numbering:
    """The offsets of one log in one epoch. `at` is kept up to date by whoever hears the confirmations."""

    def __init__(self, user: str, session: str, log: str, epoch: int) -> None:
        self.epoch = epoch
        self.last = 0
        self.at = 0
        self._log = (user, session, log)
        self.log = log
        self._subjects: dict[str, str] = {}
        self._unknown: set[str] = set()
        self._framer = Framer(session, log)
        self._token = ""
        self._tokens: dict[str, str] = {}  # of the types seen; those that are told as `other` are not kept
        self._pieces: list[bytes] = [b""]  # a place for the prefix, then three for each frame
        self._count = 0
        self._bytes = 0
        self._first = 1

    def opening(self, previous: int, last: int, clean: bool, now_ms: int) -> Outgoing:
        """The first event of the epoch: how far the log was found."""
        event = {"type": "epoch", "previous": previous, "last": last, "clean": clean}
        return self.received("epoch", [jsontext.dumps(event)], now_ms)[0]

    def received(self, type: str, raws: Sequence[bytes], now_ms: int) -> list[Outgoing]:
        """Give events of one type their offsets. Returns the batches that are complete now."""
        token = self._tokens.get(type) or self._token_of(type)
        out = self.flush() if token != self._token or token not in BULK else []
        most = BATCH_BYTES if token in BULK else 0
        before = self._framer.at(self.epoch, self.at, now_ms)
        for raw in raws:
            self.last = offset = self.last + 1
            if not self._count:
                self._token, self._first = token, offset
            head = before(offset, len(raw))
            self._pieces += (head, raw, AFTER)
            self._count += 1
            self._bytes += len(head) + len(raw) + len(AFTER)
            if self._bytes >= most:
                out += self.flush()
        return out

    def flush(self) -> list[Outgoing]:
        """The batch that was gathering, if there is one."""
        if not self._count:
            return []
        pieces = self._pieces
        pieces[0] = batch.prefix(self.epoch, self._first, self._count, self.at, self._bytes)
        made = Outgoing(self._subject_of(self._token), b"".join(pieces), self._first, self.last)
        self._pieces, self._count, self._bytes = [b""], 0, 0
        return [made]

    @property
    def gathered(self) -> int:
        """Bytes that have offsets and are in no batch yet."""
        return self._bytes

    def _token_of(self, type: str) -> str:
        token = subjects.type_token(type)
        if token == subjects.OTHER:
            return token
        if token not in WELL_KNOWN and token not in self._unknown:
            if len(self._unknown) >= MAX_TYPES:
                return subjects.OTHER
            self._unknown.add(token)
        self._tokens[type] = token
        return token

    def _subject_of(self, token: str) -> str:
        subject = self._subjects.get(token)
        if subject is None:
            subject = self._subjects[token] = subjects.event(*self._log, token)
        return subject
