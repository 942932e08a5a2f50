"""Pure: which events somebody wants to see: the subject to listen to, and what is left to be sifted here.

Only subjects of events: a listener on any other subject of the system would turn "no responders" into a time-out for
whoever asks there.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tieline_protocol import subjects
from tieline_protocol.batch import Batch

from tieline_ops.cli.codes import Exit, Problem

_ROOT = subjects.ALL_EVENTS.removesuffix(">")
_SEEN = 4_096


@dataclass(frozen=True, slots=True)
class Filter:
    """What is wanted; "" or () is anything. `types` are globs, `grep` is sought in an event's text."""

    pattern: str = ""
    user: str = ""
    id: str = ""
    log: str = ""
    types: tuple[str, ...] = ()
    grep: re.Pattern[str] | None = None

    @property
    def subject(self) -> str:
        """The narrowest subject that holds it all. Raises Problem."""
        if self.pattern:
            return pattern(self.pattern)
        user = subjects.user_token(self.user) if self.user else "*"
        type = self.types[0] if len(self.types) == 1 and not _is_glob(self.types[0]) else "*"
        parts = (user, self.id or "*", self.log or "*", type)
        return subjects.ALL_EVENTS if set(parts) == {"*"} else _ROOT + ".".join(parts)

    def takes_subject(self, subject: subjects.EventSubject) -> bool:
        """Whether events of this subject may be wanted; a pattern may be wider than the options beside it."""
        return (
            (not self.user or subject.user == subjects.user_token(self.user))
            and (not self.id or subject.id == self.id)
            and (not self.log or subject.log == self.log)
            and (not self.types or subject.type == subjects.OTHER or self._has(subject.type))
        )

    def takes(self, event: dict[str, Any], text: str) -> bool:
        """Whether one event is wanted; `text` is its JSON."""
        if self.types and not self._has(str(event.get("type", ""))):
            return False
        return self.grep is None or self.grep.search(text) is not None

    def _has(self, type: str) -> bool:
        return any(fnmatch.fnmatchcase(type, wanted) for wanted in self.types)


def pattern(text: str) -> str:
    """A pattern of subjects within the events; what stands before them may be left out. Raises Problem."""
    whole = text if text.startswith(("tieline.", "$", "_INBOX", ">")) or text == "*" else _ROOT + text
    if not whole.startswith(_ROOT):
        raise Problem(
            f"{text}: only events can be listened to",
            Exit.USAGE,
            f"patterns begin with {_ROOT} (which may be left out): USER.ID.LOG.TYPE, with * and >",
        )
    parts = whole.removeprefix(_ROOT).split(".")
    if not all(parts) or len(parts) > 4 or ">" in parts[:-1] or re.search(r"\s", whole):
        raise Problem(f"{text}: a pattern is USER.ID.LOG.TYPE, with * and >", Exit.USAGE)
    return whole


def expression(text: str) -> re.Pattern[str] | None:
    """What to grep for; small letters alone also find capitals. Raises Problem."""
    if not text:
        return None
    try:
        return re.compile(text, 0 if text != text.lower() else re.IGNORECASE)
    except re.error as exc:
        raise Problem(f"--grep {text}: {exc}", Exit.USAGE) from exc


def seconds(text: str) -> float:
    """A duration: `90`, `90s`, `5m`, `2h`, `1d`, `1h30m`. Raises Problem."""
    found = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip())
    if not text.strip() or found is None:
        raise Problem(f"{text!r} is no duration: 90s, 5m, 2h, 1d", Exit.USAGE)
    return sum(
        float(part or 0) * unit for part, unit in zip(found.groups(), (86_400, 3_600, 60, 1), strict=True)
    )


def _is_glob(text: str) -> bool:
    return not subjects.is_id(text)


@dataclass(slots=True)
class Seen:
    """Which batches were shown: an owner that hears no confirmation publishes them again."""

    _order: dict[tuple[str, str, int, int], None] = field(default_factory=dict)

    def first_time(self, id: str, log: str, batch: Batch) -> bool:
        """Whether this one is new. Remembers the newest few thousand."""
        key = (id, log, batch.epoch, batch.first)
        if key in self._order:
            return False
        self._order[key] = None
        if len(self._order) > _SEEN:
            del self._order[next(iter(self._order))]
        return True


def streams(subject: str) -> Iterable[str]:
    """The streams that keep events of a pattern."""
    parts = subject.removeprefix(_ROOT).split(".")
    log = parts[2] if len(parts) > 2 else "*"
    if log in subjects.LOGS:
        return [subjects.stream_of(log)]
    return [subjects.STREAM_AGENT, subjects.STREAM_WORKSPACE]
