"""What the pods are given is what the services take: names of variables, ports, probes, times."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tieline_agentctl import config as agentctl
from tieline_gateway.config import Limits as GatewayLimits
from tieline_protocol import migrate, permissions, subjects
from tieline_protocol.health import Health
from tieline_protocol.streams import StreamLimits
from tieline_streams import config as streams

from tests.support import manifests
from tests.support.manifests import OVERLAYS, SERVICES, container, environment, name, one, pod

# Not in any ConfigMap, each for its reason.
ELSEWHERE = {
    "TIELINE_NATS_PASSWORD": "TIELINE_NATS_PASSWORD_FILE names the mounted secret",
}
# Taken by a library, not by an option: in the pod, and no knob.
BY_LIBRARIES = {"agent": {"OPENAI_API_KEY"}}


def options(service: str) -> dict[str, Any]:
    """The options of a service's command that have a variable."""
    module = migrate if service == "migrate" else importlib.import_module(f"tieline_{service}.__main__")
    app = typer.Typer()
    app.command()(module.serve if hasattr(module, "serve") else module.main)
    return {
        str(option.envvar): option
        for option in typer.main.get_command(app).params
        if isinstance(getattr(option, "envvar", None), str)
    }


def workload(overlay: str, service: str) -> manifests.Doc:
    return one(overlay, "Job" if service == "migrate" else "Deployment", service)


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("service", [*SERVICES, "migrate"])
def test_the_keys_of_a_configmap_are_the_knobs_of_its_service(service: str, overlay: str) -> None:
    found = environment(overlay, workload(overlay, service))

    assert set(found) == set(options(service)) - set(ELSEWHERE)


@pytest.mark.parametrize("service", [*SERVICES, "migrate"])
def test_variables_beside_the_configmap_are_those_that_a_library_reads(service: str) -> None:
    given = {entry["name"] for entry in container(workload("production", service)).get("env", [])}

    assert given == BY_LIBRARIES.get(service, set())


def test_the_daemon_is_given_what_it_reads() -> None:
    given = set(environment("production", one("production", "StatefulSet", "agentctl")))
    text = "".join(path.read_text() for path in (manifests.ROOT / "services/agentctl/src").rglob("*.py"))
    read = set(re.findall(r'"(AGENTCTL_[A-Z_]+)"', text))

    assert given - read == {"HOME", "PATH", "SHELL"}


def test_the_daemon_starts_with_what_it_is_given() -> None:
    given = environment("production", one("production", "StatefulSet", "agentctl"))
    found = agentctl.load([], given, "t")

    assert (found.host, found.port, found.token) == ("0.0.0.0", 39429, "t")
    (edge,) = [port for port in ports_of_edge("streams", "agentctl") if "-" in port]
    assert edge == f"{found.instance_port_base}-{found.instance_port_max}"


def ports_of_edge(one: str, other: str) -> Iterator[str]:
    text = (manifests.DEPLOY / "architecture.yaml").read_text()
    (line,) = re.findall(rf"from: {one}, to: {other}, ports: \[(.*?)\]", text)
    yield from line.replace(" ", "").split(",")


