"""Pure: every NATS subject, stream and bucket name, built and parsed here and nowhere else.

Rule 1: an id becomes one token or an error, never a wildcard or a second token.
Rule 2: two different user ids never share a token; a token can be told from an id that looks like one.
"""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass

from tieline_protocol.errors import BadSubject

LOGS = ("agent", "workspace", "thread")
OTHER = "other"  # where events go whose type cannot be a token, or of which a log has too many

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-")
_ACTION = re.compile(r"[a-z0-9_-]{1,64}(\.[a-z0-9_-]{1,64}){0,4}\Z")
_MAX_USER = 512
_MAX_ESCAPED = 40
_REMEMBERED = 4_096  # users whose tokens need not be made again: one is part of every message


def token(id: str) -> str:
    """`id` itself if it is one of ours (`[A-Za-z0-9_-]{1,64}`). Raises BadSubject."""
    if isinstance(id, str) and _ID.match(id):
        return id
    raise BadSubject(f"not an id: {id!r:.80}")


def is_id(value: object) -> bool:
    """Whether a value can be an id that we minted."""
    return isinstance(value, str) and _ID.match(value) is not None


@functools.lru_cache(_REMEMBERED)
def user_token(user: str) -> str:
    """One token for a user id of 1 to 512 bytes: `u_` and the escaped bytes up to 40, else `h_` and a hash."""
    try:
        raw = user.encode()
    except UnicodeEncodeError as exc:
        raise BadSubject("a user id must be valid Unicode") from exc
    if not 0 < len(raw) <= _MAX_USER:
        raise BadSubject(f"a user id must have 1 to {_MAX_USER} bytes")
    if len(raw) > _MAX_ESCAPED:
        return "h_" + hashlib.sha256(raw).hexdigest()
    return "u_" + "".join(chr(byte) if byte in _PLAIN else f"_{byte:02X}" for byte in raw)


def type_token(type: str) -> str:
    """The token of an event type; `other` where it cannot be one."""
    return type if _ID.match(type) else OTHER


def action_token(action: str) -> str:
    """A dotted action, such as `agent.session.new`, as the end of a subject. Raises BadSubject."""
    if _ACTION.match(action):
        return action
    raise BadSubject(f"not an action: {action!r:.80}")


def _log(log: str) -> str:
    if log in LOGS:
        return log
    raise BadSubject(f"not a log: {log!r:.40}")


# Events: published, stored in JetStream.


def event(user: str, id: str, log: str, type: str) -> str:
    """Where a batch of events of one type goes. `type` must already be a token."""
    return f"tieline.event.{user_token(user)}.{token(id)}.{_log(log)}.{type_token(type)}"


def log_events(user: str, id: str, log: str) -> str:
    """All events of one log."""
    return f"tieline.event.{user_token(user)}.{token(id)}.{_log(log)}.*"


def log_openings(user: str, id: str, log: str) -> str:
    """The openings of one log (one for each owner it ever had)."""
    return event(user, id, log, "epoch")


ALL_EVENTS = "tieline.event.>"


@dataclass(frozen=True, slots=True)
class EventSubject:
    """The parts of an event's subject; `user` is a token, not an id."""

    user: str
    id: str
    log: str
    type: str


def parse_event(subject: str) -> EventSubject:
    """The parts of an event subject. Raises BadSubject."""
    parts = subject.split(".")
    if len(parts) != 6 or parts[:2] != ["tieline", "event"] or parts[4] not in LOGS or not all(parts):
        raise BadSubject(f"not an event subject: {subject!r:.80}")
    return EventSubject(*parts[2:])


# Commands, service endpoints: requests.


def command(user: str, id: str, action: str) -> str:
    """A request to whoever owns a session or thread."""
    return f"tieline.command.{user_token(user)}.{token(id)}.{action_token(action)}"


def commands(user: str, id: str) -> str:
    """What the owner of a session or thread subscribes to."""
    return f"tieline.command.{user_token(user)}.{token(id)}.>"


def command_action(subject: str) -> str:
    """The action of a command's subject."""
    return subject.split(".", 4)[4]


HEAD = "head"  # the command that asks an owner how far its logs are
FOUND = "found"  # the command that tells an owner what a process found that had owned a session before


def rpc(service: str, endpoint: str, user: str) -> str:
    """A request to any replica of a service."""
    return f"tieline.rpc.{token(service)}.{token(endpoint)}.{user_token(user)}"


def rpc_endpoint(service: str, endpoint: str) -> str:
    """What the replicas of a service subscribe to, in a queue group."""
    return f"tieline.rpc.{token(service)}.{token(endpoint)}.*"


# One frontend connection.


def connection(gateway: str, connection: str, verb: str) -> str:
    """A request to the gateway that holds a connection."""
    return f"tieline.connection.{token(gateway)}.{token(connection)}.{token(verb)}"


def connections(gateway: str) -> str:
    """What a gateway subscribes to, once."""
    return f"tieline.connection.{token(gateway)}.*.*"


# A remote call under way: only the replica that minted its id subscribes.


def call(replica: str, call: str, verb: str) -> str:
    """A message about one call: result, progress, disconnected (from the gateway), cancel (from the caller)."""
    return f"tieline.call.{token(replica)}.{token(call)}.{token(verb)}"


def calls(replica: str) -> str:
    """What a replica of remotes subscribes to, once."""
    return f"tieline.call.{token(replica)}.*.*"


