import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_agentctl.redact import MASK, capped, redacted


@pytest.mark.parametrize(
    "secret",
    [
        "curl -H 'Authorization: Bearer {}'",
        "export API_KEY={}",
        "--password {}",
        "https://user:{}@example.org/repo.git",
        'aws_secret_access_key = "{}"',
    ],
)
def test_a_secret_is_masked(secret: str):
    clean, found = redacted(secret.format("hunter2hunter2"))

    assert found
    assert "hunter2" not in clean
    assert MASK in clean


@pytest.mark.parametrize(
    "token",
    ["sk-" + "a1" * 12, "ghp_" + "A1" * 15, "AKIA" + "ABCD" * 4, "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSM"],
)
def test_a_token_of_a_known_shape_is_masked_anywhere(token: str):
    assert redacted(f"use {token} now") == (f"use {MASK} now", True)


def test_an_ordinary_command_stays_as_it_is():
    assert redacted("pytest -q tests && echo done") == ("pytest -q tests && echo done", False)


def test_a_short_string_is_not_cut():
    assert capped("abc") == "abc"


@given(st.text(), st.integers(0, 30))
def test_a_cut_never_leaves_half_a_character(text: str, most: int):
    cut = capped(text, most)

    assert text.startswith(cut)
    assert len(cut.encode()) <= most
    assert cut == text or len(text[: len(cut) + 1].encode()) > most
