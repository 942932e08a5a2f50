"""Who may connect."""

from __future__ import annotations

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_gateway.access import (
    allowed_origins,
    bearer,
    identify,
    issue,
    normal_origin,
    origin_passes,
)
from tieline_protocol.errors import Code, Refused

SECRET = b"a secret of at least thirty-two bytes"
ALLOWED = allowed_origins("http://localhost:3000, https://app.example")


@pytest.mark.parametrize(
    ("given_", "normal"),
    [
        ("http://localhost:3000", "http://localhost:3000"),
        ("HTTPS://App.Example", "https://app.example"),
        ("https://app.example:443", "https://app.example"),
        ("http://[::1]:80", "http://[::1]"),
        ("null", None),
        ("", None),
        ("file://x", None),
        ("http://", None),
        ("http://a/b", None),
        ("http://a/", None),
        ("http://a?b", None),
        ("http://a#b", None),
        ("http://a?", None),
        ("http://user@a", None),
        ("http://a:port", None),
        ("http://a b", None),
        ("http://a\\b", None),
        ("http://[::1", None),
    ],
)
def test_an_origin_has_one_form(given_: str, normal: str | None) -> None:
    assert normal_origin(given_) == normal


def test_only_listed_origins_pass_and_never_by_a_part_of_them() -> None:
    """B50"""
    assert origin_passes(["http://localhost:3000"], ALLOWED, False)
    for other in (
        "http://localhost.attacker.tld",
        "http://localhost:30000",
        "https://app.example.evil.tld",
        "http://app.example",
        "https://app.example@evil.example",
        "null",
    ):
        assert not origin_passes([other], ALLOWED, True)


def test_without_an_origin_only_where_configured_and_never_with_two() -> None:
    """B50"""
    assert origin_passes([], ALLOWED, True)
    assert not origin_passes([], ALLOWED, False)
    assert not origin_passes(["https://app.example"] * 2, ALLOWED, True)


def test_a_list_with_something_else_than_origins_is_refused() -> None:
    assert allowed_origins(" , ") == frozenset()
    with pytest.raises(ValueError, match="not an origin"):
        allowed_origins("https://app.example,*")


def test_the_token_among_the_subprotocols() -> None:
    assert bearer(["tieline.v1", "bearer.abc.def"]) == "abc.def"
    assert bearer(["tieline.v1"]) is None


@given(st.text(min_size=1, max_size=100), st.integers(1, 10**6))
def test_a_token_of_ours_gives_its_user_until_it_expires(user: str, seconds: int) -> None:
    now = 1_000_000.0
    token = issue(user, SECRET, now, seconds)

    identity = identify(token, SECRET, now)

    assert (identity.user, identity.expires) == (user, now + seconds)
    with pytest.raises(Refused, match="expired"):
        identify(token, SECRET, now + seconds)


def claims(**change: object) -> str:
    body: dict[str, object] = {"sub": "ada", "exp": 2_000, **change}
    return jwt.encode({k: v for k, v in body.items() if v is not None}, SECRET, algorithm="HS256")


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "a.b.c",
        claims(sub=None),
        claims(exp=None),
        claims(sub=""),
        claims(sub="x" * 513),
        claims(sub=7),
        claims(exp="soon"),
        claims(exp=[]),
        jwt.encode({"sub": "ada", "exp": 2_000}, b"x" * 32, algorithm="HS256"),
        jwt.encode({"sub": "ada", "exp": 2_000}, None, algorithm="none"),
        jwt.encode({"sub": "ada", "exp": 2_000}, b"x" * 64, algorithm="HS512"),
    ],
)
def test_anything_else_is_refused(token: str) -> None:
    with pytest.raises(Refused) as refused:
        identify(token, SECRET, 1_000)

    assert refused.value.code is Code.UNAUTHORIZED


def test_claims_about_other_times_do_not_matter() -> None:
    assert identify(claims(iat=5_000, nbf=5_000), SECRET, 1_000).user == "ada"
