"""Pure: pieces of ACP, as an agent wrote them, in the wire's spelling. What has a wrong type is left out."""

from typing import Any


def text(value: Any) -> str:
    """The value if it is a string, else nothing; so for the next two."""
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def present(**members: Any) -> dict[str, Any]:
    """Only the members that are not empty: how the wire says absent."""
    return {name: value for name, value in members.items() if value not in (None, "", 0, False, [], {})}


def content_block(block: dict[str, Any]) -> dict[str, Any]:
    """An ACP content block in the wire's spelling."""
    resource = mapping(block.get("resource"))
    return {"type": text(block.get("type"))} | present(
        text=text(block.get("text")) or text(resource.get("text")),
        data=text(block.get("data")) or text(resource.get("blob")),
        mime_type=text(block.get("mimeType")) or text(resource.get("mimeType")),
        uri=text(block.get("uri")) or text(resource.get("uri")),
        name=text(block.get("name")),
        title=text(block.get("title")),
        description=text(block.get("description")),
        size=count(block.get("size")),
    )


def config_options(value: Any) -> list[dict[str, Any]]:
    """ACP config options in the wire's spelling; options in groups are laid flat."""
    found = []
    for option in objects(value):
        current = option.get("currentValue")
        choices = [
            {"value": text(choice.get("value")), "name": text(choice.get("name"))}
            | present(description=text(choice.get("description")))
            for entry in objects(option.get("options"))
            for choice in (objects(entry["options"]) if "options" in entry else [entry])
        ]
        found.append(
            {
                "type": text(option.get("type")),
                "id": text(option.get("id")),
                "name": text(option.get("name")),
                "current_value": str(current).lower() if isinstance(current, bool) else text(current),
            }
            | present(
                description=text(option.get("description")),
                category=text(option.get("category")),
                options=choices,
            )
        )
    return found


def usage(value: Any) -> dict[str, Any]:
    """The `usage` of a `complete` event; empty when the agent reports none."""
    given = mapping(value)
    if not given:
        return {}
    return {
        "input_tokens": count(given.get("inputTokens")),
        "output_tokens": count(given.get("outputTokens")),
        "output_tokens_present": given.get("outputTokens") is not None,
        "total_tokens": count(given.get("totalTokens")),
    } | present(
        cached_read_tokens=count(given.get("cachedReadTokens")),
        cached_write_tokens=count(given.get("cachedWriteTokens")),
        thought_tokens=count(given.get("thoughtTokens")),
    )


def auth_methods(value: Any) -> list[dict[str, Any]]:
    """The agent's ways to log in."""
    return [
        {"id": text(method.get("id")), "name": text(method.get("name"))}
        | present(description=text(method.get("description")), meta=method.get("_meta"))
        | present(terminal_auth=_terminal_auth(method))
        for method in objects(value)
    ]


def _terminal_auth(method: dict[str, Any]) -> dict[str, Any]:
    given = mapping(mapping(method.get("_meta")).get("terminal-auth"))
    command = text(given.get("command"))
    args = given.get("args")
    return (
        {"command": command}
        | present(args=args if isinstance(args, list) else [], label=text(given.get("label")))
        if command
        else {}
    )


def prompt_queueing(capabilities: dict[str, Any]) -> bool:
    """Whether the agent takes a prompt while it works on another; ACP has no field for it, agents say it in `_meta`."""
    meta = mapping(capabilities.get("_meta"))
    return any(part.get("promptQueueing") is True for part in (meta, *map(mapping, meta.values())))


def command(given: dict[str, Any]) -> dict[str, Any]:
    """A slash command."""
    return {"name": text(given.get("name"))} | present(
        description=text(given.get("description")),
        input_hint=text(mapping(given.get("input")).get("hint")),
    )


def models(option: dict[str, Any]) -> list[dict[str, Any]]:
    """The choices of a config option (in the wire's spelling) as models."""
    return [
        {"model_id": choice["value"], "name": choice["name"]} | present(description=choice.get("description"))
        for choice in option.get("options", [])
    ]


def count(value: Any) -> int:
    """The value if it is a number of something, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def in_meta(holder: dict[str, Any], *names: str) -> str:
    """The first string of these names in `_meta`, or one level below it, where agents keep their own."""
    meta = mapping(holder.get("_meta"))
    for part in (meta, *map(mapping, meta.values())):
        for name in names:
            if text(part.get(name)):
                return text(part[name])
    return ""
