"""Pure: what happens in one schedule: a seed's work and troubles of one session, and deaths that all sessions share."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """After so many seconds: what, and how much of it or to whom."""

    wait: float
    what: str
    about: str = ""


def prompt(seed: int, number: int) -> str:
    """What a user asks for as the so-manieth prompt (workers.py says what it means); no two are the same."""
    chance = random.Random(f"{seed} prompt {number}")
    steps = [f"note {number}", f"say {chance.randint(1, 30)}", f"wait {chance.uniform(0, 0.6):.2f}"]
    if chance.random() < 0.4:
        steps.append("ask")
    steps += [
        f"say {chance.randint(1, 10)}",
        f"wait {chance.uniform(0, 0.4):.2f}",
        f"say {chance.randint(1, 3)}",
    ]
    return "|".join(steps)


def troubles(seed: int, seconds: float) -> list[Step]:
    """What befalls one session: output of its shell, its viewer's connection lost, its daemon's sockets closed."""
    chance = random.Random(f"{seed} troubles")
    found: list[Step] = []
    left = seconds
    while left > 0:
        wait = chance.uniform(0.02, 0.4)
        left -= wait
        what = chance.choices(("shell", "viewer", "agent", "workspace"), (80, 8, 3, 3))[0]
        found.append(Step(wait, what, str(chance.randint(1, 20)) if what == "shell" else ""))
    return found


def deaths(seed: int, seconds: float, streams: Sequence[str], gateways: Sequence[str]) -> list[Step]:
    """What befalls all: at least one streams process is killed, and the broker restarted or its connections cut."""
    chance = random.Random(f"{seed} deaths")
    certain = [("kill", chance.choice(streams)), (chance.choice(("restart", "cut")), "nats")]
    several = [
        *(("kill", name) for name in (*streams, *gateways)),
        *(("roll", name) for name in streams),
        ("restart", "nats"),
        ("cut", "nats"),
        ("cut", "nats"),
    ]
    chosen = certain + [chance.choice(several) for _ in range(chance.randint(2, 3))]
    chance.shuffle(chosen)
    pause = seconds / len(chosen)
    return [Step(chance.uniform(0.3, 1) * pause, what, about) for what, about in chosen]
