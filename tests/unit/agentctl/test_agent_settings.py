from pathlib import Path

import pytest
from tieline_agentctl.agent_settings import AgentFailure, AgentSettings, command_line


def test_a_command_is_split_at_blanks_without_quoting():
    assert command_line("agent --flag 'a b'", None) == ("agent", "--flag", "'a", "b'")


def test_exact_arguments_win():
    assert command_line("agent a b", ["agent", "a b"]) == ("agent", "a b")


@pytest.mark.parametrize(
    ("command", "args"),
    [("", None), ("  ", ["x"]), ("x", []), ("x", [""]), ("x", ["-x"]), ("-x", None), ("x", ["x", "a\0b"])],
)
def test_what_cannot_be_started_is_refused(command: str, args: list[str] | None):
    with pytest.raises(AgentFailure):
        command_line(command, args)


def test_an_agent_that_must_be_killed_gets_little_grace():
    settings = AgentSettings("i", Path("/w"), 1, (), {})

    assert settings.stop_grace == 5
    assert AgentSettings("i", Path("/w"), 1, (), {}, requires_process_kill=True).stop_grace == 0.25
