"""Using a running system from a terminal: sessions, shells, remotes, chats."""

import json
import re
import signal
import termios

import pytest

from tests.cli.command import Command
from tests.support.system import System

pytestmark = pytest.mark.timeout(60)


def test_open_prompt_close(tieline: Command, running: System) -> None:
    opened = tieline("open", "life", "--title", "A life", "-o", "json").json
    said = tieline("prompt", "A life", "say Hello,\\n\\n  world.")
    read = tieline("prompt", opened["session"], "-", input="say From a pipe.")
    tieline("close", "A life")
    listed = {one["session"]: one["state"] for one in tieline("sessions", "--all", "-o", "json").json}

    assert opened["state"] == "ready"
    assert said.text == "Hello,\n\n  world.\n"
    assert read.text == "From a pipe.\n"
    assert listed[opened["session"]] == "closed"
    assert opened["session"] not in tieline("sessions").text


def test_what_the_agent_asks_permission_for(tieline: Command, running: System) -> None:
    session = tieline("open", "asks").text.strip()
    note = running.workspaces / "asks/note.txt"
    refused = tieline("prompt", session, "write note.txt No.\\n", code=1)
    assert "the agent asks permission" in refused.errors
    assert not note.exists()
    tieline("prompt", "--no-wait", "--queue", session, "say x")
    with tieline.terminal("prompt", "--queue", session, "write note.txt Yes.\\n") as terminal:
        terminal.until(b"which? ")
        terminal.type("1\n")
        assert terminal.ended() == 0
    assert note.read_text() == "Yes.\n"
    tieline("prompt", "--allow", session, "write note.txt Again.\\n")
    assert note.read_text() == "Again.\n"
    tieline("close", session)


def test_ctrl_c_cancels_the_turn(tieline: Command) -> None:
    session = tieline("open", "cancelled").text.strip()
    with tieline.started("prompt", session, "say Begun. \nwait 30") as prompt:
        prompt.until(b"Begun.")
        prompt.process.send_signal(signal.SIGINT)
        assert prompt.ended() == 130
    ended = tieline("history", session, "--type", "turn", "-n", "1").text

    assert ended.rstrip().endswith("ended cancelled")
    tieline("close", session)


def test_a_shell_on_this_terminal(tieline: Command) -> None:
    session = tieline("open", "shell").text.strip()
    with tieline.terminal("shell", session, rows=30, columns=100) as terminal:
        terminal.until(b"detaches")
        terminal.type("stty size; echo one-$((40+2))\n")
        terminal.until(b"one-42")
        assert b"30 100" in terminal.heard
        terminal.resize(20, 77)
        terminal.type("sleep 0.2; stty size\n")
        terminal.until(b"20 77")
        terminal.type("\x1d")
        terminal.until(b"the shell goes on")
        assert terminal.ended() == 0
    with tieline.terminal("shell", session, "--detach", "^a") as again:
        again.until(b"one-42")  # the screen as it was
        again.type("exit 3\n")
        again.until(b"the shell ended with 3")
        assert again.ended() == 0
    tieline("close", session)


def test_a_shell_whose_command_is_told_to_end_leaves_the_terminal_as_it_was(tieline: Command) -> None:
    session = tieline("open", "ended").text.strip()
    with tieline.terminal("shell", session) as terminal:
        before = termios.tcgetattr(terminal.descriptor)
        terminal.until(b"detaches")
        assert not termios.tcgetattr(terminal.descriptor)[3] & termios.ECHO
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ended() == 143
        assert termios.tcgetattr(terminal.descriptor) == before
    tieline("close", session)


