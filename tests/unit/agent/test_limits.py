"""Limits of a run."""

from dataclasses import astuple

from tieline_agent.limits import Limits


def test_every_limit_is_on_unless_somebody_turns_it_up():
    """B64: nothing is unbounded by default."""
    assert all(limit > 0 for limit in astuple(Limits()))
