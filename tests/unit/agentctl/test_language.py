import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_agentctl.example_agent import language
from tieline_agentctl.example_agent.language import (
    DEMONSTRATION,
    Directive,
    chunked,
    directives,
    shortened,
    unescaped,
)


def test_a_prompt_is_carried_out_line_by_line():
    prompt = "say Hello there\n\n  plan A | B\r\nwait 0.5\nexit\nrun echo \\n"

    assert directives(prompt) == (
        Directive("say", ("Hello there",)),
        Directive("plan", ("A | B",)),
        Directive("wait", ("0.5",)),
        Directive("exit"),
        Directive("run", ("echo \\n",)),
    )


def test_a_tool_gets_its_arguments_as_they_are_written():
    assert directives('tool page__title\ntool add  {"text": "a\\n b"}\ntools') == (
        Directive("tool", ("page__title", "{}")),
        Directive("tool", ("add", ' {"text": "a\\n b"}')),
        Directive("tools"),
    )


def test_a_text_keeps_its_blanks():
    assert directives("say   a  ") == (Directive("say", ("  a  ",)),)
    assert directives("write a.txt  b c ") == (Directive("write", ("a.txt", " b c ")),)


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "Hello",
        "say hello\nand then something else",
        "exit now",
        "tool",
        "tool add {",
        "tool add [1]",
        "write a.txt",
        "write  text",
        "crash it",
        "chunks x y",
        "wait a minute",
        "usage 1 many",
    ],
)
def test_any_other_prompt_gets_the_demonstration(prompt: str):
    assert directives(prompt) is DEMONSTRATION


def test_every_directive_is_documented():
    for name in language._ARGUMENTS:
        assert f"    {name}" in (language.__doc__ or "")


def test_escapes_stand_for_their_characters():
    assert unescaped(r"a\n\r\t\\n\u0000\x") == "a\n\r\t\\n\0\\x"
    assert unescaped(r"\ud83d\udc4b") == "👋"
    assert unescaped(r"\ud83d!") == "\ufffd!"


@given(st.text())
def test_the_pieces_of_a_text_put_together_are_the_text(text: str):
    assert "".join(chunked(text)) == text


def test_a_history_is_cut_at_a_prompt():
    user: dict[str, object] = {"sessionUpdate": "user_message_chunk"}
    agent: dict[str, object] = {"sessionUpdate": "agent_message_chunk"}

    assert shortened([user, agent], 2) == [user, agent]
    assert shortened([user, agent, user, agent], 3) == [user, agent]
    assert shortened([user, agent, agent], 2) == []
    assert shortened([user], 0) == []