def parse_request_id(request_id: str) -> tuple[str, str]:
    """The replica and the call in a requestId `<replica>-<call>`. Raises BadSubject."""
    replica, dash, call = request_id.partition("-")
    if not (dash and is_id(replica) and is_id(call)) or "-" in call:
        raise BadSubject(f"not a requestId: {request_id!r:.80}")
    return replica, call


def changed(user: str) -> str:
    """Where it is said that one of a user's lists changed."""
    return f"tieline.changed.{user_token(user)}"


ALL_CHANGED = (
    "tieline.changed.*"  # every gateway listens once: a subscription for each user would cost it 6 KiB
)


def changed_user(subject: str) -> str:
    """The token of the user in whose lists something changed."""
    return subject.rpartition(".")[2]


# JetStream.

STREAM_AGENT = "TIELINE_AGENT"
STREAM_WORKSPACE = "TIELINE_WORKSPACE"
STREAM_SUBJECTS = {
    STREAM_AGENT: ["tieline.event.*.*.agent.*", "tieline.event.*.*.thread.*"],
    STREAM_WORKSPACE: ["tieline.event.*.*.workspace.*"],
}

BUCKET_SESSIONS = "tieline_sessions"
BUCKET_OWNERS = "tieline_owners"
BUCKET_PROCESSES = "tieline_processes"
BUCKET_REMOTES = "tieline_remotes"
BUCKET_THREADS = "tieline_threads"
BUCKET_INSTANCES = "tieline_instances"  # addresses and tokens: nobody but streams may read it


def stream_of(log: str) -> str:
    """The JetStream stream that keeps a log."""
    return STREAM_WORKSPACE if _log(log) == "workspace" else STREAM_AGENT


def bucket_stream(bucket: str) -> str:
    """The stream behind a key-value bucket."""
    return f"KV_{token(bucket)}"


def bucket_key(bucket: str, key: str) -> str:
    """The subject of one key, or of keys where `key` ends in a wildcard."""
    return f"$KV.{token(bucket)}.{key}"


def process_key(process: str) -> str:
    """The key of a process's lease; `*` for all."""
    return f"process.{process if process == '*' else token(process)}"


def process_of(key: str) -> str:
    """The process whose lease a key, or its subject, is."""
    return key.rpartition(".")[2]


def remote_key(user: str, name_token: str) -> str:
    """The key of a registration; `*` for all of a user's."""
    return f"{user_token(user)}.{name_token if name_token == '*' else token(name_token)}"


def session_key(user: str, session: str) -> str:
    """The key of a session's record."""
    return f"{user_token(user)}.{token(session)}"


def session_keys(user: str | None = None) -> str:
    """The keys of a user's session records; of all users' where no user is named."""
    return f"{user_token(user)}.*" if user is not None else "*.*"


def session_keys_of(session: str) -> str:
    """The key of a session's record, whosever it is."""
    return f"*.{token(session)}"


def thread_key(user: str, thread: str) -> str:
    """The key of a thread's record."""
    return f"{user_token(user)}.{token(thread)}"


def thread_keys(user: str) -> str:
    """The keys of a user's thread records."""
    return f"{user_token(user)}.*"


def open_key(thread: str) -> str:
    """The key that says that a thread has something to do; `*` for all. No user's token looks like it."""
    return f"open.{thread if thread == '*' else token(thread)}"


def direct_get(stream: str) -> str:
    """Reads from any replica of a stream."""
    return f"$JS.API.DIRECT.GET.{stream}"


def leader_get(stream: str) -> str:
    """Reads one message from the leader of a stream."""
    return f"$JS.API.STREAM.MSG.GET.{stream}"


def stream_api(verb: str, stream: str) -> str:
    """Stream administration: CREATE, UPDATE, INFO, PURGE, DELETE."""
    return f"$JS.API.STREAM.{verb}.{stream}"


def service_verb(verb: str, name: str = "", id: str = "") -> str:
    """The NATS services convention (ADR-32): PING, INFO, STATS of all, of one service, of one replica."""
    return ".".join(part for part in ("$SRV", verb, name, id) if part)


# Patterns: what a broker user is granted (permissions.py).

ALL_FOUND = "tieline.command.*.*.found"
ALL_COMMANDS = "tieline.command.*.*.>"
ALL_HEADS = f"tieline.command.*.*.{HEAD}"
ALL_CONNECTIONS = "tieline.connection.*.*.*"
ALL_CALLS = "tieline.call.*.*.*"
ALL_SERVICE_VERBS = "$SRV.>"


def all_rpc(service: str) -> str:
    """Every endpoint of a service."""
    return f"tieline.rpc.{token(service)}.*.*"


def service_verbs(name: str) -> tuple[str, ...]:
    """What a service answers of the services convention: to all, to its name, to one replica."""
    return "$SRV.*", f"$SRV.*.{token(name)}", f"$SRV.*.{token(name)}.*"


def inbox_prefix(user: str) -> str:
    """Where the answers to one broker user go, and nobody else listens."""
    return f"_INBOX.{token(user)}"


def meet(one: str, other: str) -> bool:
    """Whether some subject matches both patterns."""
    mine, theirs = one.split("."), other.split(".")
    for a, b in zip(mine, theirs, strict=False):
        if ">" in (a, b):
            return True
        if a != b and "*" not in (a, b):
            return False
    return len(mine) == len(theirs)
