"""Flags and environment as the daemon in the field takes them."""

import json

import pytest
from tieline_agentctl.config import BadConfig, duration, load, parse_flags, truth


@pytest.mark.parametrize("argv", [["-port", "7"], ["-port=7"], ["--port", "7"], ["--port=7"]])
def test_every_go_spelling_of_a_flag_is_the_same(argv):
    assert load(argv, {}, "t").port == 7


def test_a_flag_wins_over_its_variable():
    env = {"AGENTCTL_PORT": "1", "AGENTCTL_AGENT_COMMAND": "a", "AGENTCTL_WORKDIR": "/a"}

    config = load(["-port", "2", "-agent-command", "b c", "-workdir", "/b", "-ready-file", "r"], env, "t")

    assert (config.port, config.agent_command, config.workdir, config.ready_file) == (
        2,
        ("b", "c"),
        "/b",
        "r",
    )


def test_without_anything_the_defaults_of_the_wire_hold():
    config = load([], {}, "t")

    assert (config.port, config.instance_port_base, config.instance_port_max) == (39429, 41001, 41100)
    assert (config.idle_timeout, config.idle_interval, config.process_buffer) == (3600, 60, 2097152)
    assert (config.shell_enabled, config.auto_approve, config.parent_pipe) == (True, False, None)
    assert (config.host, config.token, config.nonce) == ("127.0.0.1", "", "")


def test_a_nonce_opens_all_interfaces_and_brings_a_token():
    config = load([], {"AGENTCTL_BOOTSTRAP_NONCE": "n"}, "t")

    assert (config.host, config.nonce, config.token) == ("0.0.0.0", "n", "t")
    assert "'t'" not in repr(config)


def test_a_token_from_a_file_is_asked_for_from_the_start():
    config = load([], {"AGENTCTL_TOKEN_FILE": "f"}, "t")

    assert (config.host, config.nonce, config.token) == ("0.0.0.0", "", "t")


def test_a_listen_host_wins_over_both():
    assert load([], {"AGENTCTL_BOOTSTRAP_NONCE": "n", "AGENTCTL_LISTEN_HOST": "::1"}, "t").host == "::1"


def test_the_shell_is_the_one_that_is_named():
    assert load([], {"SHELL": "/bin/a"}, "t").shell_command == "/bin/a"
    assert load([], {"SHELL": "/bin/a", "AGENTCTL_SHELL_COMMAND": "/bin/b"}, "t").shell_command == "/bin/b"


@pytest.mark.parametrize(
    "argv",
    [
        ["port"],
        ["-"],
        ["--"],
        ["-port"],
        ["-nope", "1"],
        ["-port", "x"],
        ["-port", "65536"],
        ["-protocol", "tcp"],
    ],
)
def test_a_flag_that_makes_no_sense_stops_the_start(argv):
    with pytest.raises(BadConfig):
        load(argv, {}, "t")


@pytest.mark.parametrize(
    "env",
    [
        {"AGENTCTL_PROCESS_BUFFER_MAX_BYTES": "many"},
        {"KANDEV_PARENT_PIPE_FD": "-1"},
        {"KANDEV_ACP_IDLE_TIMEOUT": "soon"},
        {"AGENTCTL_INSTANCE_PORT_BASE": "10", "AGENTCTL_INSTANCE_PORT_MAX": "9"},
        {"AGENTCTL_AGENT_COMMAND": "  "},
        {"KANDEV_INTERNAL_AGENTCTL_STARTUP_CONFIG": "{"},
        {"KANDEV_INTERNAL_AGENTCTL_STARTUP_CONFIG": "[]"},
        {"KANDEV_INTERNAL_AGENTCTL_STARTUP_CONFIG": json.dumps({"configured": True, "idleTimeout": "1h"})},
        {"KANDEV_INTERNAL_AGENTCTL_STARTUP_CONFIG": json.dumps({"configured": True, "idleTimeout": True})},
        {"KANDEV_INTERNAL_AGENTCTL_STARTUP_CONFIG": json.dumps({"configured": True, "idleTimeout": -1})},
    ],
)
def test_a_variable_that_makes_no_sense_stops_the_start(env):
    with pytest.raises(BadConfig):
        load([], env, "t")


def test_numbers_are_read():
    env = {"AGENTCTL_PROCESS_BUFFER_MAX_BYTES": "9", "KANDEV_PARENT_PIPE_FD": "3"}

    config = load([], env, "t")

    assert (config.process_buffer, config.parent_pipe) == (9, 3)


def test_the_startup_configuration_wins_when_it_is_configured():
    configured = json.dumps({"configured": True, "idleTimeout": 0, "idleReaperInterval": 2_000_000_000})
    env = {"KANDEV_INTERNAL_AGENTCTL_STARTUP_CONFIG": configured, "KANDEV_ACP_IDLE_TIMEOUT": "5s"}
    config = load([], env, "t")
    assert (config.idle_timeout, config.idle_interval) == (0, 2)

    other = {**env, "KANDEV_INTERNAL_AGENTCTL_STARTUP_CONFIG": "{}"}
    assert load([], other, "t").idle_timeout == 5

    partly = {**env, "KANDEV_INTERNAL_AGENTCTL_STARTUP_CONFIG": '{"configured":true}'}
    assert load([], partly, "t").idle_timeout == 5


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("1h30m", 5400), ("250ms", 0.25), ("1.5s", 1.5), (".5m", 30), ("3us", 3e-6)],
)
def test_go_durations_are_read(text, seconds):
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "1", "h", "1 h", "-1s", "1hx"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(BadConfig):
        duration(text)


def test_truth_has_many_spellings_and_a_default():
    assert all(truth(text, False) for text in ("1", "true", "YES", " t "))
    assert not any(truth(text, True) for text in ("0", "false", "no"))
    assert truth("", True)
    assert not truth(" ", False)


def test_flags_may_be_empty():
    assert parse_flags([]) == {}
    assert parse_flags(["-ready-file="]) == {"ready-file": ""}
