"""Numbers that are read off living objects when somebody asks."""

import asyncio
import gc
import time
from collections.abc import Iterator

import pytest
from prometheus_client import REGISTRY
from tieline_protocol.health import Health
from tieline_protocol.metrics import Family, Live, Sample, Still


class Tank:
    def __init__(self, colour: str, litres: float) -> None:
        self.colour, self.litres = colour, litres


@pytest.fixture
def tanks() -> Iterator[Live[Tank]]:
    def read(tank: Tank) -> Iterator[Sample]:
        yield "test_litres", (tank.colour,), tank.litres
        yield "test_fullest", (), tank.litres
        yield "test_filled", (), tank.litres

    live = Live(
        [
            Family("test_litres", "All", ("colour",)),
            Family("test_fullest", "The fullest", most=True),
            Family("test_filled", "Ever", kind="counter"),
        ],
        read,
    )
    yield live
    REGISTRY.unregister(live)


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def test_objects_with_the_same_labels_are_added_up_and_the_highest_is_told_where_it_counts(
    tanks: Live[Tank],
) -> None:
    with tanks.of(Tank("red", 2)), tanks.of(Tank("red", 3)), tanks.of(Tank("blue", 4)):
        assert value("test_litres", colour="red") == 5
        assert value("test_litres", colour="blue") == 4
        assert value("test_fullest") == 4
        assert value("test_filled_total") == 9


def test_what_has_gone_is_not_counted_any_more(tanks: Live[Tank]) -> None:
    tank = Tank("red", 2)
    with tanks.of(tank):
        assert value("test_litres", colour="red") == 2
    assert value("test_litres", colour="red") is None


def test_what_was_forgotten_without_a_word_is_not_kept_alive(tanks: Live[Tank]) -> None:
    tanks.of(Tank("red", 2)).__enter__()
    gc.collect()

    assert value("test_litres", colour="red") is None


def test_names_are_known_before_anything_is_there(tanks: Live[Tank]) -> None:
    assert {family.name for family in tanks.describe()} == {"test_litres", "test_fullest", "test_filled"}


def test_what_does_not_move_on_shows_for_how_long() -> None:
    still: Still[Tank] = Still()
    tank, other = Tank("red", 1), Tank("blue", 1)

    assert still.seconds(tank, 7, now=100) == 0
    assert still.seconds(tank, 7, now=130) == 30
    assert still.seconds(other, 7, now=131) == 0
    assert still.seconds(tank, 8, now=140) == 0  # it moved
    assert still.seconds(tank, None, now=150) == 0  # nothing waits
    assert still.seconds(tank, 8, now=160) == 0


async def test_a_loop_that_stands_still_shows() -> None:
    health = Health("test")
    async with health.serving("127.0.0.1", 0):
        await asyncio.sleep(0)  # its first look has begun
        time.sleep(0.4)  # noqa: ASYNC251  # what must not happen in a service
        async with asyncio.timeout(5):
            while health.lag < 0.1:
                await asyncio.sleep(0.01)
        assert value("tieline_loop_lag_seconds", service="test") == health.lag
        assert value("tieline_service_ready", service="test") == 0
        assert value("tieline_tasks", service="test") == len(asyncio.all_tasks())
