"""Which streams are wanted still."""

import pytest
from tieline_agentctl.epoch import Epochs, epoch_of


@pytest.mark.parametrize(
    ("header", "number"), [("7", 7), (" 7 ", 7), (None, 0), ("", 0), ("-1", 0), ("x", 0)]
)
def test_the_header_is_a_number_or_nothing(header, number):
    assert epoch_of(header) == number


@pytest.mark.parametrize("header", ["1.5", "٣", "9" * 20, "0x10"])
def test_what_is_no_plain_number_is_below_every_real_one(header):
    assert epoch_of(header) == 0


def test_who_dials_with_a_lower_number_is_refused():
    epochs = Epochs()

    assert epochs.admits(0)
    assert epochs.admits(5)
    assert epochs.admits(5)
    assert not epochs.admits(4)
    assert not epochs.admits(0)
    assert epochs.highest == 5
    assert epochs.refusal(4)["expected_epoch"] == 5
    assert epochs.refusal(4)["got_epoch"] == 4
