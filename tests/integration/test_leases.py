import asyncio

import pytest
from tieline_protocol import leases

from tests.support.eventually import eventually


@pytest.fixture
async def gone(bus):
    """The processes that somebody else takes for dead, in order; and who is believed to be alive."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    async with leases.watching(bus, heard.put) as alive:
        yield heard, alive


async def test_a_process_that_stops_in_order_is_known_to_be_gone_at_once(bus, gone):
    heard, alive = gone
    async with leases.holding(bus, "gateway") as lease:
        await eventually(lambda: lease.id in alive())
        assert lease.may_act()

    assert await asyncio.wait_for(heard.get(), 1) == lease.id
    assert lease.id not in alive()


@pytest.mark.timeout(30)
async def test_a_process_that_is_killed_is_known_to_be_gone_within_ten_seconds(bus, gone):
    heard, alive = gone
    lease = leases.ProcessLease(bus, "remotes")
    await lease.renew()
    await eventually(lambda: lease.id in alive())
    await lease.renew()  # renewing keeps the expiry: the key must not become immortal

    assert await asyncio.wait_for(heard.get(), 12) == lease.id

    await lease.renew()
    assert not lease.may_act()  # its key was gone: it must not act on what it held

    await lease.renew()
    assert lease.may_act()


async def test_a_lost_acknowledgement_is_no_refusal(bus, gone):
    lease = leases.ProcessLease(bus, "gateway")
    await lease.renew()
    before = lease._revision
    await lease.renew()
    lease._revision = before  # as if the second acknowledgement had never come

    await lease.renew()
    await lease.renew()

    assert lease.may_act()


async def test_a_process_that_stops_right_after_its_start_is_known_to_be_gone(bus, gone):
    heard, _ = gone
    async with leases.holding(bus, "gateway") as lease:
        pass

    assert await asyncio.wait_for(heard.get(), 2) == lease.id
