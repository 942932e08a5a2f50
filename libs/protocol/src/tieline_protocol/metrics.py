"""The numbers that every service has; each service adds its own beside its code. Served at /metrics.

Counters stand where things happen and are never touched for each event. Everything that can be read off living objects
is read when somebody asks (`Live`), and costs nothing meanwhile. Labels have few values: never an id, a user or a name
that somebody else chose.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from prometheus_client import REGISTRY, Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from tieline_protocol.bus import Bus
    from tieline_protocol.health import Health
    from tieline_protocol.leases import ProcessLease
    from tieline_protocol.publisher import EventPublisher
    from tieline_protocol.services import Services

T = TypeVar("T")

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
GAPS = Counter("tieline_log_gaps", "Gaps written into logs, by reason", ["log", "reason"])
OPENINGS = Counter(
    "tieline_log_openings",
    "Logs that were begun or taken, and whether the last owner released them",
    ["log", "clean"],
)


@dataclass(frozen=True, slots=True)
class Family:
    """A metric that is read. Where several objects have the same labels, they are added up (`most`: the highest)."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: Literal["gauge", "counter"] = "gauge"
    most: bool = False


Sample = tuple[str, tuple[str, ...], float]


class Live(Collector, Generic[T]):
    """What `read` says of every object that is there when somebody asks."""

    def __init__(self, families: Iterable[Family], read: Callable[[T], Iterable[Sample]]) -> None:
        self._families = {family.name: family for family in families}
        self._read = read
        self._objects: weakref.WeakSet[T] = weakref.WeakSet()
        REGISTRY.register(self)

    @contextlib.contextmanager
    def of(self, thing: T) -> Iterator[None]:
        """Read this one too, until the block is left."""
        self._objects.add(thing)
        try:
            yield
        finally:
            self._objects.discard(thing)

    def describe(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        return [_empty(family) for family in self._families.values()]

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        found: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in self._families}
        for thing in list(self._objects):
            for name, labels, value in self._read(thing):
                values = found[name]
                if self._families[name].most:
                    values[labels] = max(values.get(labels, value), value)
                else:
                    values[labels] = values.get(labels, 0) + value
        for name, values in found.items():
            family = _empty(self._families[name])
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family


def _empty(family: Family) -> GaugeMetricFamily | CounterMetricFamily:
    made = GaugeMetricFamily if family.kind == "gauge" else CounterMetricFamily
    return made(family.name, family.help, labels=family.labels)


def _service(health: Health) -> Iterator[Sample]:
    labels = (health.name,)
    yield "tieline_service_ready", labels, not health.reasons()
    yield "tieline_loop_lag_seconds", labels, health.lag
    yield "tieline_tasks", labels, len(asyncio.all_tasks())


SERVICE: Live[Health] = Live(
    [
        Family("tieline_service_ready", "Whether the service takes work", ("service",)),
        Family(
            "tieline_loop_lag_seconds",
            "The longest that the event loop let its timers wait in the last half minute",
            ("service",),
            most=True,
        ),
        Family(
            "tieline_tasks",
            "Tasks of the event loop: a number that only grows is a leak",
            ("service",),
            most=True,
        ),
    ],
    _service,
)


def _bus(bus: Bus) -> Iterator[Sample]:
    labels = (bus.settings.name,)
    yield "tieline_bus_connected", labels, bus.connected
    yield "tieline_bus_unsent_bytes", labels, bus.unsent
    yield "tieline_bus_requests_in_flight", labels, bus.waiting
    for way in ("in", "out"):
        yield "tieline_bus_messages", (*labels, way), bus.traffic[f"{way}_msgs"]
        yield "tieline_bus_bytes", (*labels, way), bus.traffic[f"{way}_bytes"]


BUS: Live[Bus] = Live(
    [
        Family("tieline_bus_connected", "Connections to the broker that are up", ("connection",)),
        Family("tieline_bus_unsent_bytes", "Bytes that the broker has not taken yet", ("connection",)),
        Family("tieline_bus_requests_in_flight", "Requests that wait for an answer", ("connection",)),
        Family("tieline_bus_messages", "Messages read and written", ("connection", "way"), "counter"),
        Family("tieline_bus_bytes", "Payload bytes read and written", ("connection", "way"), "counter"),
    ],
    _bus,
)


