"""Pure: an event of the agent stream, as the wire wants every one of them."""

from typing import Any

from tieline_agentctl.acp_shapes import present


def event(type: str, **members: Any) -> dict[str, Any]:
    """Empty members are left out; the four capabilities are on every event, whatever its type."""
    return {
        "type": type,
        "supports_image": False,
        "supports_audio": False,
        "supports_embedded_context": False,
        "supports_prompt_queueing": False,
    } | present(**members)
