"""The broker's own verdict on every user and every subject is what the table says."""

import asyncio
import datetime
import json
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tieline_protocol import bus as broker
from tieline_protocol import permissions, subjects
from tieline_protocol.bus import BusSettings

from tests.support import manifests
from tests.support.nats_server import NatsServer, binary

PATTERNS = sorted(
    {one for user in permissions.PARTS for one in permissions.publishes(user) + permissions.subscribes(user)}
)
FORBIDDEN_TO_ALL = (
    *("$SYS.REQ.SERVER.PING", "$JS.API.STREAM.DELETE.TIELINE_AGENT", "$JS.API.STREAM.LIST", "$JS.API.INFO"),
    *("tieline", "tieline.unknown.x", "_INBOX.x.y", "_INBOX.gatewayx.y"),
)


def example(pattern: str) -> str:
    """A subject that a pattern matches."""
    return ".".join({"*": "x", ">": "x.y"}.get(part, part) for part in pattern.split("."))


SUBJECTS = [*map(example, PATTERNS), *FORBIDDEN_TO_ALL]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A broker that knows the users, and has no streams that a verdict could harm."""
    made = manifests.secrets_made()["nats-users"]
    (tmp_path / "passwords.conf").write_text(made["passwords.conf"])
    (tmp_path / "users.conf").write_text(
        manifests.one("production", "ConfigMap", "nats")["data"]["users.conf"]
    )
    async with NatsServer(
        tmp_path, extra="accounts {\n  TIELINE {\n    include users.conf\n  }\n}\n"
    ) as running:
        yield running


async def denied(server: NatsServer, user: str, verb: str) -> set[str]:
    """The subjects that the server refuses a user."""
    password = manifests.secrets_made()[f"nats-{user}"]["password"]
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    login = {"user": user, "pass": password, "verbose": False, "pedantic": False}
    writer.write(b"CONNECT " + json.dumps(login).encode() + b"\r\n")
    for number, subject in enumerate(SUBJECTS):
        words = f"PUB {subject} 0\r\n\r\n" if verb == "PUB" else f"SUB {subject} {number}\r\n"
        writer.write(words.encode())
    writer.write(b"PING\r\n")
    found = set()
    async with asyncio.timeout(5):
        while (line := await reader.readline()) != b"PONG\r\n":
            assert line, "the server hung up"
            if match := re.search(rb'Permissions Violation for \w+ to "([^"]+)"', line):
                found.add(match[1].decode())
    writer.close()
    return found


@pytest.mark.parametrize("verb", ["PUB", "SUB"])
async def test_the_broker_lets_each_user_do_what_the_table_says_and_nothing_else(
    server: NatsServer, verb: str
) -> None:
    for user in permissions.PARTS:
        granted = permissions.publishes(user) if verb == "PUB" else permissions.subscribes(user)
        wanted = {
            subject for subject in SUBJECTS if not any(subjects.meet(pattern, subject) for pattern in granted)
        }
        assert await denied(server, user, verb) == wanted, user


async def test_who_gives_no_password_is_nobody(server: NatsServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b'CONNECT {"verbose": false}\r\nPING\r\n')
    async with asyncio.timeout(5):
        text = await reader.read()
    writer.close()

    assert b"Authorization Violation" in text


@pytest.mark.parametrize("overlay", manifests.OVERLAYS)
def test_the_broker_accepts_its_configuration_in_every_overlay(overlay: str, tmp_path: Path) -> None:
    files = dict(manifests.one(overlay, "ConfigMap", "nats")["data"])
    for secret in ("nats-users", "nats-routes"):
        files |= manifests.secrets_made()[secret]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [binary(), "-t", "-c", str(tmp_path / "nats.conf")],
        env={"POD_NAME": "nats-0"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


def test_syncing_before_confirming_is_of_a_whole_server_and_only_one_account_has_streams(
    tmp_path: Path,
) -> None:
    """Why it does not stand in the account: the broker does not know it there."""
    account = "accounts {\n  A { jetstream { max_file: 1GB, sync_interval: always } }\n}\n"
    (tmp_path / "nats.conf").write_text(account)
    done = subprocess.run(
        [binary(), "-t", "-c", str(tmp_path / "nats.conf")], capture_output=True, text=True, check=False
    )
    text = manifests.one("production", "ConfigMap", "nats")["data"]["nats.conf"]

    assert 'unknown field "sync_interval"' in done.stderr
    assert text.count("jetstream: enabled") == 1
    assert "sync_interval: always" in text


def certificate(directory: Path) -> Path:
    """A certificate for this machine that vouches for itself, and its key beside it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (directory / "key.pem").write_bytes(key.private_bytes(pem, pkcs8, plain))
    (directory / "certificate.pem").write_bytes(made.public_bytes(pem))
    return directory / "certificate.pem"


async def test_a_broker_with_a_certificate_is_believed_only_by_who_knows_its_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = certificate(tmp_path)
    tls = f'tls {{ cert_file: "{authority}", key_file: "{tmp_path / "key.pem"}" }}\n'
    async with NatsServer(tmp_path / "nats", extra=tls) as server:
        settings = BusSettings(f"tls://localhost:{server.port}", "test")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5), broker.connect(settings):
                pass
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        async with asyncio.timeout(5), broker.connect(settings) as bus:
            assert bus.connected
