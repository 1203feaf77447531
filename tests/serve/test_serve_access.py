"""Who may ask."""

import base64
import os
import subprocess

import pytest
from command import TOUCHFS
from tree_servers import serving

TOKEN = "correct-horse-battery-staple"


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:8080", "LOCALHOST.", "192.168.1.7:80"])
def test_a_host_that_is_ours(served, host):
    assert served.ask(Host=host).status == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8080", "localhost@evil.example", "a,b", ""])
def test_a_page_of_another_site_gets_nothing(served, host):
    got = served.ask("/shards/", Host=host)
    assert (got.status, b"000000000" in got.body) == (421, False)


def basic(password):
    return "Basic " + base64.b64encode(f"anybody:{password}".encode()).decode()


def test_a_token(speech, tmp_path):
    """It is in no process's arguments, and clients of both kinds can send it. A public address needs it."""
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    with serving(speech, "--token-file", file, "--http", "0.0.0.0:0") as server:
        for wrong in ("", "Bearer", "Bearer x", f"Bearer {TOKEN}x", "Basic", "Basic !", basic("x"), f"Digest {TOKEN}"):
            got = server.ask("/", Authorization=wrong)
            assert got.status == 401, wrong
            assert got.headers["WWW-Authenticate"].startswith('Basic realm="touchfs"')
        assert server.ask("/", "PROPFIND", Depth="0").status == 401
        assert server.ask("/", Authorization=f"bearer {TOKEN}").status == 200
        assert server.ask("/", Authorization=basic(TOKEN)).status == 200
        url = f"http://127.0.0.1:{server.port}/shards/"
        rclone = f"rclone --config /dev/null lsf :webdav: --webdav-url {url} --webdav-bearer-token {TOKEN}".split()
        assert subprocess.run(rclone, check=True, capture_output=True, timeout=30).stdout.splitlines()
        with open(f"/proc/{server.process.pid}/cmdline", "rb") as arguments:
            assert TOKEN.encode() not in arguments.read()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--http", "0.0.0.0:0"], "other machines reach it, so it needs --token-file"),
        (["--http", "[::]:0"], "other machines reach it, so it needs --token-file"),
        (["--http", "8080"], "is not HOST:PORT"),
        (["--http", "127.0.0.1:70000"], "is not HOST:PORT"),
        (["--http", "no.such.host.invalid:80"], "there is no such host"),
        (["--token-file", "nothing"], "no such file"),
        (["--token-file", "short"], "16 to 4,096 visible characters"),
        (["--token-file", "open"], "others may read it"),
    ],
)
def test_what_is_refused_at_the_start(speech, tmp_path, options, problem):
    for name, token, mode in (("short", "abc", 0o600), ("open", TOKEN, 0o644)):
        (tmp_path / name).write_text(token)
        (tmp_path / name).chmod(mode)
    done = subprocess.run(
        [TOUCHFS, "serve", speech, *options], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode != 0
    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_port_in_use(served, speech):
    command = [TOUCHFS, "serve", speech, "--http", f"localhost:{served.port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert done.stderr == f"touchfs: --http: localhost port {served.port} cannot be used: Address already in use\n"


def test_descriptors_of_others_are_no_sockets_of_ours(speech):
    """cheroot takes descriptor 3 for its socket if a variable is set, whoever set it."""
    environment = {**os.environ, "LISTEN_PID": "1", "LISTEN_FDS": "1"}
    with serving(speech, env=environment) as server:
        assert server.ask().status == 200
