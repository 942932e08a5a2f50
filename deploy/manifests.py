"""Write what the manifests take from elsewhere: `make manifests`. A test finds what was not written anew."""

from __future__ import annotations

from pathlib import Path

import yaml
from tieline_protocol import permissions

HERE = Path(__file__).parent
_FROM_ALERTS = "# Made by `make manifests` from observability/alerts.yaml.\n"


def made() -> dict[str, str]:
    """The text of each file that is made, by its path below this directory."""
    return {
        "base/nats/users.conf": permissions.users(),
        "overlays/extras/alerts.yaml": _FROM_ALERTS + _rule((HERE / "observability/alerts.yaml").read_text()),
    }


def _rule(rules: str) -> str:
    found = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "tieline"},
        "spec": yaml.safe_load(rules),
    }
    return yaml.safe_dump(found, sort_keys=False, width=120, allow_unicode=True)


def main() -> None:
    for path, text in made().items():
        (HERE / path).write_text(text)


if __name__ == "__main__":
    main()
