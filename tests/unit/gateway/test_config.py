"""The settings fit together."""

from __future__ import annotations

from tieline_gateway.config import Config, Limits


def test_what_is_allowed_fits_into_what_holds_it() -> None:
    limits = Limits()

    assert limits.control > limits.result_bytes
    assert limits.in_flight_bytes > limits.frame_bytes
    assert limits.wire < limits.lane
    assert Config("nats://x", b"s").limits == limits
