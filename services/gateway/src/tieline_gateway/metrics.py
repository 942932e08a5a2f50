"""The gateway's numbers, served at /metrics."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

CONNECTIONS = Gauge("tieline_gateway_connections", "Open frontend sockets")
CLOSED = Counter("tieline_gateway_closed", "Sockets that the gateway closed, by close code", ["code"])
REFUSED = Counter("tieline_gateway_refused", "Handshakes refused, by reason", ["reason"])
SUBSCRIPTIONS = Gauge("tieline_gateway_subscriptions", "Logs that viewers follow", ["log"])
WATCHED = Gauge("tieline_gateway_watched_logs", "Logs that the gateway is subscribed to", ["log"])
DELIVERED_BATCHES = Counter(
    "tieline_gateway_delivered_batches", "Batches handed to viewers, one for each viewer", ["log"]
)
DELIVERED_BYTES = Counter("tieline_gateway_delivered_bytes", "Bytes of those batches", ["log"])
LAGGING = Gauge("tieline_gateway_lagging", "Followed logs that are being caught up", ["log"])
LEFT_FAN_OUT = Counter(
    "tieline_gateway_left_fan_out", "Times that a viewer did not read fast enough to be served live", ["log"]
)
LOST = Counter("tieline_gateway_lost", "Times that live messages of a followed log went missing", ["log"])
GAPS = Counter("tieline_gateway_gaps", "Gaps told to viewers, by reason", ["reason"])
DROPPED_ANSWERS = Counter(
    "tieline_gateway_dropped_answers", "Results and progress of calls that were not awaited from there"
)
REQUESTS = Counter(
    "tieline_gateway_requests", "Answered requests, by action and outcome", ["action", "outcome"]
)
SECONDS = Histogram("tieline_gateway_request_seconds", "Time to an answer", ["action"])
