"""`https://`, of a server whose certificate the user has to name."""

import os
import subprocess

import pytest
from command import TOUCHFS
from range_server import range_server
from tars import write_tar

TEXT = b"what is in the shard\n" * 1000


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    place = tmp_path_factory.mktemp("tls")
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    subprocess.run([*made, "-keyout", place / "key", "-out", place / "certificate"], check=True, capture_output=True)
    (place / "both").write_bytes((place / "key").read_bytes() + (place / "certificate").read_bytes())
    return place


@pytest.fixture
def server(certificate, tmp_path):
    with range_server(certificate=certificate / "both") as server:
        server.put("/set/a.tar", write_tar(tmp_path / "a.tar", {"k.txt": TEXT}).read_bytes())
        yield server


def touchfs(tmp_path, *arguments, **variables):
    places = {"XDG_CACHE_HOME": tmp_path / "cache", "TOUCHFS_SCRATCH_DIR": tmp_path / "scratch"}
    environment = {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"}
    environment |= {name: str(value) for name, value in (places | variables).items()}
    return subprocess.run([TOUCHFS, *arguments], env=environment, capture_output=True, timeout=60, check=False)


def test_a_shard_of_a_server_that_is_trusted(server, certificate, tmp_path):
    assert server.url.startswith("https://")
    trusted = {"SSL_CERT_FILE": certificate / "certificate"}
    done = touchfs(tmp_path, "cat", f"{server.url}/set:shards/a/k.txt", **trusted)
    assert (done.stdout, done.stderr, done.returncode) == (TEXT, b"", 0)


def test_a_certificate_that_nobody_trusts_is_one_clear_line_at_once(server, tmp_path):
    done = touchfs(tmp_path, "cat", f"{server.url}/set:shards/a/k.txt")
    assert (done.stdout, done.returncode, done.stderr.count(b"\n")) == (b"", 1, 1)
    assert b"certificate verify failed" in done.stderr
    assert server.ranges == []
