"""`python -m tieline_agentctl.example_agent`: speak ACP on stdin and stdout until stdin ends."""

import argparse
import asyncio
import gc
import inspect
import os

from tieline_agentctl.example_agent import language


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="tieline-example-agent",
        description=inspect.cleandoc(language.__doc__ or "").removeprefix("Pure: "),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--state", metavar="DIR", help="where sessions are kept for a later load (default: a temporary one)"
    )
    parser.add_argument("--no-queueing", action="store_true", help="take no prompt while one is running")
    parser.add_argument("--must-log-in", action="store_true", help="refuse sessions until authenticated")
    options = parser.parse_args()
    # Loading ACP is nearly all of the start, and a seventh of that was the collector going through its classes.
    gc.disable()
    from acp import run_agent

    from tieline_agentctl.example_agent.agent import ExampleAgent, store

    gc.freeze()
    gc.enable()
    directory = options.state or os.environ.get("TIELINE_EXAMPLE_AGENT_STATE")
    agent = ExampleAgent(store(directory), queueing=not options.no_queueing, must_log_in=options.must_log_in)
    asyncio.run(run_agent(agent))  # type: ignore[arg-type]  # its protocol wants every unstable method too


if __name__ == "__main__":
    main()
