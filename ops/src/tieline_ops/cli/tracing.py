"""Pure: where the time of turns and runs went, from the events of their log. Times are those of the log's owner.

A step that has no end yet has `took_ms` None. Clocks that were set back make a step take 0, never less (B94).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tieline_ops.cli import safe, shapes
from tieline_ops.cli.lines import Told

Span = dict[str, Any]

_BAR = 24  # columns of a bar; fewer where the terminal is narrow
_BESIDE = 28  # columns of the times beside it
_DONE = ("complete", "completed", "failed", "cancelled", "error")


def spans(events: Iterable[Told]) -> list[Span]:
    """Turns of a session, runs of a thread, in the order in which they began."""
    making = _Making()
    for one in events:
        making.event(one.time, one.event)
    return making.spans


class _Making:
    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._named: dict[str, Span] = {}
        self._open: dict[tuple[str, str], Span] = {}  # steps, by kind and id
        self._now: Span | None = None  # the span that events without a name belong to

    def event(self, time: int, event: dict[str, Any]) -> None:
        match event.get("type"):
            case "turn":
                self._state("turn", str(event.get("generation")), time, event)
            case "run":
                self._state("run", str(event.get("run_id")), time, event)
            case "reasoning":
                self._once(time, event, "first thought")
            case "message_chunk" | "delta":
                self._once(time, event, "first words")
            case "tool_call":
                self._begin(time, event, "tool", str(event.get("tool_call_id")), _tool(event))
            case "tool_update" if event.get("tool_status") in _DONE:
                self._end(time, "tool", str(event.get("tool_call_id")), str(event.get("tool_status")))
            case "tool_result":
                outcome = str(event.get("code") or "error") if "error" in event else "ok"
                self._end(time, "tool", str(event.get("tool_call_id")), outcome)
            case "permission_request":
                title = str(event.get("permission_title") or "")
                self._begin(time, event, "permission", "", f"permission {title}".strip())
            case "agent_error" | "error":
                self._begin(
                    time,
                    event,
                    "error",
                    str(time),
                    str(event.get("error") or event.get("message") or "error"),
                )
                self._end(time, "error", str(time), "error")

    def _span(self, event: dict[str, Any]) -> Span | None:
        run = event.get("run_id")
        return self._named.get(f"run {run}") if run is not None else self._now

    def _state(self, kind: str, name: str, time: int, event: dict[str, Any]) -> None:
        key, state = f"{kind} {name}", str(event.get("state"))
        span = self._named.get(key)
        if span is None:
            label = name if kind == "run" else key
            span = self._named[key] = {
                "kind": kind,
                "name": label,
                "start": time,
                "took_ms": None,
                "state": state,
            }
            span |= {"reason": None, "steps": []}
            self.spans.append(span)
        self._now = span
        if state != "waiting_permission":
            self._end(time, "permission", "", "answered" if state == "running" else state)
        if span["state"] != state or not span["steps"]:
            self._begin(time, event, "state", f"{key} {state}", state, span)
            self._end(time, "state", f"{key} {state}", "")
        span["state"] = state
        if state == "ended":
            span["took_ms"], span["reason"] = max(time - span["start"], 0), event.get("reason")
            self._now = None

    def _once(self, time: int, event: dict[str, Any], what: str) -> None:
        span = self._span(event)
        if span is not None and all(step["what"] != what for step in span["steps"]):
            self._begin(time, event, "mark", what, what, span)
            self._end(time, "mark", what, "")

    def _begin(
        self, time: int, event: dict[str, Any], kind: str, id: str, what: str, span: Span | None = None
    ) -> None:
        span = span or self._span(event)
        if span is None or (kind, id) in self._open:
            return
        step = {
            "kind": kind,
            "what": what,
            "start_ms": max(time - span["start"], 0),
            "took_ms": None,
            "outcome": "",
        }
        step["at"] = time
        span["steps"].append(step)
        self._open[kind, id] = step

    def _end(self, time: int, kind: str, id: str, outcome: str) -> None:
        step = self._open.pop((kind, id), None)
        if step is not None:
            step["took_ms"] = max(time - step.pop("at"), 0)
            step["outcome"] = outcome


def _tool(event: dict[str, Any]) -> str:
    if "function" in event:
        return f"{event.get('remote')}.{event['function']}"
    return str(event.get("tool_title") or event.get("tool_name") or event.get("tool_call_id") or "tool")


def drawn(spans: Sequence[Span], *, width: int = 100, colour: bool = False) -> list[str]:
    """Lines with a bar for each step that took time."""
    out: list[str] = []
    for span in spans:
        took = span["took_ms"] if span["took_ms"] is not None else _latest(span)
        reason = f", {span['reason']}" if span["reason"] else ""
        state = f"{span['state']}{reason}"
        head = f"{safe.line(span['name'])}  {_ms(span['took_ms'])}  "
        out.append(shapes.styled(head, "head" if colour else "") + safe.line(state))
        out += [_step(step, max(took, 1), width, colour) for step in span["steps"]]
    return out


def _step(step: Span, whole: int, width: int, colour: bool) -> str:
    size = min(max(width - _BESIDE - 20, 4), _BAR)
    before = min(round(step["start_ms"] / whole * size), size - 1)
    lasts = step["took_ms"] if step["took_ms"] is not None else whole - step["start_ms"]
    long = max(min(round(lasts / whole * size), size - before), 1)
    mark = "█" * long if step["kind"] in ("tool", "permission") else "│"
    took = _ms(step["took_ms"]) if step["kind"] in ("tool", "permission") else ""
    bar = f"{' ' * before}{mark}"
    text = shapes.fit(safe.line(f"{step['what']} {step['outcome']}".strip()), max(width - size - _BESIDE, 8))
    shade = "bad" if step["outcome"] in ("failed", "error") else "name" if took else ""
    shown = shapes.styled(bar, shade if colour else "") + " " * (size - len(bar))
    return f"  {'+' + _ms(step['start_ms']):>10}  {shown}  {took:>9}  {text}"


def _latest(span: Span) -> int:
    return max((step["start_ms"] + (step["took_ms"] or 0) for step in span["steps"]), default=0)


def _ms(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "…"
    return f"{milliseconds} ms" if milliseconds < 10_000 else f"{milliseconds / 1000:.1f} s"
