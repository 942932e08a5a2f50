"""The gateway's numbers, served at /metrics."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram
from tieline_protocol.metrics import Family, Live, Sample, Still

if TYPE_CHECKING:
    from tieline_gateway.gateway import Gateway
    from tieline_gateway.watch import Watch

CONNECTIONS = Gauge("tieline_gateway_connections", "Open frontend sockets")
CLOSED = Counter("tieline_gateway_closed", "Sockets that the gateway closed, by close code", ["code"])
REFUSED = Counter("tieline_gateway_refused", "Handshakes refused, by reason", ["reason"])
SUBSCRIPTIONS = Gauge("tieline_gateway_subscriptions", "Logs that viewers follow", ["log"])
WATCHED = Gauge("tieline_gateway_watched_logs", "Logs that the gateway is subscribed to", ["log"])
DELIVERED_BATCHES = Counter(
    "tieline_gateway_delivered_batches", "Batches handed to viewers, one for each viewer", ["log"]
)
DELIVERED_BYTES = Counter("tieline_gateway_delivered_bytes", "Bytes handed to viewers", ["log"])
LAGGING = Gauge("tieline_gateway_lagging", "Followed logs that are being caught up", ["log"])
LEFT_FAN_OUT = Counter(
    "tieline_gateway_left_fan_out", "Times that a viewer did not read fast enough to be served live", ["log"]
)
LOST = Counter("tieline_gateway_lost", "Times that live messages of a followed log went missing", ["log"])
GAPS = Counter(
    "tieline_gateway_gaps",
    "Gaps that were found in followed logs: live, or in what a viewer reads of the past",
    ["log", "reason", "where"],
)
RESETS = Counter(
    "tieline_gateway_resets", "Viewers whose position does not exist any more, and who began anew", ["log"]
)
DROPPED_ANSWERS = Counter(
    "tieline_gateway_dropped_answers", "Results and progress of calls that were not awaited from there"
)
REQUESTS = Counter(
    "tieline_gateway_requests", "Answered requests, by action and outcome", ["action", "outcome"]
)


@functools.cache  # of names of actions, which are few
def answered(action: str) -> Counter:
    """How many requests of an action were answered with yes."""
    return REQUESTS.labels(action=action, outcome="ok")


SECONDS = Histogram("tieline_gateway_request_seconds", "Time to an answer", ["action"])

_behind: Still[Watch] = Still()


def _gateway(gateway: Gateway) -> Iterator[Sample]:
    now = time.monotonic()
    lanes = wire = asking = stuck = 0
    longest = 0.0
    for viewer in gateway.viewers:
        socket = viewer.socket
        lanes += socket.waiting_bytes
        wire += socket.transport.get_write_buffer_size()
        asking += len(viewer.asking)
        if (since := socket.stuck_since) is not None:
            stuck += 1
            longest = max(longest, now - since)
    yield "tieline_gateway_unsent_bytes", ("lane",), lanes
    yield "tieline_gateway_unsent_bytes", ("socket",), wire
    yield "tieline_gateway_requests_in_flight", (), asking
    yield "tieline_gateway_stuck_viewers", (), stuck
    yield "tieline_gateway_stuck_seconds", (), longest
    yield "tieline_gateway_calls_in_flight", ("caller",), len(gateway.callers)
    yield "tieline_gateway_calls_in_flight", ("owner",), len(gateway.remotes.calls)
    yield "tieline_gateway_tasks", (), gateway.tasks
    for watch in gateway.broadcaster.watches:
        log, tip = (watch.key.log,), watch.tip
        lacks = watch.ready.is_set() and watch.lacks
        yield (
            "tieline_gateway_log_behind_seconds",
            log,
            _behind.seconds(watch, tip.position if lacks else None, now),
        )
        yield "tieline_gateway_ring_bytes", log, tip.bytes


GATEWAY: Live[Gateway] = Live(
    [
        Family(
            "tieline_gateway_unsent_bytes",
            "Bytes that viewers have not read: in their lanes, and given to their sockets",
            ("place",),
        ),
        Family("tieline_gateway_requests_in_flight", "Requests of frontends that are not answered yet"),
        Family("tieline_gateway_stuck_viewers", "Viewers whose sockets are full"),
        Family(
            "tieline_gateway_stuck_seconds", "For how long the longest of these sockets is full", most=True
        ),
        Family("tieline_gateway_calls_in_flight", "Remote calls under way, made or served here", ("side",)),
        Family("tieline_gateway_tasks", "Requests, catch-ups and other work under way"),
        Family(
            "tieline_gateway_log_behind_seconds",
            "The longest that events of a followed log are known to exist and do not come",
            ("log",),
            most=True,
        ),
        Family("tieline_gateway_ring_bytes", "Newest events that are kept for those who join", ("log",)),
    ],
    _gateway,
)