def _lease(lease: ProcessLease) -> Iterator[Sample]:
    yield "tieline_lease_age_seconds", (lease.kind,), lease.age()
    yield "tieline_lease_held", (lease.kind,), lease.may_act()


LEASE: Live[ProcessLease] = Live(
    [
        Family(
            "tieline_lease_age_seconds",
            "Since the last confirmed renewal of the process's lease; above 7 it does not act",
            ("kind",),
            most=True,
        ),
        Family("tieline_lease_held", "Whether the process may act", ("kind",)),
    ],
    _lease,
)


def _endpoints(services: Services) -> Iterator[Sample]:
    for name, (_, server) in services.endpoints.items():
        labels, stats = (services.name, name), server.stats
        yield "tieline_rpc_requests", labels, stats.requests
        yield "tieline_rpc_errors", labels, stats.errors
        yield "tieline_rpc_seconds", labels, stats.processing / 1e9
        yield "tieline_rpc_in_flight", labels, server.in_flight


_ENDPOINT = ("service", "endpoint")
ENDPOINTS: Live[Services] = Live(
    [
        Family("tieline_rpc_requests", "Requests to endpoints of services", _ENDPOINT, "counter"),
        Family(
            "tieline_rpc_errors", "Requests to endpoints that were refused or failed", _ENDPOINT, "counter"
        ),
        Family(
            "tieline_rpc_seconds", "Time that requests to endpoints took, all together", _ENDPOINT, "counter"
        ),
        Family("tieline_rpc_in_flight", "Requests to endpoints under way", _ENDPOINT),
    ],
    _endpoints,
)


class Still(Generic[T]):
    """For how long each object has not moved on, from one look to another: costs nothing in between."""

    def __init__(self) -> None:
        self._seen: weakref.WeakKeyDictionary[T, tuple[object, float]] = weakref.WeakKeyDictionary()

    def seconds(self, thing: T, place: object, now: float) -> float:
        """`place` is how far it is; None where nothing waits."""
        if place is None:
            self._seen.pop(thing, None)
            return 0
        seen = self._seen.get(thing)
        if seen is None or seen[0] != place:
            seen = self._seen[thing] = (place, now)
        return now - seen[1]


_unconfirmed: Still[EventPublisher] = Still()


def _log(publisher: EventPublisher) -> Iterator[Sample]:
    labels, window = (publisher.log,), publisher.window
    yield "tieline_log_open", labels, 1
    yield "tieline_log_unconfirmed_bytes", labels, window.bytes
    yield "tieline_log_unconfirmed_batches", labels, len(window)
    yield "tieline_log_unconfirmed_events", labels, publisher.last - window.confirmed
    yield "tieline_log_window_fill_ratio", labels, window.bytes / window.size
    yield "tieline_log_waiting_bytes", labels, publisher.backlog.bytes
    waits = None if window.empty else window.confirmed
    yield "tieline_log_unconfirmed_seconds", labels, _unconfirmed.seconds(publisher, waits, time.monotonic())


LOGS: Live[EventPublisher] = Live(
    [
        Family("tieline_log_open", "Logs that this process writes", ("log",)),
        Family("tieline_log_unconfirmed_bytes", "Bytes published and not confirmed by JetStream", ("log",)),
        Family(
            "tieline_log_unconfirmed_batches", "Batches published and not confirmed by JetStream", ("log",)
        ),
        Family("tieline_log_unconfirmed_events", "Events published and not confirmed by JetStream", ("log",)),
        Family(
            "tieline_log_window_fill_ratio", "How full the fullest window of a log is", ("log",), most=True
        ),
        Family("tieline_log_waiting_bytes", "Events that wait for room in their window", ("log",)),
        Family(
            "tieline_log_unconfirmed_seconds",
            "The longest that a log waits for JetStream, from one look at these numbers to another",
            ("log",),
            most=True,
        ),
    ],
    _log,
)
