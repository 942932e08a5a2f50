import pytest
from tieline_agentctl import mcp_access


@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "127.8.8.8"])
@pytest.mark.parametrize("host", ["localhost:41001", "127.0.0.1:41001", "[::1]:41001", "LOCALHOST"])
def test_a_program_on_this_machine_may(peer: str, host: str):
    assert mcp_access.refusal(peer, host, "") == ""


def test_a_page_of_this_machine_may():
    assert mcp_access.refusal("127.0.0.1", "localhost:41001", "http://localhost:3000") == ""


@pytest.mark.parametrize(
    "peer", ["10.0.0.7", "192.168.1.4", "::ffff:10.0.0.7", "2001:db8::1", "", "testclient"]
)
def test_nobody_else_reaches_the_tools_although_there_is_no_token(peer: str):
    assert mcp_access.refusal(peer, "localhost:41001", "")


@pytest.mark.parametrize("host", ["rebound.example:41001", "10.0.0.7:41001", "", "[::1", "localhost.example"])
def test_a_name_that_was_rebound_to_this_machine_is_refused(host: str):
    assert mcp_access.refusal("127.0.0.1", host, "") == "invalid Host header"


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost.evil.example:41001"])
def test_a_page_from_elsewhere_is_refused(origin: str):
    assert mcp_access.refusal("127.0.0.1", "localhost:41001", origin) == "invalid Origin header"
