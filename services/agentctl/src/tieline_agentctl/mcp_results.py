"""Pure: what the backend answered, as the result of a tool in MCP's spelling. A failure is a text for the model."""

from typing import Any

import orjson

from tieline_agentctl import jsontext


def invoked(reply: Any) -> dict[str, Any]:
    """The result for the reply to `mcp.invoke_plugin_tool`: `{text, structured_content?, is_error}`."""
    if not isinstance(reply, dict):
        return said(pretty(reply))
    text, structured = reply.get("text"), reply.get("structured_content")
    if not isinstance(text, str):
        text = "" if structured is None else pretty(structured)
    result = said(text, is_error=reply.get("is_error") is True)
    if isinstance(structured, dict):  # the protocol versions that agents speak know no other
        result["structuredContent"] = structured
    return result


def said(text: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def failed(code: str, message: str) -> dict[str, Any]:
    """The backend refused (with a code), or nobody will answer any more (without)."""
    return said(f"backend error [{code}]: {message}" if code else f"backend error: {message}", is_error=True)


def pretty(value: Any) -> str:
    """JSON for a model to read."""
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    except orjson.JSONEncodeError:  # deeper than it writes
        return jsontext.dumps(value).decode()
