"""Process leases on the broker: holding one, and noticing when somebody else's is gone (see lease.py for the rule)."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog

from tieline_protocol import jetstream, subjects
from tieline_protocol.bus import Bus, Received
from tieline_protocol.errors import Unavailable
from tieline_protocol.lease import SCAN, Lease, Presence, Terms
from tieline_protocol.metrics import LEASE

log = structlog.get_logger()


def boottime() -> float:
    """Seconds of a clock that also runs while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ProcessLease:
    """This process's lease. `id` is new at every start."""

    def __init__(self, bus: Bus, kind: str, terms: Terms | None = None) -> None:
        self.terms = terms or Terms()
        self.id = kind[0] + secrets.token_hex(10)
        self.kind = kind
        self._bus = bus
        self._lease = Lease(self.terms)
        self._revision = 0
        self._subject = subjects.bucket_key(subjects.BUCKET_PROCESSES, subjects.process_key(self.id))

    def may_act(self) -> bool:
        """Whether this process may act now; to be asked at each use, since time may have stood still for it."""
        return self._lease.may_act(boottime())

    def age(self) -> float:
        """Seconds since the last confirmed renewal was sent; infinite where there is none."""
        return self._lease.age(boottime())

    def running_out(self) -> bool:
        """Whether this process will soon not be allowed to act any more."""
        return self._lease.running_out(boottime())

    def must_close(self) -> bool:
        """Whether this process must close what it holds."""
        return self._lease.must_close(boottime())

    async def renew(self) -> None:
        """One renewal. Raises Unavailable where the broker does not confirm it; the next one may."""
        sent = boottime()
        headers = {"Nats-TTL": f"{self.terms.ttl}s"}
        if self._revision:
            headers["Nats-Expected-Last-Subject-Sequence"] = str(self._revision)
        try:
            self._revision = await jetstream.publish(
                self._bus, self._subject, self.kind.encode(), headers, timeout=2 * self.terms.renew
            )
        except jetstream.WrongRevision:
            # An acknowledgement that was lost looks like a refusal: what the leader has decides. The key bears an
            # id that nobody else uses, so whatever stands there was written by us.
            entry = await jetstream.Bucket(self._bus, subjects.BUCKET_PROCESSES).get(
                subjects.process_key(self.id)
            )
            if entry is None:
                self._lease.refused()
                self._revision = 0  # the next renewal takes the key again
                log.error("the lease of this process has expired", process=self.id)
                return
            self._revision = entry.revision
            return
        self._lease.renewed(sent)

    async def release(self) -> None:
        """Say that this process is gone, so that nobody has to wait for the expiry."""
        await jetstream.Bucket(self._bus, subjects.BUCKET_PROCESSES).delete(subjects.process_key(self.id))


@contextlib.asynccontextmanager
async def holding(bus: Bus, kind: str, terms: Terms | None = None) -> AsyncIterator[ProcessLease]:
    """A lease for this process, renewed until the block is left."""
    lease = ProcessLease(bus, kind, terms)
    try:
        await lease.renew()
    except Unavailable as exc:  # the process may not act until a later one is confirmed
        log.warning("the lease could not be taken yet", process=lease.id, error=exc.message)
    renewing = asyncio.create_task(_renew(lease), name=f"renew {lease.id}")
    try:
        with LEASE.of(lease):
            yield lease
    finally:
        renewing.cancel()
        await asyncio.wait([renewing])
        with contextlib.suppress(Unavailable):
            await lease.release()


async def _renew(lease: ProcessLease) -> None:
    while True:
        await asyncio.sleep(lease.terms.renew)
        try:
            await lease.renew()
        except Unavailable as exc:
            log.warning("the lease could not be renewed", process=lease.id, error=exc.message)


@contextlib.asynccontextmanager
async def watching(
    bus: Bus, ended: Callable[[str], Awaitable[None]]
) -> AsyncIterator[Callable[[], frozenset[str]]]:
    """Call `ended(process)` once for each process that is gone, until the block is left.

    Found by watch (a process that stops says so) and by a scan every second (one that was killed cannot); an
    absent key counts only when the leader says so. Yields who is believed to be alive.
    """
    presence = Presence()
    gone: asyncio.Queue[str] = asyncio.Queue()
    bucket = jetstream.Bucket(bus, subjects.BUCKET_PROCESSES)

    def heard(received: Received) -> None:
        process = subjects.process_of(received.subject)
        if received.headers and "KV-Operation" in received.headers:
            gone.put_nowait(process)
        else:  # a process that lives shorter than a scan takes must be missed too
            presence.seen(process)

    subscription = await bus.subscribe(subjects.bucket_key(bucket.name, subjects.process_key("*")), heard)
    work = [
        asyncio.create_task(_scan(bucket, presence, gone), name="scan of process leases"),
        asyncio.create_task(_tell(bucket, presence, gone, ended), name="ended processes"),
    ]
    try:
        yield lambda: presence.alive
    finally:
        for task in work:
            task.cancel()
        await asyncio.wait(work)
        await subscription.close()


async def _scan(bucket: jetstream.Bucket, presence: Presence, gone: asyncio.Queue[str]) -> None:
    while True:
        try:
            keys = [entry.key for entry in await bucket.entries(subjects.process_key("*"))]
        except Unavailable as exc:
            log.warning("process leases could not be read", error=exc.message)
        else:
            for process in presence.scanned(subjects.process_of(key) for key in keys):
                gone.put_nowait(process)
        await asyncio.sleep(SCAN)


async def _tell(
    bucket: jetstream.Bucket,
    presence: Presence,
    gone: asyncio.Queue[str],
    ended: Callable[[str], Awaitable[None]],
) -> None:
    while True:
        process = await gone.get()
        try:
            if await bucket.get(subjects.process_key(process)) is None and presence.ended(process):
                log.info("a process is gone", process=process)
                await ended(process)
        except Unavailable as exc:  # still among the alive, so the next scan finds it missing again
            log.warning("a lease could not be read", process=process, error=exc.message)
