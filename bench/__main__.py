"""`python -m bench [--quick] [NAME...]`: measure, print a table, write bench/results.json."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

from bench import agent, calls, durable, fanout, flood, idle, pipeline, replay, results, takeover
from bench.measure import Figure, Goal
from bench.workers import BenchError

RESULTS = Path(__file__).resolve().parent / "results.json"
SUITES: list[tuple[ModuleType, tuple[Goal, ...]]] = [
    (fanout, (fanout.GOAL,)),
    (pipeline, (pipeline.DIRECT, pipeline.OBVIOUS)),
    (flood, (flood.GOAL,)),
    (calls, (calls.RATE, calls.LATENCY)),
    (agent, (agent.GOAL,)),
    (idle, (idle.GOAL,)),
    (replay, (replay.GOAL,)),
    (durable, (durable.GOAL,)),
    (takeover, (takeover.SIGTERM, takeover.SIGKILL)),
]


def main() -> int:
    names = [goal.name for _, goals in SUITES for goal in goals]
    parser = argparse.ArgumentParser(prog="python -m bench", description="Ratios, measured side by side.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"figures (all when none is named): {', '.join(names)}"
    )
    parser.add_argument(
        "--quick", action="store_true", help="smaller runs: shows that it works, not how fast it is"
    )
    options = parser.parse_args()
    if unknown := set(options.names) - set(names):
        parser.error(f"no such figure: {', '.join(sorted(unknown))}")
    wanted = set(options.names or names)

    began = time.monotonic()
    figures: list[Figure] = []
    failed = False
    with tempfile.TemporaryDirectory(prefix="tieline-bench-") as folder:
        for suite, goals in SUITES:
            if not wanted & {goal.name for goal in goals}:
                continue
            try:
                measured = suite.measure(Path(folder) / suite.__name__, options.quick, _say)
            except BenchError as exc:
                _say(f"{suite.__name__}: not measured: {exc}")
                failed = True
                continue
            figures += [figure for figure in measured if figure.goal.name in wanted]
    if figures:
        _say("")
        _say(results.table(figures))
        before = json.loads(RESULTS.read_text()) if RESULTS.exists() and options.names else None
        RESULTS.write_text(json.dumps(results.document(figures, before), indent=2) + "\n")
    _say(f"\n{time.monotonic() - began:.0f} s")
    return 1 if failed else 0


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
