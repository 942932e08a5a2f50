"""The numbers of this service, served at /metrics."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

RUNS = Counter("tieline_agent_runs", "Runs that ended, by how they ended", ["reason"])
TOKENS = Counter("tieline_agent_tokens", "Tokens of runs that ended here", ["direction"])
THREADS = Gauge("tieline_agent_threads", "Threads that this process owns")
