"""What the manifests render to works: three broker nodes, every service with its own user, and the demo on top."""

import asyncio
import json
import os
import re
from collections import defaultdict
from typing import Any

import httpx
import pytest
from tieline_ops import demo, demo_system
from tieline_ops.timeline import Telling
from tieline_protocol import bus as broker
from tieline_protocol import jetstream, permissions, subjects

from tests.support import manifests
from tests.support.deployment import Deployment
from tests.support.eventually import eventually

pytestmark = pytest.mark.timeout(120)


async def test_every_stream_is_kept_by_all_three_nodes(cluster: Deployment) -> None:
    async with broker.connect(cluster.settings("operator")) as bus:
        for stream in permissions.ALL_STREAMS:
            info = await jetstream.api(bus, subjects.stream_api("INFO", stream))
            assert info["config"]["num_replicas"] == 3
            assert len(info["cluster"]["replicas"]) == 2


async def test_the_broker_syncs_before_it_confirms_and_takes_an_event_of_seven_mebibytes(
    cluster: Deployment,
) -> None:
    text = manifests.one("production", "ConfigMap", "nats")["data"]["nats.conf"]
    async with broker.connect(cluster.settings("operator")) as bus:
        assert bus.max_payload == 8 * 1024 * 1024

    assert re.search(r"^  sync_interval: always\b", text, re.MULTILINE)
    assert "Sync Interval:" not in cluster.nodes[0].log or "always" in cluster.nodes[0].log


async def test_declaring_everything_again_changes_nothing(cluster: Deployment) -> None:
    async with broker.connect(cluster.settings("operator")) as bus:

        async def configs() -> list[object]:
            return [
                (await jetstream.api(bus, subjects.stream_api("INFO", stream)))["config"]
                for stream in permissions.ALL_STREAMS
            ]

        before = await configs()
        code, log = await cluster.migrate()
        assert (code, await configs()) == (0, before), log


async def test_a_change_that_the_broker_cannot_make_is_refused_with_its_reason(cluster: Deployment) -> None:
    code, log = await cluster.migrate(TIELINE_STREAM_REPLICAS="5")

    assert code == 1
    assert "refused" in log
    assert "TIELINE_AGENT" in log


async def test_the_demo_passes(cluster: Deployment) -> None:
    repository = cluster.workspaces / "demo"
    if not repository.exists():
        demo_system.make_repository(repository)
    said: list[str] = []
    telling = Telling(lambda name, text: said.append(f"{name}: {text}"))
    facts = {"gateway_url": cluster.gateway_url, "token": cluster.token()}

    problems = await demo.play(facts, repository, telling)

    assert problems == [], "\n".join([*said, cluster.log])


