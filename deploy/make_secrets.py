"""Print every Secret that the manifests refer to, with new random values, for `kubectl apply -f -`.

Run once for each namespace. Running it again changes all of them at once; how one alone is changed stands in
docs/operations.md.
"""

from __future__ import annotations

import argparse
import base64
import json
import secrets
from collections.abc import Mapping

from tieline_protocol.permissions import PARTS

NODES = 3
MODEL_KEY = "none"  # many endpoints of one's own want none


def values(nodes: int = NODES, model_key: str = MODEL_KEY) -> dict[str, dict[str, str]]:
    """The Secrets by name, their files by key."""
    passwords = {user: secrets.token_hex(24) for user in PARTS}
    route = secrets.token_hex(24)
    return {
        "nats-users": {
            "passwords.conf": "".join(f'PASSWORD_{u.upper()}: "{p}"\n' for u, p in passwords.items())
        },
        "nats-routes": {"routes.conf": routes(route, nodes)},
        **{f"nats-{user}": {"password": password} for user, password in passwords.items()},
        "gateway-jwt": {"secret": secrets.token_hex(32)},
        "agentctl-token": {"token": secrets.token_hex(32)},
        "model-key": {"key": model_key},
    }


def routes(password: str, nodes: int) -> str:
    """What the nodes of the broker need to find, and to trust, each other."""
    peers = [f"nats-route://route:{password}@nats-{number}.nats-peers:6222" for number in range(nodes)]
    return "\n".join(
        [f'PASSWORD_ROUTE: "{password}"', "routes: [", *(f"  {json.dumps(peer)}" for peer in peers), "]", ""]
    )


def manifest(namespace: str, found: Mapping[str, Mapping[str, str]]) -> str:
    """As `kubectl apply` takes it: JSON is YAML."""
    items = [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {"app.kubernetes.io/part-of": "tieline"},
            },
            "type": "Opaque",
            "data": {key: base64.b64encode(value.encode()).decode() for key, value in files.items()},
        }
        for name, files in found.items()
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--namespace", default="tieline")
    parser.add_argument("--model-key", default=MODEL_KEY, help="the OPENAI_API_KEY of the agent service")
    wanted = parser.parse_args()
    print(manifest(wanted.namespace, values(model_key=wanted.model_key)))


if __name__ == "__main__":
    main()
