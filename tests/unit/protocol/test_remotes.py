from hypothesis import given
from hypothesis import strategies as st
from tieline_protocol import subjects
from tieline_protocol.remotes import External, RemoteFunction, RemoteRecord, name_token

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
