"""Subjects: nothing that a user or peer says escapes its token."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_protocol import subjects
from tieline_protocol.errors import BadSubject
from tieline_protocol.subjects import EventSubject

NASTY = [
    "a.b",
    "a b",
    "*",
    ">",
    "a.>",
    "",
    ".",
    "a..b",
    "a\r\nPUB x 0\r\n",
    "ünï",
    "$SYS",
    "x" * 300,
    "\ud83d",
]
TOKEN = re.compile(r"[A-Za-z0-9_-]+\Z")
IDS = st.from_regex(subjects._ID, fullmatch=True)
USERS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


@pytest.mark.parametrize("user", NASTY)
def test_a_user_id_is_one_safe_token_or_refused(user):
    """B29"""
    try:
        token = subjects.user_token(user)
    except BadSubject:
        assert user in ("", "\ud83d")
    else:
        assert TOKEN.match(token)
        assert subjects.event(user, "s1", "agent", "plan").count(".") == 5


@pytest.mark.parametrize("id", NASTY)
def test_an_id_that_is_not_ours_never_becomes_a_subject(id):
    """B29"""
    for build in (
        lambda: subjects.event("ada", id, "agent", "plan"),
        lambda: subjects.commands("ada", id),
        lambda: subjects.session_key("ada", id),
        lambda: subjects.connection(id, "c1", "close"),
        lambda: subjects.rpc("streams", id, "ada"),
        lambda: subjects.call("r1", "c1", id),
    ):
        with pytest.raises(BadSubject):
            build()
    assert not subjects.is_id(id)


@given(USERS, USERS)
def test_two_users_never_share_a_token(one, other):
    """B29"""
    assert (subjects.user_token(one) == subjects.user_token(other)) == (one == other)


@given(st.text(max_size=600))
def test_any_user_id_gives_a_short_safe_token_or_is_refused(user):
    """B29"""
    try:
        token = subjects.user_token(user)
    except BadSubject:
        return
    assert TOKEN.match(token)
    assert len(token) <= 122


def test_a_long_user_id_cannot_be_taken_for_a_short_one():
    """B29: `a` with the token of a longer id as its own id."""
    long = "x" * 41
    token = subjects.user_token(long)

    assert token.startswith("h_")
    assert subjects.user_token(token[:40]).startswith("u_")
    with pytest.raises(BadSubject):
        subjects.user_token("é" * 257)


@given(USERS, IDS, st.sampled_from(subjects.LOGS), st.text())
def test_an_event_subject_says_what_it_was_built_from(user, id, log, type):
    subject = subjects.event(user, id, log, type)

    assert subjects.parse_event(subject) == EventSubject(
        subjects.user_token(user), id, log, subjects.type_token(type)
    )


@given(st.text())
def test_a_type_that_cannot_be_a_token_goes_to_other(type):
    assert subjects.type_token(type) == (type if TOKEN.match(type) and len(type) <= 64 else "other")


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "tieline.event.u_a.s1.agent",
        "tieline.event.u_a.s1.nolog.plan",
        "tieline.event..s1.agent.plan",
        "a.b.c.d.e.f",
    ],
)
def test_what_is_no_event_subject_is_refused(subject):
    with pytest.raises(BadSubject):
        subjects.parse_event(subject)


@given(st.from_regex(subjects._ACTION, fullmatch=True))
def test_an_action_comes_back_from_its_subject(action):
    assert subjects.command_action(subjects.command("a.b", "s1", action)) == action


@pytest.mark.parametrize(
    "action", [*NASTY, "Agent.prompt", "agent..prompt", ".a", "a.", "a.b.c.d.e.f", "agent.prompt\n"]
)
def test_an_action_that_is_none_is_refused(action):
    if action != "a.b" and action != "x" * 64:
        with pytest.raises(BadSubject):
            subjects.command("ada", "s1", action)


def test_a_log_that_is_none_is_refused():
    with pytest.raises(BadSubject):
        subjects.log_events("ada", "s1", "other")
    with pytest.raises(BadSubject):
        subjects.stream_of("*")


@given(IDS.filter(lambda id: "-" not in id), IDS.filter(lambda id: "-" not in id))
def test_a_request_id_names_its_replica_and_call(replica, call):
    assert subjects.parse_request_id(f"{replica}-{call}") == (replica, call)


@pytest.mark.parametrize("text", ["", "r1", "r1-", "-c1", "r1-c1-x", "r.1-c1", "r1-*"])
def test_what_is_no_request_id_is_refused(text):
    with pytest.raises(BadSubject):
        subjects.parse_request_id(text)


def test_subjects_are_spelt_as_the_design_says():
    assert subjects.event("ada@x.org", "s1", "agent", "plan") == "tieline.event.u_ada_40x_2Eorg.s1.agent.plan"
    assert subjects.log_events("ada", "s1", "workspace") == "tieline.event.u_ada.s1.workspace.*"
    assert subjects.log_openings("ada", "s1", "thread") == "tieline.event.u_ada.s1.thread.epoch"
    assert subjects.command("ada", "s1", "agent.session.new") == "tieline.command.u_ada.s1.agent.session.new"
    assert subjects.commands("ada", "s1") == "tieline.command.u_ada.s1.>"
    assert subjects.rpc("streams", "open", "ada") == "tieline.rpc.streams.open.u_ada"
    assert subjects.rpc_endpoint("streams", "open") == "tieline.rpc.streams.open.*"
    assert subjects.connection("g1", "c1", "close") == "tieline.connection.g1.c1.close"
    assert subjects.connections("g1") == "tieline.connection.g1.*.*"
    assert subjects.call("r1", "c1", "result") == "tieline.call.r1.c1.result"
    assert subjects.calls("r1") == "tieline.call.r1.*.*"
    assert subjects.changed("ada") == "tieline.changed.u_ada"
    assert subjects.changed_user(subjects.changed("a.b")) == subjects.user_token("a.b")
    assert subjects.service_verb("PING") == "$SRV.PING"
    assert subjects.service_verb("STATS", "streams", "i1") == "$SRV.STATS.streams.i1"


def test_names_of_the_store():
    assert subjects.stream_of("workspace") == "TIELINE_WORKSPACE"
    assert subjects.stream_of("agent") == subjects.stream_of("thread") == "TIELINE_AGENT"
    assert subjects.bucket_stream("tieline_owners") == "KV_tieline_owners"
    assert subjects.bucket_key("tieline_owners", "s1") == "$KV.tieline_owners.s1"
    assert subjects.session_key("ada", "s1") == "u_ada.s1"
    assert (subjects.session_keys("ada"), subjects.session_keys()) == ("u_ada.*", "*.*")
    assert (subjects.process_key("p1"), subjects.process_key("*")) == ("process.p1", "process.*")
    assert subjects.process_of("$KV.tieline_processes.process.p1") == "p1"
    assert (subjects.remote_key("ada", "t1"), subjects.remote_key("ada", "*")) == ("u_ada.t1", "u_ada.*")
    assert subjects.direct_get("S") == "$JS.API.DIRECT.GET.S"
    assert subjects.leader_get("S") == "$JS.API.STREAM.MSG.GET.S"
    assert subjects.stream_api("INFO", "S") == "$JS.API.STREAM.INFO.S"


def test_the_two_streams_share_no_subject():
    agent, workspace = subjects.STREAM_SUBJECTS.values()

    assert not set(agent) & set(workspace)
    assert all(subject.startswith("tieline.event.*.*.") for subject in [*agent, *workspace])
