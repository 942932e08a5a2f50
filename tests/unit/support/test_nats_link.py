"""The link before a broker must itself count what passes, however the bytes are cut."""

import pytest

from tests.support.link import Connection
from tests.support.nats_link import NatsLink

SAID = (
    b'CONNECT {"name":"streams-agent"}\r\nPING\r\nSUB x.> 1\r\n'
    b"PUB tieline.event.u.s.agent.turn _INBOX.a.1 12\r\nPUB no 1\r\nxy\r\n"
    b"HPUB $KV.x 12 15\r\nNATS/1.0\r\n\r\nabc\r\nPUB tieline.event.u.s.workspace.x 0\r\n\r\n"
)


@pytest.mark.parametrize("size", [1, 2, 7, 1_000])
async def test_messages_are_told_apart_however_the_bytes_are_cut(size: int) -> None:
    link, one = NatsLink(1), Connection(None, None)  # it has no ends here
    for at in range(0, len(SAID), size):
        link.passing(one, "up", SAID[at : at + size])
    link.passing(one, "down", b"PUB none 1\r\nx\r\n")

    assert [(said.by, said.subject, said.reply, said.size) for said in link.published] == [
        ("streams-agent", "tieline.event.u.s.agent.turn", "_INBOX.a.1", 12),
        ("streams-agent", "$KV.x", "", 15),
        ("streams-agent", "tieline.event.u.s.workspace.x", "", 0),
    ]
    assert len(link.sent("tieline.event.")) == 2
    assert link.sent("tieline.event.", since=link.mark()) == []
