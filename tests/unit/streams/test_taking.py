"""Whether a session may be taken, and what for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_protocol.messages import OwnerRecord, SessionRecord
from tieline_streams.taking import UNTAKEN, Aim, aim, may_take

names = st.sampled_from(["", "s1", "s2", "s3"])
owners = st.none() | st.builds(OwnerRecord, holder=names, released=st.booleans())


def record(state: Any = "ready", wanted: Any = "open") -> SessionRecord:
    return SessionRecord(
        session="s",
        user="ada",
        executor="x",
        agent="a",
        workspace="w",
        created=0,
        updated=0,
        state=state,
        wanted=wanted,
    )


@given(owner=owners, me=names.filter(bool), alive=st.sets(names))
def test_a_key_is_never_taken_from_a_holder_that_lives(
    owner: OwnerRecord | None, me: str, alive: set[str]
) -> None:
    holder = owner.holder if owner is not None and not owner.released else ""

    taken = may_take(owner, me, holder in alive)

    assert taken == (holder in ("", me) or holder not in alive)


@given(first=owners, names=st.lists(names.filter(bool), min_size=2, max_size=3, unique=True))
def test_however_many_look_at_once_one_revision_is_taken_once(
    first: OwnerRecord | None, names: list[str]
) -> None:
    """The broker lets one write over a revision; whoever looks afterwards finds a holder that lives."""
    living = set(names)
    owner, revision, taken = first, 1, []
    looks = [
        (name, owner, revision)
        for name in names
        if may_take(owner, name, owner is not None and owner.holder in living)
    ]
    for name, _, seen in looks:
        if seen == revision:  # compare and swap
            owner, revision = OwnerRecord(holder=name), revision + 1
            taken.append(name)
    assert len(taken) <= 1
    if taken:
        assert not any(may_take(owner, name, True) for name in names if name != taken[0])


@pytest.mark.parametrize(
    ("state", "wanted", "released", "expected"),
    [
        ("ready", "open", True, Aim.GO_ON),
        ("ready", "open", False, Aim.GO_ON),
        ("ready", "closed", False, Aim.CLOSE),
        ("closing", "closed", False, Aim.CLOSE),
        ("closed", "closed", False, Aim.CLOSE),
        ("closed", "closed", True, Aim.LEAVE),
        ("failed", "open", True, Aim.LEAVE),
        ("failed", "open", False, Aim.FAIL),
        ("opening", "open", False, Aim.FAIL),
    ],
)
def test_what_a_session_is_taken_for_follows_from_its_record(
    state: str, wanted: str, released: bool, expected: Aim
) -> None:
    assert aim(record(state, wanted), OwnerRecord(holder="x", released=released), 10**9) is expected


def test_a_session_that_somebody_is_just_beginning_is_left_to_them() -> None:
    assert aim(record("opening"), None, UNTAKEN - 1) is Aim.LEAVE
    assert aim(record("opening"), None, UNTAKEN) is Aim.FAIL
