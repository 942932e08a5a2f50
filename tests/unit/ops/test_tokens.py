import jwt
import pytest
from tieline_ops import tokens

SECRET = "s" * 64


def test_a_token_names_its_user_and_is_good_for_a_while() -> None:
    claims = jwt.decode(
        tokens.mint(SECRET, "ann@example.org", 1_000, 60),
        SECRET,
        ["HS256"],
        {"verify_exp": False, "verify_iat": False},
    )

    assert claims == {"sub": "ann@example.org", "iat": 1_000, "exp": 1_060}


def test_a_token_of_another_secret_is_worth_nothing() -> None:
    with pytest.raises(jwt.InvalidSignatureError):
        jwt.decode(tokens.mint("t" * 64, "dev", 1_000), SECRET, ["HS256"])
