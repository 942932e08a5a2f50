"""Commands that list what there is: sessions, threads, remotes, services, streams, leases, connections, subjects."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tieline_ops.cli import output, shapes
from tieline_ops.cli.app import LOOK, app
from tieline_ops.cli.options import As, In, Session, place
from tieline_ops.cli.output import Format
from tieline_ops.cli.shapes import Column

Of = Annotated[str, typer.Option("--user", metavar="NAME", help="Only this user's.")]
_AGE = Column("AGE", lambda row: shapes.age(row["age_seconds"]), right=True)

SESSIONS = [
    Column("SESSION", "session"),
    Column("USER", "user", most=24),
    Column("STATE", "state", state=True),
    Column("TURN", "turn", state=True),
    Column("OWNER", "owner_state", state=True),
    Column("AGENT", "agent_connection", state=True),
    Column("WORKSPACE", "workspace_connection", state=True),
    _AGE,
    Column("TITLE", "title", most=32),
    Column("PROCESS", "owner", wide=True),
    Column("EPOCH", lambda row: str(row["epoch"] or "-"), wide=True),
    Column("EXECUTOR", "executor", wide=True),
    Column("RUNS", "agent", wide=True),
    Column("FOLDER", "workspace", wide=True),
    Column("REASON", "reason", wide=True),
]
THREADS = [
    Column("THREAD", "thread"),
    Column("USER", "user", most=24),
    Column("RUN", "run_state", state=True),
    Column("REASON", "run_reason", state=True),
    Column("OPEN", "busy"),
    Column("OWNER", "owner_state", state=True),
    _AGE,
    Column("TITLE", "title", most=40),
    Column("LAST RUN", "run", wide=True),
    Column("MODEL", "model", wide=True),
    Column("PROCESS", "owner", wide=True),
]
REMOTES = [
    Column("REMOTE", "remote", most=32),
    Column("USER", "user", most=24),
    Column("FUNCTIONS", "functions"),
    Column("EXTERNAL", "external"),
    Column("GATEWAY", "gateway_state", state=True),
    _AGE,
    Column("PROCESS", "gateway", wide=True),
    Column("CONNECTION", "connection", wide=True),
]
SERVICES = [
    Column("SERVICE", "service"),
    Column("ID", "id"),
    Column("VERSION", lambda row: row["version"] + (" (differs)" if row["skew"] else "")),
    Column("IN FLIGHT", "in_flight", right=True),
    Column("REQUESTS", "requests", right=True),
    Column("ERRORS", "errors", right=True),
    Column("P50", lambda row: shapes.took(row["p50"]), right=True),
    Column("P99", lambda row: shapes.took(row["p99"]), right=True),
    Column("LAST ERROR", "last_error", most=40),
]
ENDPOINTS = [
    Column("SERVICE", "service"),
    Column("ENDPOINT", "endpoint"),
    *SERVICES[3:8],
    Column("SUBJECT", "subject"),
    Column("ID", "id"),
    Column("STARTED", "started"),
    Column("LAST ERROR", "last_error"),
]
STREAMS = [
    Column("STREAM", "stream"),
    Column("MESSAGES", "messages", right=True),
    Column("SIZE", lambda row: shapes.size(row.get("bytes")), right=True),
    Column("LIMIT", lambda row: shapes.size(row.get("limit_bytes")), right=True),
    Column("SUBJECTS", "subjects", right=True),
    Column("OLDEST", lambda row: shapes.age(row.get("oldest")), right=True),
    Column("NEWEST", lambda row: shapes.age(row.get("newest")), right=True),
    Column("REPLICAS", "replicas", right=True),
    Column("LAG", "lag", right=True),
    Column("FIRST", lambda row: str(row.get("first_seq", "-")), wide=True, right=True),
    Column("LAST", lambda row: str(row.get("last_seq", "-")), wide=True, right=True),
    Column("LEADER", "leader", wide=True),
    Column("NOT CURRENT", "offline", wide=True),
    Column("ERROR", "error", wide=True),
]
LEASES = [
    Column("PROCESS", "process"),
    Column("KIND", "kind"),
    Column(
        "RENEWED", lambda row: "-" if row["renewed"] is None else f"{row['renewed']:.1f}s ago", right=True
    ),
    Column("OWNS", "owns", right=True),
    Column("REVISION", lambda row: str(row["revision"]), wide=True),
]
CONNECTIONS = [
    Column("CONNECTION", "connection"),
    Column("USER", "user", most=32),
    Column("SINCE", lambda row: shapes.age(row["seconds"]), right=True),
    Column("LOGS", "logs", right=True),
    Column("IN FLIGHT", "in_flight", right=True),
    Column("WAITING", lambda row: shapes.size(row["waiting_bytes"]), right=True),
    Column("REMOTES", "remotes"),
    Column("CALLS", "calls", right=True),
    Column("PEER", "peer"),
    Column("GATEWAY", "gateway", wide=True),
]
SUBJECTS = [
    Column("SUBJECT", "subject", most=60),
    Column("KIND", "kind"),
    Column("RATE", lambda row: shapes.rate(row["rate"]), right=True),
    Column("HEARD BY", "heard_by", most=40),
    Column("WHAT", "what", wide=True),
]


@app.command(rich_help_panel=LOOK)
def sessions(
    ctx: typer.Context,
    user: Of = "",
    all: Annotated[bool, typer.Option("--all", "-a", help="Closed and failed ones too.")] = False,
    as_: As = Format.TABLE,
    context: In = "",
) -> None:
    """Coding sessions: state, turn, owner, both connections."""
    from tieline_ops.cli import looking

    where = place(ctx, context)
    output.run(lambda: looking.sessions(where, user, all, as_))


@app.command(rich_help_panel=LOOK)
def session(ctx: typer.Context, session: Session, as_: As = Format.TABLE, context: In = "") -> None:
    """One session: owner, epoch, both connections, turn, how far its logs are."""
    from tieline_ops.cli import looking

    where = place(ctx, context)
    output.run(lambda: looking.session(where, session, as_))


@app.command(rich_help_panel=LOOK)
def threads(ctx: typer.Context, user: Of = "", as_: As = Format.TABLE, context: In = "") -> None:
    """Chat threads and their last runs."""
    from tieline_ops.cli import looking

    where = place(ctx, context)
    output.run(lambda: looking.threads(where, user, as_))


@app.command(rich_help_panel=LOOK)
def remotes(ctx: typer.Context, user: Of = "", as_: As = Format.TABLE, context: In = "") -> None:
    """Remotes: who exposes which functions, through which gateway."""
    from tieline_ops.cli import looking

    where = place(ctx, context)
    output.run(lambda: looking.remotes(where, user, as_))


@app.command(rich_help_panel=LOOK)
def services(ctx: typer.Context, as_: As = Format.TABLE, context: In = "") -> None:
    """Every replica of every service: version, requests in flight, p50 and p99 (`-o wide`: each endpoint)."""
    from tieline_ops.cli import looking

    where = place(ctx, context)
    output.run(lambda: looking.services(where, as_))


@app.command(rich_help_panel=LOOK)
def streams(ctx: typer.Context, as_: As = Format.TABLE, context: In = "") -> None:
    """Streams and buckets: sizes, ages, how far replicas are behind."""
    from tieline_ops.cli import looking

    where = place(ctx, context)
    output.run(lambda: looking.streams(where, as_))


@app.command(rich_help_panel=LOOK)
def leases(ctx: typer.Context, as_: As = Format.TABLE, context: In = "") -> None:
    """Processes that hold a lease, and how much each owns."""
    from tieline_ops.cli import looking

    where = place(ctx, context)
    output.run(lambda: looking.leases(where, as_))


@app.command(rich_help_panel=LOOK)
def connections(ctx: typer.Context, user: Of = "", as_: As = Format.TABLE, context: In = "") -> None:
    """Frontends that are connected: whose, since when, what waits for them."""
    from tieline_ops.cli import looking

    where = place(ctx, context)
    output.run(lambda: looking.connections(where, user, as_))


@app.command(rich_help_panel=LOOK)
def subjects(
    ctx: typer.Context,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.2, max=60, metavar="S", help="How long to count.")
    ] = 1.0,
    as_: As = Format.TABLE,
    context: In = "",
) -> None:
    """The catalogue of subjects, with live rates. Listens to events only; counts of requests come from services."""
    from tieline_ops.cli import looking

    where = place(ctx, context)
    output.run(lambda: looking.subjects(where, seconds, as_))


def shown(format: Format) -> list[Column]:
    """The columns of `services`."""
    return ENDPOINTS if format is Format.WIDE else SERVICES


def flat(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each endpoint instead of each replica."""
    return [{**row, **endpoint} for row in rows for endpoint in row["endpoints"]]
