"""What is asked about a user's sessions that needs no owner: the list, and those that nobody owns."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tieline_protocol import subjects
from tieline_protocol.errors import Code, Refused
from tieline_protocol.messages import Request, SessionRecord
from tieline_protocol.ownership import announce

from tieline_streams import payloads, views
from tieline_streams.ownership import Parts
from tieline_streams.payloads import read


class Unowned:
    """Answers from the records. `owned`: whether a session is owned here and has not ended."""

    def __init__(self, parts: Parts, owned: Callable[[str], bool]) -> None:
        self._parts = parts
        self._owned = owned

    async def list(self, request: Request) -> dict[str, Any]:
        wanted = read(payloads.List, request.payload)
        entries = await self._parts.sessions.entries(subjects.session_keys(request.user))
        return views.page(
            [SessionRecord.decode(entry.value) for entry in entries], wanted.after, wanted.limit
        )

    async def get(self, request: Request) -> dict[str, Any]:
        """What the record says, whoever owns the session: whoever asks here has asked its owner in vain."""
        record, _ = await self._stored(request)
        return views.detailed(record, {}, None)

    async def close(self, request: Request) -> dict[str, Any]:
        """A session that has ended already needs no ending; that nobody wants it any more is written down."""
        record, revision = await self._unowned(request)
        if record.wanted != "closed":
            await self._rewrite(record, revision, wanted="closed")
        return {}

    async def rename(self, request: Request) -> dict[str, Any]:
        record, revision = await self._unowned(request)
        await self._rewrite(record, revision, title=read(payloads.Rename, request.payload).title)
        return {}

    async def _unowned(self, request: Request) -> tuple[SessionRecord, int]:
        record, revision = await self._stored(request)
        if self._owned(record.session):
            raise Refused(Code.CONFLICT, "the session has an owner: ask it")
        return record, revision

    async def _stored(self, request: Request) -> tuple[SessionRecord, int]:
        id = read(payloads.Which, request.payload).session_id
        if not subjects.is_id(id):
            raise Refused(Code.NOT_FOUND, "there is no such session")
        entry = await self._parts.sessions.get(subjects.session_key(request.user, id))
        if entry is None:
            raise Refused(Code.NOT_FOUND, "there is no such session")
        return SessionRecord.decode(entry.value), entry.revision

    async def _rewrite(self, record: SessionRecord, revision: int, **changes: Any) -> None:
        changed = record.model_copy(update={**changes, "updated": int(time.time() * 1000)})
        key = subjects.session_key(record.user, record.session)
        await self._parts.sessions.put(key, changed.encode(), expected=revision)
        await announce(self._parts.bus, record.user, "session", record.session, "updated")