def test_a_shell_needs_a_terminal(tieline: Command, session: str) -> None:
    assert "a shell needs a terminal" in tieline("shell", session, code=2).errors
    assert "no key" in tieline("shell", session, "--detach", "F1", code=2).errors


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["add", "a=2"], 0, "3\n"),
        (["add", "a=2", "b:=40"], 0, "42\n"),
        (["note", "text=a b"], 0, "noted: a b\n"),
        (["add", "a=x"], 2, "invalid_arguments"),
        (["add", "a"], 2, "'a' is no argument"),
        (["nothing"], 3, "add a=integer [b=integer]"),
        (["fail"], 1, "RuntimeError: on purpose \\e[2J"),
        (["slow", "seconds=3", "--timeout", "0.2"], 5, "timeout"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_call(tieline: Command, desk: str, words: list[str], code: int, said: str) -> None:
    done = tieline("call", desk, *words, code=code)

    if code == 0:
        assert done.text == said
    else:
        assert said in done.errors
        assert done.text == ""


def test_call_of_a_remote_that_is_not_there(tieline: Command) -> None:
    assert "no remote 'nobody' is connected" in tieline("call", "nobody", "x", code=3).errors


def test_a_call_for_programs(tieline: Command, desk: str) -> None:
    assert tieline("call", desk, "note", "text=x", "-o", "json").json == "noted: x"


def test_a_call_belongs_to_the_trace_that_the_environment_names(tieline: Command) -> None:
    module = "from tieline import tracing\n\n\ndef trace() -> str | None:\n    return tracing.current()\n"
    (tieline.home / "traced.py").write_text(module)
    trace = "0af7651916cd43dd8448eb211c80319c"
    with tieline.started("serve", "traced") as served:
        served.until(b"traced serves")
        told = tieline.with_env(TRACEPARENT=f"00-{trace}-b7ad6b7169203331-01")("call", "traced", "trace")

    assert told.text.startswith(f"00-{trace}-")


def test_serve_tells_of_calls_and_of_who_takes_over(tieline: Command) -> None:
    with tieline.started("serve", "desk:add,note", "--name", "mine") as first:
        first.until(b"mine serves add, note")
        tieline("call", "mine", "add", "a=1")
        first.until(b'add {"a":1}  ok')
        with tieline.started("serve", "desk:note", "--name", "mine") as second:
            second.until(b"mine serves note")
            assert first.ended() == 1
            assert b"somebody else serves mine now" in first.heard
            second.process.send_signal(signal.SIGINT)
            assert second.ended() == 0


@pytest.mark.parametrize(
    ("spec", "code", "said"),
    [
        ("nothing.here", 3, "there is no module"),
        ("desk:missing", 3, "has no function"),
        ("desk:__doc__", 3, "no function"),
    ],
)
def test_what_cannot_be_served(tieline: Command, spec: str, code: int, said: str) -> None:
    assert said in tieline("serve", spec, code=code).errors


def test_chat_goes_on_where_it_was(tieline: Command, thread: str) -> None:
    answer = tieline("chat", "--thread", thread, input="Hello again")

    assert "You said: Hello again" in answer.text
    assert len(tieline("trace", thread, "-o", "json").json) == 2


def test_a_conversation_on_a_terminal(tieline: Command) -> None:
    with tieline.terminal("chat") as terminal:
        terminal.until(b"> ")
        terminal.type("one\n")
        terminal.until(b"You said: one")
        terminal.until(b"> ")
        terminal.type("two\n")
        terminal.until(b"You said: two")
        terminal.until(b"\n> ")
        terminal.type("\x04")
        assert terminal.ended() == 0


def test_a_token_opens_the_door(tieline: Command, running: System, session: str) -> None:
    token = tieline("token", "--user", "ann", "--hours", "1").text.strip()
    other = Command(tieline.home, {"TIELINE_URL": running.url, "TIELINE_TOKEN": token})
    refused = Command(tieline.home, {"TIELINE_URL": running.url, "TIELINE_TOKEN": "nonsense"})

    assert "ann has no session" in other("close", session, code=3).errors  # it is somebody else's
    assert "unauthorized" in refused("open", code=6).errors
    assert "no token is known" in Command(tieline.home, {"TIELINE_URL": running.url})("open", code=6).errors


def test_another_user_on_this_machine(tieline: Command) -> None:
    session = tieline("open", "--user", "bea").text.strip()
    rows = tieline("sessions", "--user", "bea", "-o", "json").json

    assert [row["session"] for row in rows] == [session]
    tieline("close", "--user", "bea", session)


def test_a_table_is_plain_text_in_a_pipe_and_has_colours_on_a_terminal(
    tieline: Command, session: str
) -> None:
    with tieline.terminal("sessions", columns=60) as terminal:
        terminal.ended()
    with tieline.with_env(NO_COLOR="1").terminal("sessions") as plain:
        plain.ended()

    assert "\x1b" not in tieline("sessions").text
    assert b"\x1b[32mready\x1b[0m" in terminal.heard
    assert b"\x1b" not in plain.heard
    shown = re.sub(r"\x1b\[[0-9;]*m", "", terminal.heard.decode()).splitlines()
    assert max(map(len, shown)) <= 60


def test_up_says_why_it_cannot_start(tieline: Command, running: System) -> None:
    done = tieline("up", "--data", str(running.data), "--gateway-port", "0", "--nats-port", "0", code=1)

    assert "is in use by another system" in done.text


def test_titles_cannot_drive_the_terminal(tieline: Command) -> None:
    session = tieline("open", "--title", "\x1b[2Jbad\x07\u202e").text.strip()
    shown = (
        tieline("sessions").text + tieline("session", session).text + tieline("sessions", "-o", "yaml").text
    )
    told = json.loads(tieline("session", session, "-o", "json").text)

    assert "\x1b" not in shown
    assert "\\e[2Jbad\\x07\\u202e" in shown
    assert told["title"] == "\x1b[2Jbad\x07\u202e"
    tieline("close", session)
