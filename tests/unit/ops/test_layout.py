from pathlib import PurePath

from tieline_ops import layout
from tieline_ops.layout import Settings

SETTINGS = Settings(PurePath("/data"))


def test_the_local_agentctl_is_the_default_executor_and_the_example_agent_the_default_agent() -> None:
    told = layout.executors(SETTINGS, "/bin/python", "http://127.0.0.1:1")

    assert list(told["executors"]) == ["static", "local"]
    assert told["executors"]["static"]["control_url"] == "http://127.0.0.1:1"
    assert told["executors"]["static"]["root"] == "/data/workspaces"
    assert told["executors"]["local"]["state"] == "/data/run/local"
    assert told["agents"]["example"]["env"] == {"TIELINE_EXAMPLE_AGENT_STATE": "/data/example-agent"}
    assert list(told["agents"]) == ["example"]


def test_another_agent_goes_before_the_example() -> None:
    settings = Settings(PurePath("/data"), agent=("my-agent", "--acp"), agent_env=("API_KEY",))

    agents = layout.executors(settings, "python", "http://x")["agents"]

    assert list(agents) == ["agent", "example"]
    assert agents["agent"] == {"command": ["my-agent", "--acp"], "env": {}, "env_from": ["API_KEY"]}


def test_a_daemon_of_a_local_session_is_tied_to_our_life() -> None:
    command = layout.executors(SETTINGS, "python", "http://x")["executors"]["local"]["command"]

    assert command[2:6] == ["tieline_ops.lifeline", "/data/run/lifeline", "/data/run/daemons", "--"]
    assert command[6:] == ["python", "-m", "tieline_agentctl"]


def test_workspaces_may_lie_elsewhere() -> None:
    settings = Settings(PurePath("/data"), workspaces=PurePath("/code"))

    assert layout.executors(settings, "python", "http://x")["executors"]["static"]["root"] == "/code"


def test_a_workspaces_own_commands_win_over_ours() -> None:
    env = layout.environment(
        SETTINGS, {"PATH": "/usr/bin", "HOME": "/root"}, "agentctl", "/venv/bin", "nats://x"
    )

    assert env["PATH"] == "/usr/bin:/venv/bin"
    assert (env["HOME"], env["TIELINE_UNIT"], env["TIELINE_NATS_URL"]) == ("/root", "agentctl", "nats://x")
    assert "TIELINE_NATS_URL" not in layout.environment(SETTINGS, {}, "agentctl", "/venv/bin")


def test_instances_take_any_free_port_where_the_daemon_does() -> None:
    pooled = layout.agentctl("python", 39429, PurePath("/r"), "n", True, 7)
    free = layout.agentctl("python", 1, PurePath("/r"), "n", False, 7)

    assert "AGENTCTL_INSTANCE_PORT_BASE" not in pooled.env
    assert free.env["AGENTCTL_INSTANCE_PORT_BASE"] == "0"
    assert (free.env["KANDEV_PARENT_PIPE_FD"], free.env["AGENTCTL_LISTEN_HOST"]) == ("7", "127.0.0.1")


def test_each_service_is_told_where_to_say_that_it_is_ready() -> None:
    ready = PurePath("/run/x.ready")

    assert layout.nats(SETTINGS, "/bin/nats-server").command == (
        "/bin/nats-server",
        "-c",
        "/data/run/nats.conf",
    )
    assert layout.streams(SETTINGS, "python", ready).command[-2:] == ("--ready-file", "/run/x.ready")
    assert layout.gateway(SETTINGS, "python", ready, 0).command[3:5] == ("--port", "0")
    assert "--allow-no-origin" in layout.gateway(SETTINGS, "python", ready, 0).command


def test_without_a_key_chats_are_answered_by_the_scripted_model() -> None:
    ready = PurePath("/run/x.ready")

    assert layout.is_scripted({"OPENAI_API_KEY": ""})
    assert not layout.is_scripted({"OPENAI_API_KEY": "k"})
    assert layout.model("python", ready, 7).command[3:5] == ("--port", "7")
    assert layout.agent("python", ready, 7).command[3:5] == ("--openai-base-url", "http://127.0.0.1:7/v1")
    assert "--openai-base-url" not in layout.agent("python", ready, None).command


def test_a_system_that_stops_waits_shortly_for_what_is_under_way() -> None:
    for start in (layout.remotes("python", PurePath("/r")), layout.agent("python", PurePath("/r"), None)):
        assert start.command[3:5] == ("--drain", "2")
