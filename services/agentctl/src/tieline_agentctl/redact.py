"""Pure: secrets out of what a permission shows, and long strings cut."""

import re

MOST_BYTES = 4_096
MASK = "[redacted]"
_SECRETS = (
    re.compile(r"(?i)(\bauthorization\s*[:=]\s*[\"']?(?:bearer|basic|token)?\s*)([^\s\"']+)"),
    re.compile(
        r"(?i)(\b[\w.-]*(?:password|passwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key)"
        r"[\"']?\s*(?:=|:|\s)\s*[\"']?)([^\s\"'&;|]{4,})"
    ),
    re.compile(r"(://[^\s/:@]*:)([^\s/@]+)(?=@)"),
    re.compile(
        r"()\b((?:sk|pk|rk)-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|glpat-[\w-]{16,}|AKIA[0-9A-Z]{16})"
    ),
    re.compile(r"()\b(eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,})"),
)


def redacted(text: str) -> tuple[str, bool]:
    """The text without secrets, and whether there were any."""
    found = False
    for secret in _SECRETS:
        text, count = secret.subn(rf"\1{MASK}", text)
        found = found or count > 0
    return text, found


def capped(text: str, most: int = MOST_BYTES) -> str:
    """At most so many bytes of UTF-8, never half a character."""
    data = text.encode("utf-8", "surrogatepass")
    return text if len(data) <= most else data[:most].decode("utf-8", "ignore")
