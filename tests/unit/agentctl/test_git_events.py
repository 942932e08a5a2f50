"""What a move of HEAD means."""

import pytest
from tieline_agentctl.git_events import At, meaning

MAIN = At("main", "1")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (None, MAIN, "nothing"),
        (MAIN, MAIN, "nothing"),
        (MAIN, At("main", "2"), "moved"),
        (At("main", ""), MAIN, "first"),
        (MAIN, At("main", ""), "nothing"),
        (MAIN, At("other", "1"), "switch"),
        (MAIN, At("other", "2"), "switch"),
        (MAIN, At("", "1"), "nothing"),
        (At("", "1"), MAIN, "nothing"),
        (At("", "1"), At("", "2"), "moved"),
    ],
)
def test_each_move_has_one_meaning(before, after, told):
    assert meaning(before, after) == told