@pytest.mark.parametrize("service", SERVICES)
def test_probes_ask_where_the_service_answers(service: str) -> None:
    found = environment("production", workload("production", service))
    spec = container(workload("production", service))
    ports = {port["name"]: str(port["containerPort"]) for port in spec["ports"]}
    routes = {getattr(route, "path", "") for route in Health()._app().routes}

    assert ports["health"] == found["TIELINE_HEALTH_PORT"]
    assert found["TIELINE_HEALTH_HOST"] == "0.0.0.0"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert spec[probe]["httpGet"]["port"] == "health"
        assert spec[probe]["httpGet"]["path"] in routes
    assert spec["livenessProbe"]["httpGet"]["path"] == "/livez"  # never depends on the broker
    assert spec["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_frontends_reach_the_port_that_the_gateway_listens_on() -> None:
    found = environment("production", workload("production", "gateway"))
    ports = {
        port["name"]: str(port["containerPort"])
        for port in container(workload("production", "gateway"))["ports"]
    }
    service = one("production", "Service", "gateway")["spec"]["ports"][0]

    assert ports["frontend"] == found["TIELINE_GATEWAY_PORT"] == str(service["port"])
    assert service["targetPort"] == "frontend"
    assert found["TIELINE_GATEWAY_HOST"] == "0.0.0.0"


def drain(overlay: str, service: str) -> float:
    """How long a service may take from SIGTERM to its end, in seconds, by its own limits."""
    found = environment(overlay, workload(overlay, service))
    if service == "gateway":
        return float(found["TIELINE_GATEWAY_DRAIN_SECONDS"]) + GatewayLimits().close_seconds
    if service == "streams":
        return streams.Limits().drain + streams.Limits().close_handshake
    return float(found["TIELINE_DRAIN_SECONDS"])


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("service", SERVICES)
def test_a_pod_is_given_more_time_to_end_than_its_service_needs(service: str, overlay: str) -> None:
    spec = workload(overlay, service)
    waits = container(spec)["lifecycle"]["preStop"]["sleep"]["seconds"]

    assert waits >= 2 * container(spec)["readinessProbe"]["periodSeconds"]
    assert pod(spec)["terminationGracePeriodSeconds"] >= waits + drain(overlay, service) + 10


@pytest.mark.parametrize("service", [*SERVICES, "migrate"])
def test_a_service_has_a_broker_user_an_inbox_and_a_password_of_its_own(service: str) -> None:
    found = environment("production", workload("production", service))
    made = manifests.secrets_made()
    mounts = {
        mount["name"]: mount["mountPath"]
        for mount in container(workload("production", service))["volumeMounts"]
    }
    volumes = {volume["name"]: volume for volume in pod(workload("production", service))["volumes"]}
    own = volumes["nats-password"]["secret"]["secretName"]

    assert found["TIELINE_NATS_USER"] == service
    assert found["TIELINE_NATS_INBOX_PREFIX"] == subjects.inbox_prefix(service)
    assert found["TIELINE_NATS_PASSWORD_FILE"] == f"{mounts['nats-password']}/password"
    assert own == f"nats-{service}"
    assert f'PASSWORD_{service.upper()}: "{made[own]["password"]}"' in made["nats-users"]["passwords.conf"]


def test_every_broker_user_is_somebody() -> None:
    assert set(permissions.PARTS) == {*SERVICES, "migrate", "operator"}


def test_services_find_the_broker_where_it_is() -> None:
    service = one("production", "Service", "nats")["spec"]["ports"][0]
    for kind in (*SERVICES, "migrate"):
        found = environment("production", workload("production", kind))
        assert found["TIELINE_NATS_URL"] == f"nats://nats:{service['port']}"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_services_wait_for_the_migration_and_agree_with_it_on_replicas(overlay: str) -> None:
    wanted = environment(overlay, workload(overlay, "migrate"))
    nodes = one(overlay, "StatefulSet", "nats")["spec"]["replicas"]

    assert wanted["TIELINE_STREAM_REPLICAS"] == str(nodes)
    for service in ("streams", "remotes", "agent"):
        found = environment(overlay, workload(overlay, service))
        assert found["TIELINE_DECLARE_STREAMS"] == "false"
        shared = set(found) & set(wanted) - {"TIELINE_NATS_USER", "TIELINE_NATS_INBOX_PREFIX"}
        assert {key: found[key] for key in shared} == {key: wanted[key] for key in shared}


def size(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(Gi|GB|MB)", text).groups()  # type: ignore[union-attr]
    return int(number) * {"Gi": 1024**3, "GB": 1024**3, "MB": 1024**2}[unit]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_streams_fit_the_store_and_the_store_its_volume(overlay: str) -> None:
    text = one(overlay, "ConfigMap", "nats")["data"]["storage.conf"]
    (store,) = re.findall(r"max_file_store: (\w+)", text)
    claim = one(overlay, "StatefulSet", "nats")["spec"]["volumeClaimTemplates"][0]["spec"]
    wanted = environment(overlay, workload(overlay, "migrate"))
    streams = int(wanted["TIELINE_AGENT_BYTES"]) + int(wanted["TIELINE_WORKSPACE_BYTES"])

    assert streams < 0.9 * size(store)  # the buckets are small, and want some
    assert size(store) <= 0.9 * size(claim["resources"]["requests"]["storage"])


def test_the_broker_has_memory_for_what_it_may_use() -> None:
    spec = container(one("production", "StatefulSet", "nats"))
    soft = next(entry["value"] for entry in spec["env"] if entry["name"] == "GOMEMLIMIT")

    assert int(soft.removesuffix("MiB")) <= 0.85 * size(spec["resources"]["limits"]["memory"]) / 1024**2


def test_a_broker_node_is_given_more_time_to_end_than_a_lame_duck_has() -> None:
    text = one("production", "ConfigMap", "nats")["data"]["nats.conf"]
    waits = [int(found) for found in re.findall(r'lame_duck_\w+: "(\d+)s"', text)]
    spec = pod(one("production", "StatefulSet", "nats"))

    assert len(waits) == 2
    assert spec["terminationGracePeriodSeconds"] >= sum(waits) + 30


def test_limits_of_the_migration_are_those_of_a_laptop_but_for_what_a_cluster_needs() -> None:
    wanted = environment("production", workload("production", "migrate"))
    limits = StreamLimits()

    assert float(wanted["TIELINE_AGENT_DAYS"]) == limits.agent_days
    assert int(wanted["TIELINE_AGENT_PER_SUBJECT"]) == limits.agent_per_subject
    assert int(wanted["TIELINE_WORKSPACE_PER_SUBJECT"]) == limits.workspace_per_subject
    assert int(wanted["TIELINE_WORKSPACE_BYTES"]) == limits.workspace_bytes


def test_the_executors_of_a_cluster_are_valid_and_reach_the_daemon(tmp_path: Path) -> None:
    text = one("production", "ConfigMap", "executors")["data"]["executors.json"]
    file = tmp_path / "executors.json"
    file.write_text(text)
    _, found = streams.load_executors(file).executor(None)
    mounts = {mount["mountPath"] for mount in container(workload("production", "streams"))["volumeMounts"]}
    daemon = one("production", "StatefulSet", "agentctl")
    port = container(daemon)["ports"][0]["containerPort"]

    assert isinstance(found, streams.StaticExecutor)
    assert found.control_url == f"http://{name(daemon)}-0.{daemon['spec']['serviceName']}:{port}"
    assert str(found.token_file) == "/run/secrets/agentctl/token"
    assert "/run/secrets/agentctl" in mounts
    assert str(found.root) in {mount["mountPath"] for mount in container(daemon)["volumeMounts"]}
