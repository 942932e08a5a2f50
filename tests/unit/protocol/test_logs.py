"""Lines of the log: whose, of which trace, in one form."""

import json
import subprocess
import sys

SCRIPT = """
import asyncio, logging, sys
import structlog
from tieline_protocol import logs, tracing

logs.configure("gateway", "info", sys.argv[1])
log = structlog.get_logger()

async def of(session):
    logs.about(session=session)
    with tracing.begin("work", parent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"):
        await asyncio.sleep(0)
        async def inner():
            log.info("deep within", n=1)
        await asyncio.create_task(inner())
        logging.getLogger("library").warning("from %s", "outside")
    log.info("own", session="mine")

async def main():
    logs.about(user="ada")
    log.info("before")
    await asyncio.gather(*(asyncio.create_task(of(s)) for s in ("s1", "s2")))
    log.debug("too much")
    token = "secret"
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("after")

asyncio.run(main())
"""


def run(form: str) -> str:
    done = subprocess.run([sys.executable, "-c", SCRIPT, form], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    return done.stderr


def test_each_line_says_whose_it_is_and_of_which_trace() -> None:
    lines = [json.loads(line) for line in run("json").splitlines()]
    trace = "0af7651916cd43dd8448eb211c80319c"

    assert all(line["service"] == "gateway" and line["user"] == "ada" for line in lines)
    assert all(line.keys() >= {"event", "level", "timestamp"} for line in lines)
    deep = [line for line in lines if line["event"] == "deep within"]
    assert [(line["session"], line["trace"]) for line in deep] == [("s1", trace), ("s2", trace)]
    outside = [line for line in lines if line["event"] == "from outside"]
    assert [(line["session"], line["trace"]) for line in outside] == [("s1", trace), ("s2", trace)]
    own = [line for line in lines if line["event"] == "own"]
    assert [(line["session"], "trace" in line) for line in own] == [("mine", False)] * 2
    before, after = lines[0], lines[-1]
    assert not {"session", "trace"} & (before.keys() | after.keys())


def test_a_traceback_does_not_show_values() -> None:
    text = run("json")
    after = json.loads(text.splitlines()[-1])

    assert after["exception"][0]["exc_type"] == "ValueError"
    assert "secret" not in text


def test_on_a_terminal_the_same_is_said_in_words() -> None:
    [line, *_] = [line for line in run("text").splitlines() if "deep within" in line]

    assert "session=s1" in line
    assert "trace=0af7651916cd43dd8448eb211c80319c" in line
