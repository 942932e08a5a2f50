"""Pure: the ways the wire writes a time. The time itself is an argument."""

from datetime import UTC, datetime

ZERO = "0001-01-01T00:00:00Z"


def seconds(now: datetime) -> str:
    """RFC3339, whole seconds, UTC: the health answers."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def nano(now: datetime) -> str:
    """RFC3339 with as many fraction digits as needed; UTC is written `Z`, anything else as an offset."""
    text = now.strftime("%Y-%m-%dT%H:%M:%S")
    if now.microsecond:
        text += f".{now.microsecond:06d}".rstrip("0")
    return text + _offset(now)


def three_digits(now: datetime) -> str:
    """RFC3339 with exactly three fraction digits: `timestamp` of the git status answer."""
    return f"{now.strftime('%Y-%m-%dT%H:%M:%S')}.{now.microsecond // 1000:03d}{_offset(now)}"


def milliseconds(now: datetime) -> int:
    """Unix milliseconds: the outer `timestamp` of workspace frames."""
    return int(now.timestamp() * 1000)


def _offset(now: datetime) -> str:
    offset = now.strftime("%z")
    return "Z" if offset in ("", "+0000") else f"{offset[:3]}:{offset[3:5]}"
