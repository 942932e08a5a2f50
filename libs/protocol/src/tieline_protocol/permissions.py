"""Pure: who says, hears, asks and answers what on the broker, and the users that follow from it.

The table is the architecture; what the broker is told is derived from it, so that nobody is granted more. Answers go
only to those who may ask. `users` writes them as a nats.conf takes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from tieline_protocol import subjects

ALL_STREAMS = (
    *(subjects.STREAM_AGENT, subjects.STREAM_WORKSPACE),
    *(
        subjects.bucket_stream(bucket)
        for bucket in (
            *(subjects.BUCKET_SESSIONS, subjects.BUCKET_OWNERS, subjects.BUCKET_PROCESSES),
            *(subjects.BUCKET_REMOTES, subjects.BUCKET_THREADS, subjects.BUCKET_INSTANCES),
        )
    ),
)


_HEAD = (
    "# Made by `make manifests` from tieline_protocol/permissions.py.",
    "include passwords.conf",
)


@dataclass(frozen=True, slots=True)
class Part:
    """What one broker user does. Subjects are patterns; `reads` names streams, `writes` and `watches` buckets."""

    serves: tuple[str, ...] = ()  # requests that it answers
    asks: tuple[str, ...] = ()  # requests that it makes
    tells: tuple[str, ...] = ()  # published, unanswered but for the stream's confirmation
    hears: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    watches: tuple[str, ...] = ()
    purges: tuple[str, ...] = ()  # streams of which it forgets logs
    describes: tuple[str, ...] = ()  # streams whose configuration and sizes it sees
    declares: tuple[str, ...] = ()  # streams that it makes and changes
    remakes: tuple[str, ...] = ()  # streams that it deletes, to make them anew


def _kept(*buckets: str) -> tuple[str, ...]:
    return tuple(subjects.bucket_stream(bucket) for bucket in buckets)


_AGENT_EVENTS, _THREAD_EVENTS = subjects.STREAM_SUBJECTS[subjects.STREAM_AGENT]
(_WORKSPACE_EVENTS,) = subjects.STREAM_SUBJECTS[subjects.STREAM_WORKSPACE]

PARTS = {
    "gateway": Part(
        serves=(subjects.ALL_CONNECTIONS, *subjects.service_verbs("gateway")),
        asks=(
            *(subjects.ALL_COMMANDS, subjects.ALL_CALLS),
            *map(subjects.all_rpc, ("streams", "remotes", "agent")),
        ),
        hears=(subjects.ALL_EVENTS, subjects.ALL_CHANGED),
        reads=(
            *(subjects.STREAM_AGENT, subjects.STREAM_WORKSPACE),
            *_kept(subjects.BUCKET_SESSIONS, subjects.BUCKET_OWNERS, subjects.BUCKET_PROCESSES),
            *_kept(subjects.BUCKET_REMOTES, subjects.BUCKET_THREADS),
        ),
        writes=(subjects.BUCKET_PROCESSES,),
        watches=(subjects.BUCKET_REMOTES, subjects.BUCKET_PROCESSES),
    ),
    "streams": Part(
        serves=(subjects.ALL_COMMANDS, subjects.all_rpc("streams"), *subjects.service_verbs("streams")),
        asks=(subjects.all_rpc("remotes"), subjects.ALL_FOUND),
        tells=(_AGENT_EVENTS, _WORKSPACE_EVENTS, subjects.ALL_CALLS, subjects.ALL_CHANGED),
        reads=(
            *(subjects.STREAM_AGENT, subjects.STREAM_WORKSPACE),
            *_kept(subjects.BUCKET_SESSIONS, subjects.BUCKET_OWNERS, subjects.BUCKET_PROCESSES),
            *_kept(subjects.BUCKET_INSTANCES),
        ),
        writes=(
            *(subjects.BUCKET_SESSIONS, subjects.BUCKET_OWNERS, subjects.BUCKET_PROCESSES),
            subjects.BUCKET_INSTANCES,
        ),
        watches=(subjects.BUCKET_OWNERS, subjects.BUCKET_PROCESSES),
        describes=ALL_STREAMS,
    ),
    "remotes": Part(
        serves=(subjects.ALL_CALLS, subjects.all_rpc("remotes"), *subjects.service_verbs("remotes")),
        asks=(subjects.ALL_CONNECTIONS,),
        tells=(subjects.ALL_CHANGED,),
        reads=_kept(subjects.BUCKET_REMOTES, subjects.BUCKET_PROCESSES),
        writes=(subjects.BUCKET_REMOTES, subjects.BUCKET_PROCESSES),
        watches=(subjects.BUCKET_REMOTES, subjects.BUCKET_PROCESSES),
        describes=ALL_STREAMS,
    ),
    "agent": Part(
        serves=(subjects.ALL_COMMANDS, subjects.all_rpc("agent"), *subjects.service_verbs("agent")),
        asks=(subjects.ALL_COMMANDS, subjects.all_rpc("remotes")),
        tells=(_THREAD_EVENTS, subjects.ALL_CALLS, subjects.ALL_CHANGED),
        reads=(
            subjects.STREAM_AGENT,
            *_kept(subjects.BUCKET_OWNERS, subjects.BUCKET_PROCESSES, subjects.BUCKET_THREADS),
        ),
        writes=(subjects.BUCKET_OWNERS, subjects.BUCKET_PROCESSES, subjects.BUCKET_THREADS),
        watches=(subjects.BUCKET_PROCESSES,),
        purges=(subjects.STREAM_AGENT,),
        describes=ALL_STREAMS,
    ),
    "migrate": Part(
        reads=_kept(subjects.BUCKET_OWNERS),
        writes=(subjects.BUCKET_OWNERS,),
        declares=ALL_STREAMS,
        remakes=_kept(subjects.BUCKET_OWNERS),
    ),
    # A person with the `tieline` command: sees, and hears no request of anybody. How far a log is only its owner knows,
    # and that question changes nothing. Where daemons are and what opens them (the bucket of instances) is not theirs
    # to read.
    "operator": Part(
        asks=(subjects.ALL_SERVICE_VERBS, subjects.ALL_HEADS),
        hears=(subjects.ALL_EVENTS,),
        reads=(
            *(subjects.STREAM_AGENT, subjects.STREAM_WORKSPACE),
            *_kept(subjects.BUCKET_SESSIONS, subjects.BUCKET_OWNERS, subjects.BUCKET_PROCESSES),
            *_kept(subjects.BUCKET_REMOTES, subjects.BUCKET_THREADS),
        ),
        describes=ALL_STREAMS,
    ),
}


def publishes(user: str) -> list[str]:
    """The patterns that a user may publish to."""
    part = PARTS[user]
    return sorted(
        {
            *(*part.asks, *part.tells),
            *(subjects.bucket_key(bucket, ">") for bucket in part.writes),
            *(subject for stream in part.reads for subject in _reading(stream)),
            *(subjects.stream_api("PURGE", stream) for stream in part.purges),
            *(subjects.stream_api("DELETE", stream) for stream in part.remakes),
            *(subjects.stream_api("INFO", stream) for stream in (*part.describes, *part.declares)),
            *(subjects.stream_api(verb, stream) for stream in part.declares for verb in ("CREATE", "UPDATE")),
            *(f"{subjects.inbox_prefix(other)}.>" for other in _askers(part)),
        }
    )


def subscribes(user: str) -> list[str]:
    """The patterns that a user may subscribe to."""
    part = PARTS[user]
    return sorted(
        {
            *(*part.serves, *part.hears),
            *(subjects.bucket_key(bucket, ">") for bucket in part.watches),
            f"{subjects.inbox_prefix(user)}.>",
        }
    )


def _reading(stream: str) -> tuple[str, ...]:
    return subjects.direct_get(stream), subjects.leader_get(stream), subjects.stream_api("INFO", stream)


def _askers(part: Part) -> Iterator[str]:
    for name, other in PARTS.items():
        if any(subjects.meet(asked, served) for asked in other.asks for served in part.serves):
            yield name


def users() -> str:
    """The users for a nats.conf. Passwords are variables PASSWORD_<USER> in a file of their own, `passwords.conf`."""
    lines = [*_HEAD, "users = ["]
    for user in PARTS:
        lines += [
            "  {",
            f"    user: {user}",
            f"    password: $PASSWORD_{user.upper()}",
            "    permissions: {",
            *_allow("publish", publishes(user)),
            *_allow("subscribe", subscribes(user)),
            "    }",
            "  }",
        ]
    return "\n".join([*lines, "]", ""])


def _allow(verb: str, patterns: list[str]) -> list[str]:
    return [f"      {verb}: {{ allow: [", *(f"        {json.dumps(one)}" for one in patterns), "      ] }"]
