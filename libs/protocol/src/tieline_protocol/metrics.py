"""The numbers that every service has; each service adds its own beside its code. Served at /metrics."""

from __future__ import annotations

from prometheus_client import Counter

BUS_DROPPED = Counter(
    "tieline_bus_dropped",
    "Times that a connection to the broker dropped messages of a slow subscription",
    ["connection"],
)
BUS_RECONNECTS = Counter(
    "tieline_bus_reconnects", "Connections to the broker that were made again", ["connection"]
)
BAD_BATCHES = Counter("tieline_bad_batches", "Messages on event subjects that are no batches", ["service"])
EVENTS = Counter("tieline_log_events", "Events that were given an offset")
REPEATS = Counter("tieline_log_repeats", "Times that unconfirmed batches were published again")
DROPPED = Counter("tieline_log_dropped", "Events dropped because the window of their log stayed full")
