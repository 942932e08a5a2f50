"""Pure: what an attached terminal must not be given, and what sets it right afterwards.

An attached shell is the one place where what comes drives the terminal: that is what a terminal is for. But what is
shown again, from the past, must not make the terminal answer: its answers would be typed into the shell now.
"""

from __future__ import annotations

import re

# Device status and attributes (CSI … n, CSI … c, CSI > q), settings (DCS $q, +q), colours and the like (OSC …;?).
_QUESTIONS = re.compile(
    "\x1b\\[[?>=]?[0-9;]*[nc]|\x1b\\[>[0-9]*q|\x1bZ|\x05|\x1bP[+$]q[^\x1b]*\x1b\\\\|\x1b\\][0-9;]*\\?(?:\x07|\x1b\\\\)"
)

# Out of the other screen, of mouse reports, bracketed paste and application keys; cursor shown, no colours.
RESET = "\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[?25h\x1b[0m"


def again(text: str) -> str:
    """Output of the past, without what asks the terminal something."""
    return _QUESTIONS.sub("", text)


def key(named: str) -> str:
    """The character of a key such as `^]` or `^a`. Raises ValueError."""
    if len(named) == 2 and named[0] == "^" and 0x40 <= ord(named[1].upper()) <= 0x5F:
        return chr(ord(named[1].upper()) - 0x40)
    raise ValueError(f"{named!r} is no key: ^] or ^a")
