"""What the Dockerfile installs is enough to run each service, and is what was tested. Installs for real, so: long."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support import manifests
from tests.support.manifests import DEPLOY, ROOT

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]

SERVICES = (*manifests.SERVICES, "agentctl")
RUNS = {"streams": ["tieline_protocol.migrate"]}  # beside the service itself


def install(service: str) -> list[str]:
    """The words of the Dockerfile's own command."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    (command,) = re.findall(r"&& /build/bin/(uv pip install [^\n]*)", text)
    return str(command).replace("${SERVICE}", service).replace('"', "").split()


def pinned() -> dict[str, str]:
    """The constraints that hold on this machine."""
    found = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate():
            found[requirement.name.lower()] = str(requirement.specifier).removeprefix("==")
    return found


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_runs_its_service_with_the_versions_that_were_tested(service: str, tmp_path: Path) -> None:
    source = tmp_path / "src"
    for path in ("libs/protocol", f"services/{service}"):
        shutil.copytree(
            ROOT / path, source / path, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    shutil.copy(ROOT / "constraints.txt", source)
    app = tmp_path / "app"
    python = app / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(app)], check=True)
    uv, *words = install(service)
    words = [word.replace("/app/bin/python", str(python)) for word in words if word != "--compile-bytecode"]
    subprocess.run([manifests.tool(uv), *words, "--quiet", "--system-certs"], check=True, cwd=source)

    for module in (f"tieline_{service}", *RUNS.get(service, [])):
        done = subprocess.run(
            [python, "-c", f"import {module}.__main__" if "." not in module else f"import {module}"],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={"PATH": os.defpath},  # nothing of this checkout
        )
        assert done.returncode == 0, done.stderr
    listed = subprocess.run(
        [manifests.tool("uv"), "pip", "list", "--python", str(python), "--format", "freeze", "--quiet"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    installed = dict(
        line.lower().split("==") for line in listed.splitlines() if not line.startswith("tieline")
    )
    known = pinned()
    assert {name: version for name, version in installed.items() if known.get(name) != version} == {}
    size = sum(path.stat().st_size for path in app.rglob("*") if path.is_file() and not path.is_symlink())
    assert size < 150 * 1024 * 1024, f"{size:,} bytes"
