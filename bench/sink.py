"""Worker: viewers. Many that only count bytes, or one that counts events and looks at their ends."""

from __future__ import annotations

import base64
import select
import socket
import time
from typing import Any

from bench import cursors, events
from bench.credit import Teller
from bench.rawviewer import RawViewer
from bench.workers import PATIENCE, BenchError, serve

_DISCARD = (
    socket.MSG_TRUNC
)  # on a TCP socket of Linux: the bytes are counted and never copied out of the kernel
_PIECE = 1024 * 1024
_TELL_EVERY = 64 * 1024
_LET_GATHER = (
    0.004  # seconds between rounds: waking for every write would cost more than the servers measured
)

_viewers: list[RawViewer] = []
_epochs: dict[RawViewer, int] = {}  # of the owner that each viewer heard last


def join(
    url: str, count: int = 1, token: str | None = None, subscribe: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Connect viewers; with a token they sign in and subscribe, as a frontend does."""
    leave()
    for _ in range(count):
        viewer = RawViewer(url)
        _viewers.append(viewer)
        if token is not None:
            viewer.request("auth", {"token": token})
        if subscribe is not None:
            viewer.request("session.subscribe", subscribe)
    return {}


def leave() -> dict[str, Any]:
    while _viewers:
        _viewers.pop().close()
    return {}


def swallow(total: int, tail: str, credit_port: int, gather: float = _LET_GATHER) -> dict[str, Any]:
    """Receive exactly `total` bytes on each connection, ending in `tail`; says when the last one had them."""
    ending = base64.b64decode(tail)
    got = {viewer.sock.fileno(): 0 for viewer in _viewers}
    sockets = {viewer.sock.fileno(): viewer.sock for viewer in _viewers}
    ends = dict.fromkeys(got, b"")
    before = total - len(ending)
    buffer = bytearray(_PIECE)
    teller = Teller(credit_port)
    told, least, left = 0, 0, len(got)
    poll = select.epoll()
    for descriptor in got:
        poll.register(descriptor, select.EPOLLIN)
    deadline = time.monotonic() + PATIENCE
    while left:
        time.sleep(gather)
        ready = poll.poll(0.05)
        for descriptor, _ in ready:
            have = got[descriptor]
            if have < before:
                size = sockets[descriptor].recv_into(buffer, min(_PIECE, before - have), _DISCARD)
            else:
                piece = sockets[descriptor].recv(total - have)
                ends[descriptor] += piece
                size = len(piece)
            if not size:
                raise BenchError(f"a viewer was disconnected after {have:,} of {total:,} bytes")
            got[descriptor] = have + size
            if have + size == total:
                poll.unregister(descriptor)
                left -= 1
        if not ready or min(got.values()) >= told + _TELL_EVERY:
            least = min(got.values())
            teller.tell(least)
            told = least
        if time.monotonic() > deadline:
            raise BenchError(f"{left} viewers were not done in time; the slowest had {least:,} of {total:,}")
    ended = time.monotonic()
    teller.close()
    poll.close()
    if any(end != ending for end in ends.values()):
        raise BenchError("a viewer received something else than was sent")
    return {"ended": ended}


def count(wanted: int, least: int) -> dict[str, Any]:
    """Receive `wanted` big events on the one connection; says when, and the heads of the first and the last."""
    first, last, number = _viewers[0].count(wanted, least)
    ended = time.monotonic()
    return {"ended": ended, "first": first.decode(), "last": last.decode(), "events": number}


def replay(url: str, token: str, subscribe: dict[str, Any], wanted: int, least: int) -> dict[str, Any]:
    """Come late: seconds from the subscription to the last of `wanted` big events, and the heads of both ends."""
    leave()
    viewer = RawViewer(url)
    _viewers.append(viewer)
    viewer.request("auth", {"token": token})
    began = time.monotonic()
    viewer.request("session.subscribe", subscribe)
    first, last, number = viewer.count(wanted, least)
    seconds = time.monotonic() - began
    leave()
    return {"seconds": seconds, "first": first.decode(), "last": last.decode(), "events": number}


def hear(url: str, token: str, sessions: list[str]) -> dict[str, Any]:
    """A viewer of each session's agent log; returns once each has heard its daemon."""
    leave()
    for session in sessions:
        viewer = RawViewer(url, buffer=65_536)
        _viewers.append(viewer)
        viewer.request("auth", {"token": token})
        subscribe = {"session_id": session, "logs": ["agent"], "cursors": {"agent": "now"}}
        viewer.request("session.subscribe", subscribe)
    return hear_next()


def hear_next() -> dict[str, Any]:
    """Wait until each viewer has heard its daemon through a newer owner than before; says when the last one had."""
    waiting = {viewer.sock.fileno(): viewer for viewer in _viewers}
    poll = select.epoll()
    for descriptor in waiting:
        poll.register(descriptor, select.EPOLLIN)
    deadline = time.monotonic() + PATIENCE
    while waiting:
        for descriptor, _ in poll.poll(1):
            viewer = waiting[descriptor]
            for text in viewer.arrived():
                where = cursors.cursor(text[:512].decode(errors="replace"))
                if where is not None and events.sent_at(text) and where.epoch > _epochs.get(viewer, 0):
                    _epochs[viewer] = where.epoch
                    poll.unregister(descriptor)
                    del waiting[descriptor]
                    break
        if time.monotonic() > deadline:
            raise BenchError(f"{len(waiting)} viewers heard nobody")
    poll.close()
    return {"ended": time.monotonic()}


def latencies(wanted: int) -> dict[str, Any]:
    """Receive `wanted` small events that say when they were written; how long each took, in milliseconds."""
    taken: list[float] = []
    for text in _viewers[0].texts():
        now = time.monotonic_ns()
        sent = events.sent_at(text)
        if sent is not None:
            taken.append((now - sent) / 1e6)
            if len(taken) == wanted:
                break
    return {"latencies": taken}


def follow(url: str, threads: list[dict[str, str]]) -> dict[str, Any]:
    """A viewer for each thread, signed in as its user (`token`)."""
    leave()
    for thread in threads:
        viewer = RawViewer(url, buffer=16_384)
        _viewers.append(viewer)
        viewer.request("auth", {"token": thread["token"]})
        viewer.request("thread.subscribe", {"thread_id": thread["thread_id"], "cursor": "now"})
    return {}


def deltas(wanted: int) -> dict[str, Any]:
    """Receive `wanted` deltas of a model on each connection; how long each took, in milliseconds."""
    by_descriptor = {viewer.sock.fileno(): viewer for viewer in _viewers}
    got = dict.fromkeys(by_descriptor, 0)
    taken: list[float] = []
    poll = select.epoll()
    for descriptor in got:
        poll.register(descriptor, select.EPOLLIN)
    deadline = time.monotonic() + PATIENCE
    while len(taken) < wanted * len(got):
        for descriptor, _ in poll.poll(1):
            texts = by_descriptor[descriptor].arrived()
            first = next(texts, None)
            now = time.monotonic_ns()
            for text in [first, *texts] if first is not None else ():
                if events.is_delta(text) and (sent := events.sent_at(text)) is not None:
                    got[descriptor] += 1
                    taken.append((now - sent) / 1e6)
        if time.monotonic() > deadline:
            raise BenchError(f"{len(taken):,} of {wanted * len(got):,} deltas came in time")
    poll.close()
    if any(count != wanted for count in got.values()):
        raise BenchError("a viewer received more deltas than there were for it")
    return {"latencies": taken}


def watch(seconds: float) -> dict[str, Any]:
    """Read for a while; checks that no event of the log is missing or twice, and says how much came."""
    viewer = _viewers[0]
    until = time.monotonic() + seconds
    known: tuple[int, int] | None = None
    got = received = gaps = 0
    while time.monotonic() < until:
        for text in viewer.ready(0.1):
            where = text.find(b'"cursor":"', 0, 256)
            if where < 0:
                continue
            epoch, offset, _ = text[where + 10 : where + 80].split(b'"', 1)[0].split(b".")
            position = (int(epoch), int(offset))
            if known is not None and position != (known[0], known[1] + 1):
                raise BenchError(f"after event {known} came {position}")
            known = position
            received += 1
            got += len(text)
            gaps += b'"event":{"type":"gap"' in text[:512]
    return {"events": received, "bytes": got, "gaps": gaps}


if __name__ == "__main__":
    serve(
        {
            "join": join,
            "leave": leave,
            "swallow": swallow,
            "count": count,
            "replay": replay,
            "hear": hear,
            "hear_next": hear_next,
            "latencies": latencies,
            "watch": watch,
            "follow": follow,
            "deltas": deltas,
        }
    )
