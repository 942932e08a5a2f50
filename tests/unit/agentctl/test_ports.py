"""The pool of ports."""

import pytest
from tieline_agentctl.ports import NoPortLeft, PortPool


def test_the_lowest_free_port_is_next():
    pool = PortPool(10, 12)
    assert [pool.take(), pool.take()] == [10, 11]

    pool.give_back(10)

    assert [pool.take(), pool.take()] == [10, 12]


def test_a_port_that_somebody_else_has_is_never_tried_again():
    pool = PortPool(10, 11)
    pool.occupied(pool.take())

    assert pool.take() == 11
    pool.give_back(10)
    with pytest.raises(NoPortLeft):
        pool.take()


def test_base_zero_lets_the_system_choose():
    assert PortPool(0, 0).take() == 0
