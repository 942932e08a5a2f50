"""The numbers of this service, served at /metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import Counter, Histogram
from tieline_protocol.metrics import Family, Live, Sample

if TYPE_CHECKING:
    from tieline_agent.threads import Threads

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60, 120, 300, 600)

RUNS = Counter("tieline_agent_runs", "Runs that ended, by how they ended", ["reason"])
RUN_SECONDS = Histogram(
    "tieline_agent_run_seconds", "From the beginning of a run to its end", buckets=_SECONDS
)
TOKENS = Counter("tieline_agent_tokens", "Tokens of runs that ended here", ["direction"])
MODEL = Counter("tieline_model_requests", "Answers asked of the model, by how that ended", ["outcome"])
MODEL_RETRIES = Counter(
    "tieline_model_retries", "Times that the model was asked again before it had begun to answer"
)
MODEL_FIRST = Histogram(
    "tieline_model_first_delta_seconds",
    "From the question to the first piece of the answer",
    buckets=_SECONDS,
)
MODEL_SECONDS = Histogram(
    "tieline_model_seconds", "From the question to the end of the answer", buckets=_SECONDS
)
TOOL_SECONDS = Histogram(
    "tieline_agent_tool_seconds", "Calls of tools, by how they ended", ["outcome"], buckets=_SECONDS
)


def _threads(threads: Threads) -> Iterator[Sample]:
    now = time.time_ns() // 1_000_000
    waiting = running = 0
    oldest = 0.0
    for thread in threads.owned:
        for run in thread.open:
            if run.state == "queued":
                waiting += 1
            else:
                running += 1
                oldest = max(oldest, (now - run.started) / 1000)
    yield "tieline_agent_threads", (), len(threads.owned)
    yield "tieline_runs_waiting", (), waiting
    yield "tieline_runs_running", (), running
    yield "tieline_run_oldest_seconds", (), oldest


THREADS: Live[Threads] = Live(
    [
        Family("tieline_agent_threads", "Threads that this process owns"),
        Family("tieline_runs_waiting", "Runs that were asked for and have not begun"),
        Family("tieline_runs_running", "Runs under way"),
        Family("tieline_run_oldest_seconds", "Since the oldest run under way began", most=True),
    ],
    _threads,
)
