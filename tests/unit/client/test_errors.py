from tieline.errors import CODES, Disconnected, TielineError, TooSlow


def test_an_error_shows_its_code_and_message() -> None:
    error = TielineError("not_found", "no such session", {"id": "s1"})

    assert str(error) == "not_found: no such session"
    assert error.details == {"id": "s1"}


def test_every_error_of_the_clients_own_has_a_code_of_the_list() -> None:
    assert {Disconnected().code, TooSlow(5).code} <= CODES


def test_a_lost_connection_is_worth_another_try_unless_the_server_says_otherwise() -> None:
    assert Disconnected().come_back
    assert Disconnected(1001, "going away").come_back
    assert Disconnected(4000).come_back
    assert not Disconnected(4500, "token expired").come_back
    assert str(Disconnected(4500, "token expired")).endswith("4500 token expired")
    assert str(Disconnected()).endswith("the connection broke")
