"""The numbers of this service, served at /metrics."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import Counter, Histogram
from tieline_protocol.metrics import Family, Live, Sample

if TYPE_CHECKING:
    from tieline_remotes.service import Remotes

CALLS = Counter("tieline_remote_calls", "Remote calls that ended, by how they ended", ["outcome"])


@functools.cache  # of codes, which are few
def ended(outcome: str) -> Counter:
    """How many calls ended in one way."""
    return CALLS.labels(outcome=outcome)


SECONDS = Histogram(
    "tieline_remote_call_seconds",
    "From the beginning of a call to its end",
    buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 600),
)
DROPPED = Counter("tieline_remote_answers_dropped", "Results that were late, second or from somebody else")


def _remotes(remotes: Remotes) -> Iterator[Sample]:
    began = remotes.oldest
    yield "tieline_remote_calls_in_flight", (), len(remotes)
    yield "tieline_remote_call_oldest_seconds", (), 0 if began is None else time.monotonic() - began
    yield "tieline_remotes_remembered", (), remotes.remembered


REMOTES: Live[Remotes] = Live(
    [
        Family("tieline_remote_calls_in_flight", "Remote calls under way"),
        Family("tieline_remote_call_oldest_seconds", "Since the oldest call under way began", most=True),
        Family("tieline_remotes_remembered", "Registrations that are answered from memory"),
    ],
    _remotes,
)
