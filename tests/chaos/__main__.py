"""`python -m tests.chaos`: kill services at random, and say whether everything came right again."""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from pathlib import Path

from tests.chaos.run import chaos

CONVERGED = 15.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    options = parser.parse_args()
    print(f"chaos for {options.seconds:.0f} s, seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="tieline-chaos") as directory:
        outcome = asyncio.run(chaos(Path(directory), options.seconds, options.sessions, options.seed))
    print(outcome)
    return int(bool(outcome.wrong or outcome.leaks or outcome.converged > CONVERGED))


if __name__ == "__main__":
    raise SystemExit(main())
