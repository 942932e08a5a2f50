"""Pure: a prompt's text and attachments as ACP content blocks."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from tieline_agentctl.envelope import BAD_REQUEST, RequestFailed, flag, items, number, text


def content(
    payload: Mapping[str, Any], capabilities: Mapping[str, Any], attachments_dir: str
) -> list[dict[str, Any]]:
    """The blocks; RequestFailed when an attachment is none or the agent does not take its kind."""
    given = dict(payload)
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text(given, "text")}]
    accepted = capabilities.get("promptCapabilities")
    accepted = accepted if isinstance(accepted, dict) else {}
    blocks += [_block(attachment, accepted, attachments_dir) for attachment in items(given, "attachments")]
    number(given, "prompt_generation")
    flag(given, "steer")
    return blocks


def _block(attachment: dict[str, Any], accepted: Mapping[str, Any], attachments_dir: str) -> dict[str, Any]:
    kind = text(attachment, "type")
    data, name = text(attachment, "data"), text(attachment, "name")
    mime_type = text(attachment, "mime_type")
    number(attachment, "size_bytes")
    if text(attachment, "delivery_mode") == "path" or not data:
        if not name:
            raise _bad("an attachment has neither data nor a name")
        link = {"type": "resource_link", "name": name, "uri": f"file://{quote(f'{attachments_dir}/{name}')}"}
        return link | ({"mimeType": mime_type} if mime_type else {})
    if kind in ("image", "audio"):
        if accepted.get(kind) is not True:
            raise _bad(f"the agent takes no {kind} attachments")
        return {"type": kind, "data": data, "mimeType": mime_type or f"{kind}/*"}
    if kind == "resource":
        if accepted.get("embeddedContext") is not True:
            raise _bad("the agent takes no resource attachments")
        resource = {"uri": f"attachment:///{quote(name or 'attachment')}", "blob": data}
        return {"type": "resource", "resource": resource | ({"mimeType": mime_type} if mime_type else {})}
    raise _bad(f"an attachment of unknown type {kind!r}")


def _bad(message: str) -> RequestFailed:
    return RequestFailed(BAD_REQUEST, f"invalid request: {message}")
