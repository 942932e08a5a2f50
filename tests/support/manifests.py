"""What the overlays of deploy/ render to, read as Kubernetes would read it."""

from __future__ import annotations

import base64
import functools
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
OVERLAYS = ("dev", "production", "ha", "extras")
SERVICES = ("gateway", "streams", "remotes", "agent")

Doc = dict[str, Any]


def tool(name: str) -> str:
    """A program that the virtual environment brings."""
    found = shutil.which(name, path=str(Path(sys.executable).parent))
    assert found is not None, f"no {name}: run `make setup`"
    return found


@functools.cache
def rendered(overlay: str) -> tuple[Doc, ...]:
    """All objects of an overlay."""
    done = subprocess.run(
        [tool("kubectl"), "kustomize", str(DEPLOY / "overlays" / overlay)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def of(overlay: str, *kinds: str) -> list[Doc]:
    """The objects of some kinds."""
    return [doc for doc in rendered(overlay) if doc["kind"] in kinds]


def one(overlay: str, kind: str, name: str) -> Doc:
    """An object by its name; of a ConfigMap by what stands before the hash."""
    found = [doc for doc in of(overlay, kind) if _plain(doc) == name]
    assert len(found) == 1, f"{kind} {name}: {len(found)}"
    return found[0]


def _plain(doc: Doc) -> str:
    name: str = doc["metadata"]["name"]
    return name.rpartition("-")[0] if doc["kind"] == "ConfigMap" else name


def workloads(overlay: str) -> list[Doc]:
    """Everything that runs pods."""
    return of(overlay, "Deployment", "StatefulSet", "Job", "DaemonSet", "CronJob")


def name(doc: Doc) -> str:
    return str(doc["metadata"]["name"])


def pod(workload: Doc) -> Doc:
    """The spec of its pods."""
    spec: Doc = workload["spec"]["template"]["spec"]
    return spec


def container(workload: Doc) -> Doc:
    """Its only container."""
    (found,) = pod(workload)["containers"]
    assert not pod(workload).get("initContainers")
    return dict(found)


def environment(overlay: str, workload: Doc) -> dict[str, str]:
    """What its process is given by ConfigMaps."""
    found: dict[str, str] = {}
    for source in container(workload).get("envFrom", []):
        (config,) = [doc for doc in of(overlay, "ConfigMap") if name(doc) == source["configMapRef"]["name"]]
        found |= config["data"]
    return found


def secrets_used(overlay: str) -> Iterator[tuple[str, str | None]]:
    """Name and key of every secret that a pod refers to; no key where all of them are mounted."""
    for workload in workloads(overlay):
        for entry in container(workload).get("env", []):
            if reference := entry.get("valueFrom", {}).get("secretKeyRef"):
                yield reference["name"], reference["key"]
        for volume in pod(workload).get("volumes", []):
            if "secret" in volume:
                yield volume["secret"]["secretName"], None
            for source in volume.get("projected", {}).get("sources", []):
                if "secret" in source:
                    yield source["secret"]["name"], None


@functools.cache
def secrets_made() -> dict[str, dict[str, str]]:
    """What `deploy/make_secrets.py` makes, by name and key."""
    module = runpy.run_path(str(DEPLOY / "make_secrets.py"))
    text = module["manifest"]("tieline", module["values"]())
    return {
        item["metadata"]["name"]: {
            key: base64.b64decode(value).decode() for key, value in item["data"].items()
        }
        for item in yaml.safe_load(text)["items"]
    }
