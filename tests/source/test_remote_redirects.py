"""Which redirects of a web server are followed: a server is data, so it does not choose what this machine asks for."""

import asyncio
import json
import ssl
import subprocess

import pytest
from range_server import range_server

from touchfs.core.errors import LocationError
from touchfs.source.data import DATA
from touchfs.source.remote.protocols import redirects
from touchfs.source.remote.protocols.redirects import careful_session


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    with range_server() as server:
        server.put("/a.bin", bytes(range(256)) * 4096)
        yield server


@pytest.mark.parametrize("target", ["/a.bin", "{url}/a.bin", "/hop", "//{host}/a.bin"])
def test_a_redirect_to_the_same_server(server, target):
    server.redirects = {"/from": target.format(url=server.url, host=server.url.partition("//")[2]), "/hop": "/a.bin"}
    assert DATA.open(f"{server.url}/from").read(300_000, 4) == bytes((224, 225, 226, 227))


TARGETS = [
    "http://127.0.0.1:{port}/a.bin",
    "https://127.0.0.1:{port}/a.bin",
    "https://localhost:{port}/a.bin",
    "https://[::ffff:127.0.0.1]:{port}/a.bin",
    "http://169.254.169.254/latest/meta-data/",
    "https://169.254.169.254/latest/meta-data/",
    "https://10.0.0.1/a.bin",
    "https://[fe80::1]/a.bin",
    "file:///etc/passwd",
    "s3://bucket/a.bin",
    "http://example.com/a.bin",
]


@pytest.mark.parametrize("target", TARGETS)
def test_a_redirect_to_elsewhere_is_not_followed(server, target):
    """Neither when the file is looked at, nor when it is read or listed; and nothing is sent there."""
    with range_server() as other:
        other.put("/a.bin", b"secret of another server")
        target = target.format(port=other.server_address[1])
        server.redirects = {"/from": target, "/set/": target}
        with pytest.raises(LocationError, match="redirect"):
            DATA.open(f"{server.url}/from").read(0, 4)
        with pytest.raises(LocationError, match="redirect"):
            DATA.list(f"{server.url}/set/")
        file = DATA.open(f"{server.url}/a.bin")
        file.open()
        server.redirects = {"/a.bin": target}
        with pytest.raises(LocationError, match="redirect"):
            file.read(0, 4)
        assert other.requests == []


def test_headers_stay_with_their_server(server, tmp_path, monkeypatch):
    """To a public address a redirect is followed, without what the user sends to his own server."""
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    )
    subprocess.run([*command.split(), "-out", certificate, "-keyout", key], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    trusting = ssl.create_default_context(cafile=str(certificate))
    with range_server() as other:
        other.socket = context.wrap_socket(other.socket, server_side=True)
        other.put("/a.bin", b"of another server")
        server.redirects = {"/from": f"https://localhost:{other.server_address[1]}/a.bin"}
        monkeypatch.setattr(redirects, "_is_public", lambda address: True)

        async def read():
            session = await careful_session(headers={"X-Key": "planted"})
            headers = {"Authorization": "Bearer planted", "Cookie": "a=planted", "Range": "bytes=0-1"}
            async with session, session.get(f"{server.url}/from", headers=headers, ssl=trusting) as reply:
                return await reply.read()

        assert asyncio.run(read()) == b"of"
        assert "planted" in json.dumps(server.requests[-1])
        ((_, sent),) = other.requests
        assert sent["Range"] == "bytes=0-1"
        assert "planted" not in json.dumps(sent)
