"""What is said of a system, as Nagios has it."""

import pytest
from tieline_ops.cli import verdicts
from tieline_ops.cli.verdicts import State, Verdict


def verdict(state: State) -> Verdict:
    return Verdict("x", state, "so it is")


def test_unknown_is_worse_than_ok_and_less_than_a_warning() -> None:
    ok, warning, critical, unknown = map(verdict, State)

    assert verdicts.worst([ok, unknown]) is State.UNKNOWN
    assert verdicts.worst([unknown, warning, ok]) is State.WARNING
    assert verdicts.worst([warning, critical, unknown]) is State.CRITICAL
    assert verdicts.worst([]) is State.UNKNOWN


def test_a_line_is_as_nagios_reads_it() -> None:
    told = Verdict("daemons", State.OK, "all are there", {"down": 0, "ready": 1.5})

    assert verdicts.line(told) == "OK - daemons: all are there | down=0 ready=1.5"
    assert verdicts.line(verdict(State.UNKNOWN)) == "UNKNOWN - x: so it is"


@pytest.mark.parametrize(
    ("value", "state"), [(1, State.OK), (2, State.WARNING), (5, State.CRITICAL), (9, State.CRITICAL)]
)
def test_a_value_is_graded(value: float, state: State) -> None:
    assert verdicts.graded(value, 2, 5) is state
