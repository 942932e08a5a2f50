"""Figure: how long a delta of the model takes to the viewer, with 50 runs of the expert agent at 30 deltas a second.

From the model's write to the viewer's read: the agent service reads it, gives it its place in the thread's log and
publishes it, the broker passes it on and stores it, the gateway writes it to the socket.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.measure import Figure, Goal, figure, median, percentile
from bench.rawviewer import RawViewer
from bench.stack import stack

GOAL = Goal(
    "agent_added_latency_p99_ms",
    "ms",
    30,
    "lower",
    "p99 of a model's delta to the viewer, 50 runs at 30 deltas/s",
)
_RUNS = 50
_EVERY = 1 / 30  # seconds between two deltas of a run


def measure(folder: Path, quick: bool, say: Callable[[str], None]) -> list[Figure]:
    repetitions, deltas = (1, 30) if quick else (5, 90)
    p50: list[float] = []
    p99: list[float] = []
    late: list[float] = []
    with stack(folder) as running:
        model, sink = running.worker("model"), running.worker("sink")
        agent = running.start_agent(model.call("where")["url"])
        gateway = running.start_gateway()
        users = [running.viewer(f"user-{number}", buffer=65_536) for number in range(_RUNS)]
        threads = [user.request("thread.create", {})["thread_id"] for user in users]
        follow = [
            {"thread_id": thread, "token": running.token(f"user-{number}")}
            for number, thread in enumerate(threads)
        ]
        sink.call("follow", url=running.gateway_url, threads=follow)
        used = {"agent": 0.0, "gateway": 0.0}
        for repetition in range(repetitions + 1):
            count = deltas if repetition else 15  # the first is to warm up
            model.call("prepare", streams=_RUNS, deltas=count, every=_EVERY)
            sink.send("deltas", wanted=count)
            before = agent.cpu, gateway.cpu
            for user, thread in zip(users, threads, strict=True):
                _say(user, thread)
            taken = sink.wait()["latencies"]
            late_now = model.call("finish")["late"]
            if repetition:
                p50.append(percentile(taken, 0.5))
                p99.append(percentile(taken, 0.99))
                late.append(late_now)
                used["agent"] += agent.cpu - before[0]
                used["gateway"] += gateway.cpu - before[1]
    events = _RUNS * deltas * repetitions
    say(
        f"{_RUNS} runs: a delta takes p50 {median(p50):.2f} ms, p99 {median(p99):.2f} ms (the model itself was up to "
        f"{max(late):.1f} ms late, which does not count); CPU in µs a delta: "
        f"{', '.join(f'{name} {cpu / events * 1e6:.0f}' for name, cpu in used.items())}"
    )
    return [figure(GOAL, p99)]


def _say(user: RawViewer, thread: str) -> None:
    user.request("thread.message", {"thread_id": thread, "content": "say much"})
