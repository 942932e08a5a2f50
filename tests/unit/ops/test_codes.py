"""How the command ends."""

import pytest
from tieline.errors import CODES
from tieline_ops.cli.codes import Exit, of
from tieline_protocol.errors import Code


@pytest.mark.parametrize(
    ("code", "exit"),
    [
        ("not_found", 3),
        ("unavailable", 4),
        ("disconnected", 4),
        ("timeout", 5),
        ("unauthorized", 6),
        ("invalid_arguments", 2),
        ("internal", 1),
        ("something new", 1),
    ],
)
def test_a_script_can_tell_why_a_command_failed(code: str, exit: int) -> None:
    assert of(code) == exit


def test_no_code_of_the_protocol_is_a_success() -> None:
    assert Exit.OK not in {of(code) for code in {*CODES, *Code}}
