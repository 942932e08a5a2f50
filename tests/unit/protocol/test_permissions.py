"""Broker users: each may do its own work and nothing else."""

import pytest
from tieline_protocol import permissions, subjects

EXAMPLES = {
    "command": subjects.command("ann", "s1", "agent.prompt"),
    "rpc": subjects.rpc("remotes", "call", "ann"),
    "connection": subjects.connection("g1", "c1", "remote-call"),
    "call": subjects.call("r1", "c1", "cancel"),
}
LISTENERS = {
    "command": {"streams", "agent"},
    "rpc": {"remotes"},
    "connection": {"gateway"},
    "call": {"remotes"},
}


def users_who(grants, subject: str) -> set[str]:
    return {user for user in permissions.PARTS if any(subjects.meet(one, subject) for one in grants(user))}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_only_the_receiver_of_a_request_may_listen_to_it(kind: str) -> None:
    assert users_who(permissions.subscribes, EXAMPLES[kind]) == LISTENERS[kind]


@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_operator_makes_no_request_to_a_service(kind: str) -> None:
    assert "operator" not in users_who(permissions.publishes, EXAMPLES[kind])


def test_an_operator_may_ask_an_owner_how_far_its_logs_are_and_nothing_else() -> None:
    granted = [one for one in permissions.publishes("operator") if one.startswith("tieline.")]

    assert "operator" in users_who(permissions.publishes, subjects.command("ann", "s1", subjects.HEAD))
    assert granted == [subjects.ALL_HEADS]


def test_an_earlier_owner_may_tell_its_successor_what_it_found_and_nothing_else() -> None:
    assert "streams" in users_who(permissions.publishes, subjects.command("ann", "s1", subjects.FOUND))
    assert "streams" not in users_who(permissions.publishes, subjects.command("ann", "s1", "agent.prompt"))


def test_events_are_published_by_owners_only() -> None:
    event = subjects.event("ann", "s1", "agent", "plan")
    thread = subjects.event("ann", "t1", "thread", "message")

    assert users_who(permissions.publishes, event) == {"streams"}
    assert users_who(permissions.publishes, thread) == {"agent"}


def test_where_daemons_are_and_what_opens_them_is_known_to_streams_alone() -> None:
    stream = subjects.bucket_stream(subjects.BUCKET_INSTANCES)
    key = subjects.bucket_key(subjects.BUCKET_INSTANCES, "u_ann.s1")

    assert users_who(permissions.publishes, subjects.direct_get(stream)) == {"streams"}
    assert users_who(permissions.publishes, subjects.leader_get(stream)) == {"streams"}
    assert users_who(permissions.publishes, key) == {"streams"}
    assert users_who(permissions.subscribes, key) == set()


@pytest.mark.parametrize("user", permissions.PARTS)
def test_nobody_hears_the_answers_to_somebody_else(user: str) -> None:
    answer = f"{subjects.inbox_prefix(user)}.1a2b.7"

    assert users_who(permissions.subscribes, answer) == {user}


def test_answers_go_only_to_those_who_may_ask() -> None:
    assert users_who(permissions.publishes, "_INBOX.operator.1.2") == {
        "gateway",
        "streams",
        "remotes",
        "agent",
    }
    assert users_who(permissions.publishes, "_INBOX.remotes.1.2") == {"gateway"}
    assert users_who(permissions.publishes, "_INBOX.migrate.1.2") == set()


def test_only_the_migration_makes_streams() -> None:
    for stream in permissions.ALL_STREAMS:
        assert users_who(permissions.publishes, subjects.stream_api("CREATE", stream)) == {"migrate"}
        remade = stream == subjects.bucket_stream(subjects.BUCKET_OWNERS)
        assert users_who(permissions.publishes, subjects.stream_api("DELETE", stream)) == (
            {"migrate"} if remade else set()
        )


def test_a_password_never_stands_among_the_users() -> None:
    text = permissions.users()

    assert [line.split()[-1] for line in text.splitlines() if line.strip().startswith("password")] == [
        f"$PASSWORD_{user.upper()}" for user in permissions.PARTS
    ]
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize(
    ("one", "other", "meets"),
    [
        ("a.b", "a.b", True),
        ("a.*", "a.b", True),
        ("a.*", "*.b", True),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        ("a.*", "a.b.c", False),
        ("a.b", "a.c", False),
    ],
)
def test_patterns_meet_where_a_subject_matches_both(one: str, other: str, meets: bool) -> None:
    assert subjects.meet(one, other) is meets
    assert subjects.meet(other, one) is meets
