"""A control server that somebody else runs: open makes an instance there, close deletes it."""

from __future__ import annotations

from tieline_protocol.errors import Unavailable
from tieline_protocol.messages import InstanceRecord

from tieline_streams.config import StaticExecutor
from tieline_streams.executors import Wanted, control


class Static:
    def __init__(self, settings: StaticExecutor) -> None:
        self._settings = settings

    async def open(self, wanted: Wanted) -> InstanceRecord:
        return await control.create(self._settings.control_url, self._token(), wanted)

    async def close(self, record: InstanceRecord, session: str) -> None:
        await control.delete(self._settings.control_url, record.token, record.instance)

    def _token(self) -> str:
        path = self._settings.token_file
        if path is None:
            return ""
        try:
            return path.read_text().strip()
        except OSError as exc:
            raise Unavailable(f"the daemon's token cannot be read: {exc.strerror}") from exc
