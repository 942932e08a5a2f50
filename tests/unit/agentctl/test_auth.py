"""The nonce works once; from then on only the token opens."""

import pytest
from tieline_agentctl.auth import MISSING, WRONG, Auth


def test_the_right_nonce_gives_the_token_once():
    auth = Auth("nonce", "token")

    assert auth.handshake("other") is None
    assert auth.handshake("nonce") == "token"
    assert auth.handshake("nonce") is None


def test_a_daemon_without_a_nonce_gives_nothing_and_lets_everybody_in():
    auth = Auth("", "")

    assert auth.handshake("") is None
    assert auth.refusal("") is None


@pytest.mark.parametrize("header", ["", "token", "Basic token", "Bearer", "Bearer ", "bearer token"])
def test_a_header_that_is_no_bearer_token_is_missing(header):
    assert Auth("n", "token").refusal(header) == MISSING


@pytest.mark.parametrize("header", ["Bearer other", "Bearer tokené", "Bearer \udcff", "Bearer token "])
def test_another_token_is_wrong(header):
    assert Auth("n", "token").refusal(header) == WRONG


def test_the_token_is_let_in():
    assert Auth("n", "token").refusal("Bearer token") is None
