"""A lower scratch store: what others have put there is read, in a place where nothing can be written."""

import gzip
import os
import pickle
import random
import subprocess
from pathlib import Path

import pytest
from command import TOUCHFS
from range_server import range_server
from tars import write_tar

from touchfs.core.errors import SourceError
from touchfs.source.data import DATA
from touchfs.source.decompressed import DecompressedFile, decompressed
from touchfs.source.remote.kept import KEPT
from touchfs.source.scratch.store import DIRECTORY_VARIABLE, LOWER_VARIABLE, Scratch
from touchfs.source.scratch.write_behind import WRITE_BEHIND

DATA_BYTES = random.Random(1).randbytes(3_000_000)
SOMEBODY = 65534
# All programs that run under this see the lower store on a disk that is mounted read-only.
READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'

pytestmark = pytest.mark.usefixtures("as_root")


@pytest.fixture
def lower(tmp_path, monkeypatch):
    """A store that somebody fills."""
    (tmp_path / "lower").mkdir(mode=0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "lower"))
    KEPT.forget()
    yield tmp_path / "lower"
    KEPT.forget()


@pytest.fixture
def above(lower, tmp_path, monkeypatch):
    """Use a new store above the lower one from now on."""

    def use_it():
        WRITE_BEHIND.wait()
        KEPT.forget()
        monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "own"))
        monkeypatch.setenv(LOWER_VARIABLE, str(lower))
        return tmp_path / "own"

    return use_it


def run_read_only(lower, *arguments):
    command = ["unshare", "--mount", "sh", "-c", READ_ONLY, lower, TOUCHFS, *arguments]
    return subprocess.run(command, capture_output=True, timeout=120)


def state(directory):
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in directory.iterdir()}


def test_blocks_of_the_lower_store_are_read_and_not_fetched(lower, tmp_path, monkeypatch):
    with range_server() as server:
        server.put("/set/a.tar", write_tar(tmp_path / "a.tar", {"s.bin": DATA_BYTES}).read_bytes())
        url, own = f"{server.url}/set/", tmp_path / "own"
        assert subprocess.run([TOUCHFS, "prefetch", url], timeout=120).returncode == 0
        before = state(lower)
        monkeypatch.setenv(DIRECTORY_VARIABLE, str(own))
        server.fault = lambda: "404"
        assert subprocess.run([TOUCHFS, "cat", f"{url}:shards/a/s.bin"], capture_output=True).returncode != 0
        done = run_read_only(lower, "cat", "--lower-scratch-dir", lower, f"{url}:shards/a/s.bin")
        assert (done.returncode, done.stdout == DATA_BYTES) == (0, True), done.stderr
        done = run_read_only(lower, "prefetch", "--lower-scratch-dir", lower, url)
        assert b"are on this machine" in done.stdout, done.stderr
        assert state(lower) == before
        assert not list(own.glob("*.value"))


def test_a_decompressed_shard_of_the_lower_store_is_used(lower, above, tmp_path):
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(write_tar(tmp_path / "a.tar", {"s.txt": b"text"}).read_bytes()))
    fingerprint = DATA.stat(str(path)).fingerprint
    decompressed(str(path), fingerprint).close()
    own = above()
    file = DecompressedFile(str(path), fingerprint)
    assert pickle.loads(pickle.dumps(file)).read(0, 5) == file.read(0, 5) == b"s.txt"
    decompressed(str(path), fingerprint).close()
    assert not own.exists()


def test_only_what_a_trusted_user_wrote_is_believed(lower, above, monkeypatch):
    for number in (1, 2):
        Scratch.configured().keep(f"{number:032x}", b"theirs")
    os.chown(Scratch.configured().value_path(f"{1:032x}"), SOMEBODY, SOMEBODY)
    above()
    assert [Scratch.configured().kept(f"{number:032x}") for number in (1, 2)] == [None, b"theirs"]
    monkeypatch.setenv("TOUCHFS_TRUST", str(SOMEBODY))
    assert Scratch.configured().kept(f"{1:032x}") == b"theirs"


def test_a_damaged_value_is_made_again_above(lower, above):
    name = f"{1:032x}"
    Scratch.configured().keep(name, b"theirs")
    damaged = Path(Scratch.configured().value_path(name))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
    before = state(lower)
    own = above()
    assert Scratch.configured().kept_or_made(name, lambda: b"ours") == b"ours"
    WRITE_BEHIND.wait()
    assert Scratch.configured().kept(name) == b"ours"
    assert (own / f"{name}.value").exists()
    assert state(lower) == before


@pytest.mark.parametrize("owner", [None, SOMEBODY], ids=["missing", "of another"])
def test_a_lower_store_that_cannot_be_used_is_an_error(lower, above, tmp_path, owner):
    above()
    os.rename(lower, tmp_path / "elsewhere")
    if owner:
        lower.mkdir()
        os.chown(lower, owner, owner)
    with pytest.raises(SourceError, match="--trust" if owner else "--lower-scratch-dir"):
        Scratch.configured()
    write_tar(tmp_path / "a.tar", {"s.txt": b"text"})
    command = [TOUCHFS, "cat", "--lower-scratch-dir", lower, f"{tmp_path / 'a.tar'}:shards/a/s.txt"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert ("--trust USER" if owner else "--lower-scratch-dir") in done.stderr
    assert "Traceback" not in done.stderr
    if owner:
        done = subprocess.run([*command, "--trust", str(owner)], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, "text"), done.stderr
