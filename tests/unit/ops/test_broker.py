import pytest
from tieline_ops import broker


def test_the_server_is_configured_as_every_part_expects_it() -> None:
    text = broker.config(4222, "/a b/store", "/run")

    assert 'listen: "127.0.0.1:4222"' in text
    assert 'store_dir: "/a b/store"' in text
    assert "max_payload: 8MB" in text
    assert 'ping_interval: "5s"\nping_max: 2' in text


@pytest.mark.parametrize(
    "told", [b"", b'{"na', b"{}", b'{"nats":[]}', b'{"nats":["nats://h:x"]}', b"[]", b"3"]
)
def test_a_ports_file_that_is_not_whole_tells_nothing(told: bytes) -> None:
    assert broker.port_of(told) is None


def test_the_port_is_read_from_what_the_server_writes() -> None:
    assert broker.port_of(b'{"nats":["nats://127.0.0.1:40133"]}') == 40133
