"""Pure: how the command ends, for scripts. `docs/cli.md` lists the same."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes. `check` has those of Nagios instead: 0 ok, 1 warning, 2 critical, 3 unknown."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNAVAILABLE = 4
    TIMEOUT = 5
    DENIED = 6
    INTERRUPTED = 130  # Ctrl-C
    TERMINATED = 143  # by SIGTERM or SIGHUP: `shell` and `top` set the terminal right before they end
    BROKEN_PIPE = 141  # nobody reads the output any more, as with any other command


_CODES = {
    "bad_request": Exit.USAGE,
    "invalid_arguments": Exit.USAGE,
    "unknown_action": Exit.USAGE,
    "not_found": Exit.NOT_FOUND,
    "unavailable": Exit.UNAVAILABLE,
    "disconnected": Exit.UNAVAILABLE,
    "busy": Exit.UNAVAILABLE,
    "rate_limited": Exit.UNAVAILABLE,
    "timeout": Exit.TIMEOUT,
    "unauthorized": Exit.DENIED,
}


def of(code: str) -> Exit:
    """How a command ends that failed with this code of the protocol."""
    return _CODES.get(str(code), Exit.FAILED)


class Problem(Exception):
    """What ends a command, said in one line, perhaps with what to do about it."""

    def __init__(self, message: str, exit: Exit = Exit.FAILED, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.exit = exit
        self.hint = hint
