"""Worker: the two ends of remote calls: a connection that exposes functions, or one that calls them.

Blocking sockets; what comes with one read is answered with one write, as fast as Python can.
"""

from __future__ import annotations

import time
from typing import Any

from bench import callframes
from bench.rawviewer import RawViewer, masked
from bench.workers import BenchError, serve

_viewers: list[RawViewer] = []


def join(url: str, token: str, remotenames: list[str] | None = None) -> dict[str, Any]:
    """Sign in; with names, expose a function under each of them."""
    viewer = RawViewer(url)
    _viewers.append(viewer)
    viewer.request("auth", {"token": token})
    for name in remotenames or ():
        viewer.request("remote-connect", callframes.registration(name))
    return {}


def answer(count: int) -> dict[str, Any]:
    """Answer that many calls."""
    viewer = _viewers[0]
    left = count
    while left:
        answers = [frame for text in viewer.arrived() if (frame := callframes.answer(text)) is not None]
        if answers:
            left -= len(answers)
            viewer.sock.sendall(b"".join(map(masked, answers)))
    return {}


def call(remotenames: list[str], count: int, at_once: int) -> dict[str, Any]:
    """Make `count` calls, `at_once` of them under way; how long all took, and each one (milliseconds)."""
    viewer = _viewers[0]
    frames = [
        masked(callframes.call(name, number))
        for number, name in enumerate(callframes.shares(remotenames, count))
    ]
    ledger = callframes.Ledger()
    sent: list[int] = []
    taken: list[float] = []
    began = time.monotonic_ns()
    begin = 0
    try:
        while len(taken) < count:
            end = min(len(taken) + at_once, count)
            if end > begin:
                sent += [time.monotonic_ns()] * (end - begin)
                viewer.sock.sendall(b"".join(frames[begin:end]))
                begin = end
            texts = list(viewer.arrived())
            now = time.monotonic_ns()
            ended = [number for text in texts if (number := ledger.heard(text)) is not None]
            taken += [(now - sent[number]) / 1e6 for number in ended]
    except callframes.Wrong as exc:
        raise BenchError(str(exc)) from exc
    return {"seconds": (time.monotonic_ns() - began) / 1e9, "latencies": taken}


if __name__ == "__main__":
    serve({"join": join, "answer": answer, "call": call})
