"""What an action carries on, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from tieline_protocol import frontend
from tieline_protocol.errors import BadMessage
from tieline_protocol.frontend import ACTIONS


def carries(action: str, **payload: Any) -> dict[str, Any]:
    """What goes on of a payload, for a session or thread s1."""
    about = {"session_id": "s1", "thread_id": "s1"}
    given = frontend.payload(ACTIONS[action], {**about, **payload}).given()
    return {name: value for name, value in given.items() if name not in about or name in payload}


def refused(action: str, **payload: Any) -> str:
    """What is said of a payload that cannot be taken."""
    with pytest.raises(BadMessage) as caught:
        carries(action, **payload)
    return caught.value.message
