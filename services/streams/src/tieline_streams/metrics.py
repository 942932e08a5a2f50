"""The numbers of this service, served at /metrics."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

INVALID = Counter("tieline_streams_invalid", "Frames from daemons that are no events", ["stream"])
DIALS = Counter("tieline_streams_dials", "Dials to daemons", ["stream", "outcome"])
SESSIONS = Gauge("tieline_streams_sessions", "Sessions that this process owns")
