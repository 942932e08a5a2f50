"""An ACP agent in plain JSON that does exactly what a prompt's text says: a JSON list of steps.

Steps: {"send": message}, {"line": text as it is}, {"update": update}, {"ask": id, tool?}, {"answer": id} waits for
that answer and says it, {"cancel": true} waits for a cancel, {"heard": true} says which methods came so far, {"meta":
true} what the prompt's `_meta` was, {"sleep": s}, {"end": result}, {"error": {...}}, {"exit": code}, {"close": true}
closes stdout and stdin but lives on, {"child": seconds} leaves a child behind and says its pid. Environment
RAW_AGENT: JSON of answers by method.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

SESSION = "raw-1"
ANSWERS: dict[str, Any] = {
    "initialize": {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}},
    "session/new": {"sessionId": SESSION},
    "session/load": {},
    "session/set_mode": {},
    "authenticate": {},
    **json.loads(os.environ.get("RAW_AGENT", "{}")),
}
heard: list[str] = []
answers: dict[object, object] = {}
changed = threading.Condition()
writing = threading.Lock()


def send(message: dict[str, Any]) -> None:
    line(json.dumps({"jsonrpc": "2.0", **message}))


def line(text: str) -> None:
    with writing:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def update(what: dict[str, Any]) -> None:
    send({"method": "session/update", "params": {"sessionId": SESSION, "update": what}})


def say(text: str) -> None:
    update({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})


def wait(condition: Callable[[], bool]) -> None:
    with changed:
        changed.wait_for(condition, 30)


def carry_out(id: object, steps: list[dict[str, Any]], meta: object) -> None:
    before = heard.count("session/cancel")
    for step in steps:
        match step:
            case {"send": message}:
                send(message)
            case {"line": text}:
                line(str(text))
            case {"update": what}:
                update(what)
            case {"say": text}:
                say(str(text))
            case {"ask": asked, **more}:
                options = [
                    {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
                    {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
                ]
                tool = {"toolCallId": "t1", "title": "Do it", "kind": "execute", **(more.get("tool") or {})}
                params = {
                    "sessionId": SESSION,
                    "toolCall": tool,
                    "options": options,
                    **(more.get("more") or {}),
                }
                send({"id": asked, "method": "session/request_permission", "params": params})
            case {"answer": asked}:
                wait(partial(answers.__contains__, asked))
                say(json.dumps(answers[asked]))
            case {"cancel": _}:
                wait(lambda: heard.count("session/cancel") > before)
            case {"heard": _}:
                say(" ".join(heard))
            case {"meta": _}:
                say(json.dumps(meta))
            case {"sleep": seconds}:
                time.sleep(float(seconds))
            case {"child": seconds}:
                child = subprocess.Popen(["sleep", str(seconds)], stdin=subprocess.DEVNULL)
                say(str(child.pid))
            case {"end": result}:
                send({"id": id, "result": result})
            case {"error": error}:
                send({"id": id, "error": error})
            case {"close": _}:
                os.close(1)
                os.close(0)
            case {"exit": code}:
                os._exit(int(code))


def main() -> None:
    for text in sys.stdin:
        message = json.loads(text)
        method = message.get("method")
        with changed:
            if method is None:
                answers[message["id"]] = message.get("result", message.get("error"))
            else:
                heard.append(method)
            changed.notify_all()
        if method == "session/prompt":
            steps = json.loads(message["params"]["prompt"][0]["text"])
            told = (message["id"], steps, message["params"].get("_meta"))
            threading.Thread(target=carry_out, args=told, daemon=True).start()
        elif method is not None and "id" in message:
            answer = ANSWERS.get(method)
            for before in ANSWERS.get(f"before {method}", []):
                update(before)
            if answer is None:
                send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
            elif "error" in answer:
                send({"id": message["id"], **answer})
            else:
                send({"id": message["id"], "result": answer})
            for after in ANSWERS.get(f"after {method}", []):
                update(after)


if __name__ == "__main__":
    main()
