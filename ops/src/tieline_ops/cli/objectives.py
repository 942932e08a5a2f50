"""Pure: the objectives of a system, each with what meets it, what is a warning, and what hurts users now.

The limits are those of the alert rules in `deploy/`, so that `tieline check` and a pager agree. Facts that could not
be learnt make an objective `unknown`, never `ok`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tieline_ops.cli.describe import LONG
from tieline_ops.cli.verdicts import Facts, State, Verdict, graded

SERVICES = ("gateway", "streams", "remotes", "agent")

Judge = Callable[[Facts], Verdict]


def judge(facts: Facts, wanted: Iterable[str] = ()) -> list[Verdict]:
    """A verdict for each objective, or for those wanted. Raises KeyError for one that there is not."""
    names = list(wanted) or list(OBJECTIVES)
    return [OBJECTIVES[name](facts) for name in names]


def _unknown(objective: str, why: str = "NATS cannot be reached") -> Verdict:
    return Verdict(objective, State.UNKNOWN, why)


def broker(facts: Facts) -> Verdict:
    """NATS answers, and soon."""
    if facts.rtt is None:
        advice = "start it, or name another: --nats-url, a context; see its log"
        return Verdict("broker", State.CRITICAL, facts.unreachable or "it does not answer", advice=advice)
    state = graded(facts.rtt, 0.25, 2)
    advice = (
        "the broker or this machine is busy: `tieline streams`, and the broker's CPU and disk"
        if state
        else ""
    )
    return Verdict(
        "broker", state, f"answers in {facts.rtt * 1000:.1f} ms", {"rtt_s": round(facts.rtt, 6)}, advice
    )


def services(facts: Facts) -> Verdict:
    """Every service has a replica that answers."""
    if facts.services is None:
        return _unknown("services")
    counts = {name: sum(one["service"] == name for one in facts.services) for name in SERVICES}
    missing = [name for name, count in counts.items() if not count]
    told = ", ".join(f"{name} {count}" for name, count in counts.items())
    if missing:
        advice = f"start {', '.join(missing)}; its log (DATA/logs, kubectl logs) says why it ended"
        return Verdict("services", State.CRITICAL, f"nobody answers for {', '.join(missing)}", counts, advice)
    return Verdict("services", State.OK, told, counts)


def versions(facts: Facts) -> Verdict:
    """All replicas of a service run the same version."""
    if facts.services is None:
        return _unknown("versions")
    odd = [f"{one['service']} {one['id']} runs {one['version']}" for one in facts.services if one["skew"]]
    advice = "a roll-out is under way, or was left half done" if odd else ""
    text = "; ".join(odd) or "no replica differs"
    return Verdict("versions", State.WARNING if odd else State.OK, text, {"different": len(odd)}, advice)


def latency(facts: Facts) -> Verdict:
    """One of a hundred requests takes no more than 2 s, but where that is their nature."""
    if facts.services is None:
        return _unknown("latency")
    slow = [
        (each["p99"] / 1e9, f"{one['service']}.{each['endpoint']}")
        for one in facts.services
        for each in one["endpoints"]
        if each["endpoint"] not in LONG
    ]
    seconds, name = max(slow, default=(0.0, "nothing was asked yet"))
    state = graded(seconds, 2, 10)
    advice = (
        f"`tieline services -o wide`; is {name.partition('.')[0]} short of CPU, or the broker slow?"
        if state
        else ""
    )
    return Verdict(
        "latency", state, f"the slowest p99 is {seconds * 1000:.0f} ms ({name})", {"p99_s": seconds}, advice
    )


def leases(facts: Facts) -> Verdict:
    """Every process renews its lease each second; at 7 s it stops acting."""
    if facts.leases is None:
        return _unknown("leases")
    missing = [name for name in SERVICES if all(lease["kind"] != name for lease in facts.leases)]
    if missing:
        advice = f"{', '.join(missing)} cannot write to JetStream, or does not run: see its /readyz and log"
        return Verdict(
            "leases", State.CRITICAL, f"no process of {', '.join(missing)} holds one", advice=advice
        )
    oldest = max((lease["renewed"] or 0.0 for lease in facts.leases), default=0.0)
    state = graded(oldest, 4, 7)
    advice = "a process is stuck or the broker elects a leader: `tieline leases`" if state else ""
    return Verdict(
        "leases",
        state,
        f"{len(facts.leases)} processes, the oldest renewal {oldest:.1f} s ago",
        {"age_s": oldest},
        advice,
    )


def owners(facts: Facts) -> Verdict:
    """Every open session, and every thread with something to do, is owned by a process that is alive."""
    if facts.sessions is None or facts.threads is None:
        return _unknown("owners")
    lost = [
        one["session"] for one in facts.sessions if one["state"] in ("ready", "opening") and _ownerless(one)
    ]
    lost += [one["thread"] for one in facts.threads if one["busy"] and _ownerless(one)]
    told = {"without_owner": float(len(lost))}
    if lost:
        text = f"{len(lost)} without one: {', '.join(lost[:3])}{' …' if len(lost) > 3 else ''}"
        advice = "a takeover takes at most 10 s; if it lasts, streams or agent has no replica that may act"
        return Verdict("owners", State.CRITICAL, text, told, advice)
    return Verdict("owners", State.OK, "whoever must be owned is", told)


def _ownerless(one: Mapping[str, Any]) -> bool:
    return bool(one["owner_state"] != "alive")


def daemons(facts: Facts) -> Verdict:
    """Both connections to the daemon of every ready session are up."""
    if facts.sessions is None:
        return _unknown("daemons")
    ready = [one for one in facts.sessions if one["state"] == "ready"]
    down = [one for one in ready if {one["agent_connection"], one["workspace_connection"]} - {"up"}]
    share = len(down) / len(ready) if ready else 0.0
    state = State.OK if not down else State.CRITICAL if share > 0.1 and len(down) > 1 else State.WARNING
    text = f"{len(ready) - len(down)} of {len(ready)} ready sessions have both"
    ids = ", ".join(str(one["session"]) for one in down[:3])
    advice = (
        f"{ids}: `tieline session`, then the daemon's log; it may have ended or be out of reach"
        if down
        else ""
    )
    return Verdict("daemons", state, text, {"down": len(down), "ready": len(ready)}, advice)


def turns(facts: Facts) -> Verdict:
    """No turn stays accepted without running."""
    if facts.sessions is None:
        return _unknown("turns")
    running = [
        one for one in facts.sessions if one["turn"] not in (None, "ended") and one["state"] == "ready"
    ]
    stuck = [one for one in running if one["turn"] == "accepted" and (one["turn_seconds"] or 0) > 60]
    waiting = sum(one["turn"] == "waiting_permission" for one in running)
    text = f"{len(running)} running, {waiting} of them wait for a permission, {len(stuck)} stuck"
    ids = ", ".join(str(one["session"]) for one in stuck[:3])
    advice = (
        f"{ids}: `tieline trace`, `tieline tail --session`; a prompt that never ran can be cancelled"
        if stuck
        else ""
    )
    return Verdict(
        "turns",
        State.WARNING if stuck else State.OK,
        text,
        {"running": len(running), "stuck": len(stuck)},
        advice,
    )


def storage(facts: Facts) -> Verdict:
    """The streams are there and far from what the broker can hold."""
    if facts.streams is None:
        return _unknown("storage")
    broken = [f"{one['stream']}: {one['error']}" for one in facts.streams if "error" in one]
    if broken:
        advice = "no service has made them yet, or the broker lost its store: restore it, or start streams"
        return Verdict("storage", State.CRITICAL, "; ".join(broken), advice=advice)
    size = float(sum(one["bytes"] for one in facts.streams))
    full = max(
        (one["bytes"] / one["limit_bytes"] for one in facts.streams if one["limit_bytes"]), default=0.0
    )
    state = (
        State.WARNING if full >= 0.95 else State.OK
    )  # the oldest goes first: that is how it is meant to be
    advice = "the oldest output is discarded sooner than its age asks for: raise the limit" if state else ""
    text = f"{size / 1024**2:,.1f} MiB, the fullest stream at {full:.0%} of its limit"
    return Verdict("storage", state, text, {"bytes": size, "full": round(full, 4)}, advice)


def replicas(facts: Facts) -> Verdict:
    """Every replica of every stream is there and current."""
    if facts.streams is None:
        return _unknown("replicas")
    behind = [one for one in facts.streams if one.get("offline") or one.get("lag", 0) > 1_000]
    lag = float(max((one.get("lag", 0) for one in facts.streams), default=0))
    text = ", ".join(f"{one['stream']} is behind" for one in behind) or "all current"
    advice = (
        "a node of NATS is away or slow: until it is back, another loss stops all writes" if behind else ""
    )
    return Verdict("replicas", State.WARNING if behind else State.OK, text, {"lag": lag}, advice)


def gateway(facts: Facts) -> Verdict:
    """A frontend is let in, and soon."""
    if facts.gateway_error is not None:
        advice = "the gateway's log and /readyz; `unauthorized` is a token of another system"
        return Verdict("gateway", State.CRITICAL, facts.gateway_error, advice=advice)
    if facts.gateway is None:
        return _unknown("gateway", "its URL or a token is not known here")
    state = graded(facts.gateway, 1, 5)
    advice = (
        "the gateway is short of CPU, or floods of connections come in: `tieline connections`"
        if state
        else ""
    )
    return Verdict(
        "gateway",
        state,
        f"lets a client in within {facts.gateway * 1000:.0f} ms",
        {"s": facts.gateway},
        advice,
    )


def processes(facts: Facts) -> Verdict:
    """No process says that it is not ready, none lets its timers wait, none waits long for confirmations."""
    if not facts.scraped:
        return _unknown("processes", "no metrics can be read from here (`metrics` of the context)")
    lag = facts.metrics.get("tieline_loop_lag_seconds", 0.0)
    late = facts.metrics.get("tieline_log_unconfirmed_seconds", 0.0)
    unready = facts.metrics.get("unready", 0.0)
    state = State.CRITICAL if unready or late > 15 else State.WARNING if lag > 0.5 else State.OK
    text = f"{facts.scraped} read: {unready:g} not ready, loop lag {lag * 1000:.0f} ms, unconfirmed for {late:.1f} s"
    advice = "`/readyz` of the service says why; a lag means too little CPU for it" if state else ""
    numbers = {"unready": unready, "loop_lag_s": lag, "unconfirmed_s": late}
    return Verdict("processes", state, text, numbers, advice)


OBJECTIVES: dict[str, Judge] = {
    "broker": broker,
    "services": services,
    "versions": versions,
    "latency": latency,
    "leases": leases,
    "owners": owners,
    "daemons": daemons,
    "turns": turns,
    "storage": storage,
    "replicas": replicas,
    "gateway": gateway,
    "processes": processes,
}
