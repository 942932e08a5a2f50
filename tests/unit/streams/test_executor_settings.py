"""The file of executors: what its page shows can be loaded, and what cannot work is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from tieline_protocol.errors import ProtocolError
from tieline_streams import executors
from tieline_streams.config import BadConfig, DockerExecutor, Executors, load_executors
from tieline_streams.executors import Wanted
from tieline_streams.executors.docker import LABEL, address, container

PAGE = Path(__file__).parents[3] / "docs" / "executors.md"
EXAMPLES = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
SSH = ["ssh", "-L", "{local}:{host}:{remote}", "there"]


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_examples_of_the_page_can_be_loaded(text: str, tmp_path: Path) -> None:
    file = tmp_path / "executors.json"
    file.write_text(text)

    known = load_executors(file)

    assert [name for name, settings in known.executors.items() if executors.make(settings)]


def test_the_page_has_an_example_of_each_kind() -> None:
    kinds = {one["kind"] for text in EXAMPLES for one in json.loads(text)["executors"].values()}

    assert kinds == {"static", "local", "tunnel", "docker"}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"kind": "tunnel", "command": ["ssh", "there"], "root": "/w"}, "{local} is missing"),
        ({"kind": "tunnel", "command": ["ssh", "{local}"], "root": "/w"}, "{remote} is missing"),
        ({"kind": "tunnel", "command": SSH, "root": "w"}, "an absolute path is required"),
        ({"kind": "tunnel", "command": SSH, "root": "/w", "port": 0}, "port"),
        ({"kind": "docker", "root": "/w"}, "image"),
        ({"kind": "moon", "root": "/w"}, "moon"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(wrong: dict[str, Any], why: str, tmp_path: Path) -> None:
    file = tmp_path / "executors.json"
    file.write_text(json.dumps({"executors": {"x": wrong}, "agents": {"a": {"command": ["a"]}}}))

    with pytest.raises(BadConfig, match=re.escape(why)):
        load_executors(file)


def test_a_root_on_another_machine_is_not_looked_for_on_this_one() -> None:
    root = PurePosixPath("/over-there")

    assert executors.place(root, "team/project", "s1") == root / "team" / "project"
    assert not Path(root).exists()
    with pytest.raises(ProtocolError):
        executors.place(root, "../other", "s1")


def docker(**more: Any) -> DockerExecutor:
    known = Executors.model_validate(
        {
            "executors": {"c": {"kind": "docker", "image": "i", "root": "/w", **more}},
            "agents": {"a": {"command": ["a"]}},
        }
    )
    _, settings = known.executor("c")
    assert isinstance(settings, DockerExecutor)
    return settings


def test_a_container_publishes_its_ports_on_this_machine_only_or_joins_a_network() -> None:
    wanted = Wanted("s1", PurePosixPath("/w/s1"))
    published = container(docker(host_config={"Memory": 5, "Binds": ["/a:/b"]}), wanted, "n")
    joined = container(docker(network="inner", command=["run"]), wanted, "n")

    assert published["Labels"] == {LABEL: "s1"}
    assert "Cmd" not in published
    assert published["HostConfig"]["PortBindings"]["39429/tcp"] == [{"HostIp": "127.0.0.1", "HostPort": ""}]
    assert published["HostConfig"]["Binds"] == ["/a:/b", "/w/s1:/w/s1"]
    assert published["HostConfig"]["Memory"] == 5
    assert joined["HostConfig"]["NetworkMode"] == "inner"
    assert "PortBindings" not in joined["HostConfig"]
    assert joined["Cmd"] == ["run"]


@pytest.mark.parametrize(
    ("state", "net", "said"),
    [
        ({"Running": False, "ExitCode": 137}, {}, "exit code 137"),
        ({"Running": False, "Error": "no space"}, {}, "no space"),
        ({"Running": True}, {"Ports": {"1/tcp": None}}, "does not publish port 1"),
        ({"Running": True}, {}, "does not publish port 1"),
    ],
)
def test_a_container_that_cannot_be_reached_says_why(
    state: dict[str, Any], net: dict[str, Any], said: str
) -> None:
    with pytest.raises(Exception, match=said):
        address({"State": state, "NetworkSettings": net}, None, 1)


def test_a_container_is_reached_by_its_published_port_or_by_its_address() -> None:
    inspected = {
        "State": {"Running": True},
        "NetworkSettings": {
            "Ports": {"1/tcp": [{"HostIp": "127.0.0.1", "HostPort": "49153"}]},
            "Networks": {"inner": {"IPAddress": "172.17.0.2"}},
        },
    }

    assert address(inspected, None, 1) == "http://127.0.0.1:49153"
    assert address(inspected, "inner", 1) == "http://172.17.0.2:1"