def traced(cluster: Deployment) -> dict[str, dict[str, set[str]]]:
    """Subjects by user and verb, as the nodes wrote them down."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for node in cluster.nodes:
        users: dict[str, str] = {}
        for line in node.log.splitlines():
            if match := re.search(r'cid:(\d+) .*<<- \[CONNECT .*?"user":\s*"(\w+)"', line):
                users[match[1]] = match[2]
            elif match := re.search(r"cid:(\d+) .*<<- \[(H?PUB|SUB) (\S+)", line):
                found[users[match[1]]][match[2].removeprefix("H")].add(match[3])
    return found


async def test_an_operator_sees_every_service_and_reads_a_log(cluster: Deployment) -> None:
    async with broker.connect(cluster.settings("operator")) as bus:
        asked = (await jetstream.last_message(bus, subjects.STREAM_AGENT, subjects.ALL_EVENTS)) is not None
        names = set()
        async with bus.exchange(subjects.service_verb("PING"), b"") as answers:
            while not names >= {"streams", "remotes", "agent"}:
                names.add(json.loads((await answers.next(5)).data)["name"])

    assert asked


async def run_tieline(cluster: Deployment, *words: str) -> Any:
    """What the command says as the operator, as JSON. It must succeed."""
    settings = cluster.settings("operator")
    env = {
        "TIELINE_NATS_URL": settings.url,
        "TIELINE_NATS_USER": settings.user or "",
        "TIELINE_NATS_PASSWORD": settings.password or "",
        "TIELINE_NATS_INBOX_PREFIX": settings.inbox_prefix,
    }
    process = await asyncio.create_subprocess_exec(
        *(manifests.tool("tieline"), *words, "--output", "json"),
        env={**os.environ, **env, "HOME": str(cluster.directory)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, f"{words}: {output.decode()}"
    return json.loads(output)


async def test_the_tieline_command_looks_at_the_cluster_as_the_operator(cluster: Deployment) -> None:
    commands = ("services", "sessions", "threads", "remotes", "streams", "leases", "connections", "subjects")
    for told in await asyncio.gather(*(run_tieline(cluster, command) for command in commands)):
        assert told is not None


async def test_the_operator_sees_how_far_the_logs_of_a_session_are(cluster: Deployment) -> None:
    async with cluster.frontend() as front:
        session = await front.open(workspace="seen", title="Seen")
        logs = (await run_tieline(cluster, "session", session))["logs"]
        await front.ask("session.close", session)

    assert {log: (one["by"], one["lag"]) for log, one in logs.items()} == {
        "agent": ("owner", 0),
        "workspace": ("owner", 0),
    }


async def test_a_service_that_comes_back_recovers_what_it_owned(cluster: Deployment) -> None:
    async with cluster.frontend() as front:
        session = await front.open(workspace="kept", title="Kept")
        thread = (await front.ask("thread.create", title="Kept"))["thread_id"]
        for name in manifests.SERVICES:
            await cluster.services[name].stop(20)
            await cluster.services[name].start()
    async with cluster.frontend() as front:
        found = await front.ask("session.get", session)
        threads = (await front.ask("thread.list"))["threads"]
        await front.ask("session.close", session)

    assert found["state"] == "ready"
    assert thread in {one["thread_id"] for one in threads}


async def test_a_password_is_changed_without_a_restart(cluster: Deployment) -> None:
    process = cluster.services["remotes"]
    pid, old = process.pid, cluster.settings("remotes")
    file = cluster.secrets["nats-users"]
    cluster.secrets["nats-users"] = {
        key: text.replace(str(old.password), "a new one") for key, text in file.items()
    }
    cluster.secrets["nats-remotes"] = {"password": "a new one"}
    cluster.write_secret("nats-remotes")
    for node in cluster.nodes:
        node.write(cluster.secrets)
        node.run("--signal", f"reload={node.directory / 'nats.pid'}")

    async def reconnected() -> bool:
        async with httpx.AsyncClient(trust_env=False) as http:
            base = process.facts["health_url"]
            numbers = (await http.get(f"{base}/metrics")).text
            ready = (await http.get(f"{base}/readyz")).status_code
        return (
            ready == 200
            and re.search(r"^tieline_bus_reconnects_total\{.*\} [1-9]", numbers, re.MULTILINE) is not None
        )

    await eventually(reconnected, 20, 0.1)
    async with asyncio.timeout(5), broker.connect(cluster.settings("remotes")) as bus:
        assert bus.connected
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1), broker.connect(old):
            pass
    assert process.pid == pid


# Granted, and not used by what the tests above do.
UNUSED = {
    ("agent", subjects.ALL_CALLS): "a call of a run that is cancelled",
    ("streams", subjects.ALL_CALLS): "a call of a coding agent that is cancelled",
    (
        "gateway",
        f"reads {subjects.bucket_stream(subjects.BUCKET_REMOTES)}",
    ): "registrations are looked at again after a connection to the broker was lost",
}


def granted(part: permissions.Part) -> dict[str, tuple[str, ...]]:
    """What a part is granted, by what the table calls it: the subjects of which it uses at least one."""
    return {
        **{pattern: (pattern,) for pattern in (*part.serves, *part.asks, *part.tells, *part.hears)},
        **{f"writes {bucket}": (subjects.bucket_key(bucket, ">"),) for bucket in part.writes},
        **{f"watches {bucket}": (subjects.bucket_key(bucket, ">"),) for bucket in part.watches},
        **{
            f"reads {stream}": (subjects.direct_get(stream), subjects.leader_get(stream))
            for stream in part.reads
        },
        **{f"purges {stream}": (subjects.stream_api("PURGE", stream),) for stream in part.purges},
    }


async def test_every_user_does_what_it_may_and_may_what_it_does(cluster: Deployment) -> None:
    """Subjects allowed = subjects used."""
    found = traced(cluster)
    beyond, unused = [], set()
    for user in manifests.SERVICES:
        for verb, patterns in (("PUB", permissions.publishes(user)), ("SUB", permissions.subscribes(user))):
            assert found[user][verb]
            beyond += [
                (user, verb, subject)
                for subject in found[user][verb]
                if not any(subjects.meet(pattern, subject) for pattern in patterns)
            ]
        used = found[user]["PUB"] | found[user]["SUB"]
        unused |= {
            (user, what)
            for what, patterns in granted(permissions.PARTS[user]).items()
            if not any(subjects.meet(pattern, subject) for pattern in patterns for subject in used)
        }

    assert beyond == []
    assert [
        line for node in cluster.nodes for line in node.log.splitlines() if "Permissions Violation" in line
    ] == []
    assert sorted(unused - UNUSED.keys()) == []
