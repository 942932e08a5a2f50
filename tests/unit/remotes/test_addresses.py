import pytest
from hypothesis import given
from hypothesis import strategies as st
from tieline_protocol.errors import Refused
from tieline_remotes.addresses import endpoint, networks, permitted


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://tools.example/rpc", ("tools.example", 443, True)),
        ("http://tools.example:8080", ("tools.example", 8080, False)),
        ("http://[2001:db8::1]/x", ("2001:db8::1", 80, False)),
    ],
)
def test_an_address_has_host_port_and_scheme(url, expected):
    assert endpoint(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://x/",
        "file:///etc/passwd",
        "https://",
        "http://user:pw@x/",
        "http://x:99999/",
        "http://[::1/",
    ],
)
def test_what_is_no_address_of_a_remote_is_refused(url):
    with pytest.raises(Refused):
        endpoint(url)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "::1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "fe80::1",
        "fd00::1",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "2002:7f00:0001::",
    ],
)
def test_our_own_networks_cannot_be_reached(address):
    with pytest.raises(Refused, match="range"):
        permitted([address], ())


def test_one_forbidden_address_among_several_refuses_the_name():
    with pytest.raises(Refused):
        permitted(["8.8.8.8", "127.0.0.1"], ())


def test_an_operator_may_allow_a_network():
    allowed = networks("127.0.0.0/8, fd00::/8")

    assert permitted(["127.0.0.1"], allowed) == "127.0.0.1"
    assert permitted(["::ffff:127.0.0.1"], allowed) == "::ffff:127.0.0.1"
    with pytest.raises(Refused):
        permitted(["10.0.0.1"], allowed)


def test_a_public_address_is_dialled_as_it_was_found():
    assert permitted(["8.8.8.8", "8.8.4.4"], ()) == "8.8.8.8"


def test_a_name_without_an_address_is_refused():
    with pytest.raises(Refused, match="resolve"):
        permitted([], ())


@given(st.ip_addresses())
def test_only_global_addresses_pass(address):
    try:
        permitted([str(address)], ())
    except Refused:
        return
    assert address.is_global
