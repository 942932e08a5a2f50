"""The four ways in which the wire writes a time."""

from datetime import UTC, datetime, timedelta, timezone

from tieline_agentctl import clock

HERE = timezone(timedelta(hours=2))


def test_health_is_told_in_whole_seconds_of_utc():
    assert clock.seconds(datetime(2031, 4, 5, 8, 7, 8, 999_999, HERE)) == "2031-04-05T06:07:08Z"


def test_a_fraction_is_as_long_as_it_must_be():
    assert clock.nano(datetime(2031, 4, 5, 6, 7, 8, 120_000, HERE)) == "2031-04-05T06:07:08.12+02:00"
    assert clock.nano(datetime(2031, 4, 5, 6, 7, 8, 0, UTC)) == "2031-04-05T06:07:08Z"


def test_a_git_status_has_three_digits():
    assert clock.three_digits(datetime(2031, 4, 5, 6, 7, 8, 120_999, HERE)) == "2031-04-05T06:07:08.120+02:00"


def test_a_frame_is_stamped_in_milliseconds():
    assert clock.milliseconds(datetime(2031, 4, 5, 6, 7, 8, 5_000, UTC)) == 1933135628005
