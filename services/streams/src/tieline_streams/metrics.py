"""The numbers of this service, served at /metrics."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

EVENTS = Counter("tieline_streams_events", "Events that were given an offset")
REPEATS = Counter("tieline_streams_repeats", "Times that unconfirmed batches were published again")
DROPPED = Counter("tieline_streams_dropped", "Workspace events dropped because their window stayed full")
INVALID = Counter("tieline_streams_invalid", "Frames from daemons that are no events", ["stream"])
DIALS = Counter("tieline_streams_dials", "Dials to daemons", ["stream", "outcome"])
SESSIONS = Gauge("tieline_streams_sessions", "Sessions that this process owns")
