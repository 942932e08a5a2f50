"""Looking at a running system: each command against a real one, its JSON against what is kept."""

import json
import signal

import pytest
import yaml

from tests.cli import golden
from tests.cli.command import Command

pytestmark = pytest.mark.timeout(60)


def only(rows: list[dict], **facts: object) -> list[dict]:
    return [row for row in rows if all(row[name] == value for name, value in facts.items())]


def test_sessions(tieline: Command, session: str) -> None:
    rows = only(tieline("sessions", "-o", "json").json, session=session)

    golden.check("sessions", rows)


def test_a_session(tieline: Command, session: str) -> None:
    golden.check("session", tieline("session", "Golden", "-o", "json").json)


def test_a_session_for_people(tieline: Command, session: str) -> None:
    told = tieline("session", session).text

    assert f"session           {session}\n" in told
    assert "agent socket      up\n" in told
    assert "all confirmed" in told


def test_threads(tieline: Command, thread: str) -> None:
    golden.check("threads", only(tieline("threads", "-o", "json").json, thread=thread))


def test_remotes(tieline: Command, desk: str) -> None:
    golden.check("remotes", only(tieline("remotes", "-o", "json").json, remote=desk))


def test_services(tieline: Command, session: str) -> None:
    rows = tieline("services", "-o", "json").json

    golden.check("services", rows)
    opened = next(one for row in rows for one in row["endpoints"] if one["endpoint"] == "open")
    assert opened["requests"] > 0
    assert 0 < opened["p50"] <= opened["p99"]


def test_services_by_endpoint(tieline: Command) -> None:
    assert any("streams" in line and "open" in line for line in tieline("services", "-o", "wide").lines)


def test_streams(tieline: Command, session: str) -> None:
    golden.check("streams", tieline("streams", "-o", "json").json)


def test_leases(tieline: Command) -> None:
    golden.check("leases", tieline("leases", "-o", "json").json)


def test_connections(tieline: Command, desk: str) -> None:
    golden.check("connections", only(tieline("connections", "-o", "json").json, remotes=[desk]))


def test_subjects(tieline: Command) -> None:
    golden.check("subjects", tieline("subjects", "--seconds", "0.2", "-o", "json").json)


def test_top(tieline: Command, session: str, desk: str) -> None:
    golden.check("top", tieline("top", "--once", "--seconds", "0.2", "-o", "json").json)


def test_top_is_a_screen_that_goes_on(tieline: Command, session: str) -> None:
    with tieline.terminal("top", "--seconds", "0.2") as terminal:
        terminal.until(b"tieline top")
        terminal.heard = b""
        terminal.until(b"TIELINE_AGENT")
        terminal.type("\x03")

        assert terminal.ended() == 130
        assert b"\x1b[?25h" in terminal.heard  # the cursor is shown again
        assert terminal.heard.endswith(b"\x1b[?1049l")  # and what was there before


def test_top_that_is_told_to_end_gives_the_terminal_back(tieline: Command, session: str) -> None:
    with tieline.terminal("top", "--seconds", "0.2", columns=40) as terminal:
        terminal.until(b"tieline top")
        terminal.process.send_signal(signal.SIGTERM)

        assert terminal.ended() == 143
        assert terminal.heard.endswith(b"\x1b[?1049l")


def test_trace(tieline: Command, session: str, thread: str) -> None:
    turns = tieline("trace", session, "-o", "json").json
    for turn in turns:  # whether an agent's first words or the word that it runs is read first, is chance
        turn["steps"].sort(key=lambda step: (step["what"] == "ended", step["what"]))
    golden.check("trace", turns)
    (run,) = tieline("trace", thread, "-n", "1", "-o", "json").json
    assert tieline("trace", run["name"], "-o", "json").json == [run]
    assert "add" in tieline("trace", thread).text


def timed(rows: list[dict], name: str) -> list[dict]:
    """Without the verdicts that a machine busy with other tests may change."""
    slow = ("broker", "latency", "leases", "gateway", "processes")
    return [{**row, "state": "", "advice": "", "do": ""} if row[name] in slow else row for row in rows]


def test_check(tieline: Command, session: str) -> None:
    told = tieline("check", "-o", "json", code=None).json

    golden.check("check", timed(told, "objective"))
    assert " - broker: answers in" in tieline("check", "broker", "leases", code=None).lines[0]


def test_check_of_what_there_is_not(tieline: Command) -> None:
    assert "there is no objective beauty" in tieline("check", "beauty", code=3).errors


def test_check_of_a_system_that_is_away(tieline: Command) -> None:
    told = tieline("--nats-url", "nats://127.0.0.1:9", "check", "broker", code=2)

    assert told.text.startswith("CRITICAL - broker: ")


def test_doctor(tieline: Command, session: str) -> None:
    golden.check("doctor", timed(tieline("doctor", "-o", "json", code=None).json, "what"))


def test_doctor_says_what_to_do(home, tmp_path) -> None:
    told = Command(home, {"TIELINE_DATA": str(tmp_path)})("doctor", code=1)

    assert "broker: start it, or name another" in told.text


@pytest.mark.parametrize("name", ["sessions", "streams"])
def test_a_list_as_a_table_and_as_yaml(tieline: Command, session: str, name: str) -> None:
    table = tieline(name).lines
    told = yaml.safe_load(tieline(name, "-o", "yaml").text)

    assert table[0].isupper()
    assert len(told) == len(table) - 1 > 0
    assert all(isinstance(row, dict) for row in told)


def test_yaml_and_json_say_the_same(tieline: Command, session: str) -> None:
    rows = [tieline("session", session, "-o", how).text for how in ("json", "yaml")]
    first, second = json.loads(rows[0]), yaml.safe_load(rows[1])

    assert first.keys() == second.keys()
    assert first["session"] == second["session"]
