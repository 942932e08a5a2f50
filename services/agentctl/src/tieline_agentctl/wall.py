"""The time of day, the one place where it is asked. How it is written is in clock.py."""

import time
from datetime import datetime


def now() -> datetime:
    """With the daemon's own offset."""
    return datetime.now().astimezone()


def now_ms() -> int:
    return time.time_ns() // 1_000_000
