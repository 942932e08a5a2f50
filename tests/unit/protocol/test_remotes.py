import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_protocol import subjects
from tieline_protocol.remotes import External, RemoteFunction, RemoteRecord, name_token

from tests.support.carried import carries, refused

RECORD = RemoteRecord(
    user="ada",
    remotename="browser",
    functions=(RemoteFunction(name="open", description="Opens", parameters={"type": "object"}),),
    external=External(kind="http", url="https://tools.example/rpc", headers={"authorization": "secret"}),
    gateway="g1",
    connection="c1",
    registration="r1",
    connected_at=5,
)


def test_a_registration_survives_its_bucket():
    assert RemoteRecord.decode(RECORD.encode()) == RECORD


def test_a_list_tells_whose_a_remote_is_and_no_secret():
    listed = RECORD.listed("c1")

    assert listed["mine"]
    assert not RECORD.listed("c2")["mine"]
    assert not RECORD.listed()["mine"]
    assert listed["external"] == {"kind": "http", "url": "https://tools.example/rpc"}
    assert "secret" not in str(listed)


def test_a_remote_of_the_session_itself_has_no_external():
    assert RECORD.model_copy(update={"external": None}).listed()["external"] is None


@given(st.text(), st.text())
def test_any_name_becomes_one_token_and_no_two_become_the_same(one, other):
    """B29: remote names never become subjects."""
    assert subjects.is_id(name_token(one))
    assert (name_token(one) == name_token(other)) == (one == other)


def test_a_half_emoji_in_a_name_hurts_nobody():
    """B20."""
    assert subjects.is_id(name_token("\ud83d"))


@pytest.mark.parametrize(
    ("action", "payload", "field"),
    [
        ("remote-connect", {}, "remotename"),
        ("remote-connect", {"remotename": "b"}, "functions"),
        ("remote-connect", {"remotename": "b", "external": {"kind": "http", "url": "u"}}, "functions"),
        ("remote-call", {"remotename": "b", "function": "f"}, "args"),
        ("remote-call", {"remotename": "b", "function": "f", "args": '{"a":1}'}, "args"),
        ("remote-call", {"remotename": "b", "function": "f", "args": {}, "timeout_ms": 0}, "timeout_ms"),
        ("remote-call-result", {"requestId": ""}, "requestId"),
    ],
)
def test_what_is_wrong_is_named(action, payload, field):
    assert field in refused(action, **payload)


def test_an_mcp_server_tells_its_own_functions():
    external = {"kind": "mcp", "url": "https://tools.example/mcp"}

    assert carries("remote-connect", remotename="b", external=external) == {
        "remotename": "b",
        "external": external,
    }
