"""The numbers of this service, served at /metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import Counter, Histogram
from tieline_protocol.metrics import Family, Live, Sample

if TYPE_CHECKING:
    from tieline_streams.session import Session
    from tieline_streams.sessions import Sessions

INVALID = Counter("tieline_streams_invalid", "Frames from daemons that are no events", ["stream"])
DIALS = Counter("tieline_streams_dials", "Dials to daemons", ["stream", "outcome"])
TAKEN = Counter(
    "tieline_streams_taken",
    "Sessions taken that another process had, what for, and whether it had released them",
    ["aim", "clean"],
)
TURNS = Counter("tieline_streams_turns_ended", "Turns that ended, by how they ended", ["reason"])
COMMANDS = Counter("tieline_streams_commands", "Commands to sessions", ["action", "outcome"])
SECONDS = Histogram("tieline_streams_command_seconds", "Time that commands to sessions took", ["action"])


def _sessions(sessions: Sessions) -> Iterator[Sample]:
    now = time.monotonic()
    yield "tieline_streams_backlog_ratio", (), sessions.backlog
    for session in sessions.owned:
        yield "tieline_streams_sessions", (session.state,), 1
        yield from _turns(session, now)
        journal, manager = session.journal, session.manager
        yield "tieline_streams_permissions_open", (), len(journal.permissions)
        yield "tieline_streams_questions_open", (), len(journal.questions)
        yield "tieline_streams_operations_running", (), len(session.operations)
        yield "tieline_streams_paused_sockets", (), journal.paused
        if manager is not None:
            yield "tieline_streams_daemon_requests_in_flight", (), manager.waiting
            for stream, state in manager.states().items():
                yield "tieline_streams_connections", (stream, state), 1


def _turns(session: Session, now: float) -> Iterator[Sample]:
    for turn in session.journal.turns.all:
        yield "tieline_streams_turns", (turn.state,), 1
        yield "tieline_streams_turns_stalled", (), turn.stalled
        if turn.state == "running":
            yield "tieline_streams_turn_silence_seconds", (), now - turn.heard


SESSIONS: Live[Sessions] = Live(
    [
        Family("tieline_streams_sessions", "Sessions that this process owns", ("state",)),
        Family("tieline_streams_connections", "Sockets to daemons, by how they are", ("stream", "state")),
        Family("tieline_streams_turns", "Turns that have not ended", ("state",)),
        Family("tieline_streams_turns_stalled", "Turns whose agents have said nothing for minutes"),
        Family("tieline_streams_turn_silence_seconds", "The longest silence of an agent at work", most=True),
        Family("tieline_streams_permissions_open", "Decisions that agents wait for"),
        Family("tieline_streams_questions_open", "Questions of agents without an answer"),
        Family("tieline_streams_operations_running", "Operations of minutes under way, as git push"),
        Family("tieline_streams_daemon_requests_in_flight", "Requests to daemons without an answer"),
        Family("tieline_streams_paused_sockets", "Agents that are not read: their logs are full"),
        Family(
            "tieline_streams_backlog_ratio",
            "Of what events of agents may wait in this process; at 1 no agent is read",
            most=True,
        ),
    ],
    _sessions,
)
