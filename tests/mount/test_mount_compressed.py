"""Compressed shards in a mount: small ones are there when somebody looks into them. With large ones the mount is there
at once, says what is going on, and then shows what is in them.
"""

import errno
import gzip
import os
import re
import shutil
import signal
import struct
import subprocess
import zlib
from contextlib import suppress
from pathlib import Path

import pytest
from mounts import WAYS, Mount, indexers, touchfs, ways
from processes import runs
from tars import tar_of
from waiting import wait_until

LINES = b"".join(b'{"id": "line-%d"}\n' % number for number in range(50))
# For the start of Python: the program that decompresses stops once, when it has written its first file.
STOPPING = """
import os, signal, sys
def stop_once(event, values):
    if event == "os.rename" and str(values[1]).endswith(".scratch"):
        try:
            os.close(os.open(STOPPED, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGSTOP)
if "touchfs_mount.beside.indexing" in sys.orig_argv[-1]:
    sys.addaudithook(stop_once)
"""


def large(data: bytes) -> bytes:
    """So large when it is compressed that nobody waits for it: its header has a comment."""
    deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    head = b"\x1f\x8b\x08\x10" + bytes(6) + b"x" * (65 << 20) + b"\0"
    return head + deflate.compress(data) + deflate.flush() + struct.pack("<II", zlib.crc32(data), len(data))


MEMBERS = {"a/x.txt": b"one\n" * 30_000, "y.txt": b""}


@pytest.fixture(scope="module")
def large_shards(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("large")
    (place / "a.tar.gz").write_bytes(large(tar_of(MEMBERS)))
    (place / "b.jsonl.gz").write_bytes(large(LINES))
    return place


@pytest.fixture
def source(large_shards, tmp_path) -> Path:
    """Tests replace and remove these files, and write into none."""
    (tmp_path / "data").mkdir()
    for path in large_shards.iterdir():
        os.link(path, tmp_path / "data" / path.name)
    (tmp_path / "data" / "c.jsonl").write_bytes(LINES)
    return tmp_path / "data"


def stored(scratch: Path) -> list[str]:
    return [name for name in os.listdir(scratch) if name.endswith(".scratch")] if scratch.exists() else []


def names(mounted: Mount, shard: str) -> list[str]:
    """None while the shard changes, between the new workers and what they tell the kernel."""
    try:
        return sorted(os.listdir(mounted.path / "shards" / shard))
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        return []


@pytest.fixture
def stopping(tmp_path) -> tuple[str, str]:
    """The option with which the program that decompresses stops in the middle. A variable of ours would be one of the
    command, too, for which there is no fork then (`fork_server.py`).
    """
    (tmp_path / "site").mkdir()
    code = f"STOPPED = {str(tmp_path / 'stopped')!r}\n{STOPPING}"
    (tmp_path / "site" / "sitecustomize.py").write_text(code)
    return "-o", f"env.PYTHONPATH={tmp_path / 'site'}"


def stopped_preparer(mounted: Mount) -> int:
    """The process that decompresses, once it has stopped in the middle (`stopping`)."""
    (pid,) = wait_until(lambda: indexers(mounted))
    wait_until(lambda: state_of(pid, "State") == "T")
    return pid


def state_of(pid: int, what: str) -> str:
    """A word of its status."""
    return re.search(rf"^{what}:\t(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)[1]


def has_got(pid: int, number: int) -> bool:
    """Whether a process that is stopped has got a signal, which it handles when it goes on; or has ended."""
    return not runs(pid) or bool(int(state_of(pid, "ShdPnd"), 16) >> number - 1 & 1)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--indexing", "touch"),
        *(pytest.param(("--indexing", when), marks=pytest.mark.variant) for when in ("background", "wait")),
    ],
)
def test_small_ones_are_there_at_the_first_look(mount, tmp_path, scratch, options):
    """As a script expects that goes on as soon as the mount is there."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.tar.gz").write_bytes(gzip.compress(tar_of(MEMBERS)))
    (tmp_path / "data" / "b.jsonl.gz").write_bytes(gzip.compress(LINES))
    mounted = mount(tmp_path / "data", *options)
    assert sorted(os.listdir(mounted.path / "shards" / "a")) == ["a", "y.txt"]
    assert len(os.listdir(mounted.path / "shards" / "b")) == 50
    mounted.end()
    shutil.rmtree(scratch)
    mounted = mount(tmp_path / "data", *options, name="again")
    assert (mounted.path / "shards" / "b" / "line-7.json").read_bytes() == b'{"id": "line-7"}\n'


@pytest.mark.parametrize("indexing", ["touch", "wait"])
def test_where_there_is_no_background_somebody_waits_for_large_ones(mount, source, indexing):
    mounted = mount(source, "--indexing", indexing)
    assert sorted(os.listdir(mounted.path / "shards" / "a")) == ["a", "y.txt"]


@pytest.mark.parametrize("way", ways("two-workers"))
def test_shards_are_prepared_while_others_are_served(mount, source, scratch, stopping, way):
    mounted = mount(source, *stopping, *WAYS[way])
    pid = stopped_preparer(mounted)
    assert names(mounted, "c") == sorted(f"line-{number}.json" for number in range(50))
    for shard in ("a", "b"):
        assert names(mounted, shard) == ["PREPARING.txt"]
    told = (mounted.path / "shards" / "a" / "PREPARING.txt").read_text()
    assert str(source / "a.tar.gz") in told
    assert str(scratch) in told
    before = (mounted.path / "shards" / "c").stat().st_ino
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: names(mounted, "a") == ["a", "y.txt"] and len(names(mounted, "b")) == 50)
    assert {name: (mounted.path / "shards" / "a" / name).read_bytes() for name in MEMBERS} == MEMBERS
    assert (mounted.path / "shards" / "b" / "line-7.json").read_bytes() == b'{"id": "line-7"}\n'
    assert (mounted.path / "by-key" / "line-49.json").exists()
    assert (mounted.path / "shards" / "c").stat().st_ino == before
    info = mounted.info()
    assert (info["internal_errors"], info["reload_error"], info["shards_with_errors"]) == (0, None, [])
    wait_until(lambda: not runs(pid))


def test_what_is_prepared_is_there_at_once(mount, source, scratch):
    assert touchfs("index", source).returncode == 0
    mounted = mount(source)
    assert names(mounted, "a") == ["a", "y.txt"]
    wait_until(lambda: not indexers(mounted))


def test_what_a_lower_store_has_is_there_at_once(mount, source, scratch, tmp_path):
    """Workers that follow the first one find it, too, and nothing is written there."""
    assert touchfs("index", source).returncode == 0
    kept = {path: path.stat().st_mtime_ns for path in scratch.iterdir()}
    mounted = mount(source, "--scratch-dir", tmp_path / "own", "--lower-scratch-dir", scratch)
    assert names(mounted, "a") == ["a", "y.txt"]
    for _ in range(2):
        assert {name: (mounted.path / "shards" / "a" / name).read_bytes() for name in MEMBERS} == MEMBERS
        for worker in mounted.workers():
            os.kill(worker, signal.SIGKILL)
    assert stored(tmp_path / "own") == []
    assert {path: path.stat().st_mtime_ns for path in scratch.iterdir()} == kept


def test_no_decompress(mount, source, scratch):
    mounted = mount(source, "--no-decompress")
    told = (mounted.path / "shards" / "a" / "ERROR.txt").read_text()
    assert f"{source / 'a.tar.gz'}: is compressed" in told
    assert "without --no-decompress" in told
    assert len(names(mounted, "c")) == 50
    wait_until(lambda: not indexers(mounted))
    assert stored(scratch) == []


def test_what_waits_counts_as_served(mount, source, scratch):
    """Of a dataset that is compressed altogether; without decompressing there is nothing."""
    (source / "c.jsonl").unlink()
    mounted = mount(source, "--strict")
    wait_until(lambda: len(names(mounted, "b")) == 50)
    mounted.end()
    shutil.rmtree(scratch)
    done = touchfs("mount", source, mounted.path, "--no-decompress")
    assert (done.returncode, done.stdout) == (13, "")
    assert "nothing of it can be served: shard a: is compressed" in done.stderr


def test_a_shard_that_comes(mount, source, scratch):
    """Is prepared too, after a reload that does not wait for it; and one that is damaged says so."""
    assert touchfs("index", source).returncode == 0
    mounted = mount(source)
    (source / "d.jsonl.gz").write_bytes(gzip.compress(LINES))
    (source / "e.jsonl.gz").write_bytes(gzip.compress(LINES)[:-1])
    assert touchfs("reload", mounted.path).returncode == 0
    wait_until(lambda: len(names(mounted, "d")) == 50)
    assert names(mounted, "e") == ["ERROR.txt"]
    assert "was cut off" in (mounted.path / "shards" / "e" / "ERROR.txt").read_text()


def test_a_shard_that_changes(mount, source, scratch):
    """What is there of the old one is never shown as the new one's."""
    assert touchfs("index", source).returncode == 0
    mounted = mount(source)
    line = mounted.path / "shards" / "b" / "line-1.json"
    new = source.parent / "new"
    new.write_bytes(gzip.compress(LINES.replace(b"line-1", b"LINE-1")))
    os.rename(new, source / "b.jsonl.gz")
    with pytest.raises(OSError) as caught:
        line.read_bytes()
    assert caught.value.errno == errno.ESTALE
    assert touchfs("reload", mounted.path).returncode == 0
    wait_until(lambda: "LINE-1.json" in names(mounted, "b"))
    assert not line.exists()


def test_no_room(mount, source, scratch):
    """Is told, is not tried for ever, and is tried again after a reload that was asked for."""
    (source / "big.jsonl.gz").write_bytes(gzip.compress(LINES * 10_000))
    mounted = mount(source, "--scratch-size", "1M")
    wait_until(lambda: names(mounted, "big") == ["ERROR.txt"] and len(names(mounted, "b")) == 50)
    assert "--scratch-size raises it" in (mounted.path / "shards" / "big" / "ERROR.txt").read_text()
    generation = mounted.info()["generation"]
    wait_until(lambda: not indexers(mounted))
    assert touchfs("reload", mounted.path).returncode == 0
    wait_until(lambda: mounted.info()["generation"] >= generation + 2)
    assert names(mounted, "big") == ["ERROR.txt"]


def test_what_a_mount_serves_is_not_evicted(mount, source, scratch):
    assert touchfs("index", source).returncode == 0
    mounted = mount(source)
    other = source.parent / "other.jsonl.gz"
    other.write_bytes(gzip.compress(LINES))
    done = touchfs("index", other, "--scratch-size", len(LINES) + 1)
    assert "are in use" in done.stderr
    assert (mounted.path / "shards" / "a" / "a" / "x.txt").read_bytes() == MEMBERS["a/x.txt"]
    mounted.end()
    assert touchfs("index", other, "--scratch-size", len(LINES) + 1).stderr == ""
    assert len(stored(scratch)) == 1


@pytest.mark.parametrize("end", ["umount", "kill"])
def test_unmounted_while_it_prepares(mount, source, scratch, stopping, end):
    """Nothing stays, neither the process nor what it had begun, if it is not killed itself."""
    mounted = mount(source, *stopping)
    pid = stopped_preparer(mounted)
    assert list(scratch.glob(".touchfs-tmp-*"))
    everyone = [*mounted.processes(), pid]
    if end == "umount":
        ending = subprocess.Popen(["fusermount3", "-u", mounted.path])
    else:
        for process in everyone[:2]:
            os.kill(process, signal.SIGKILL)
    wait_until(lambda: has_got(pid, signal.SIGTERM))
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not any(map(runs, everyone)))
    assert end == "kill" or ending.wait(60) == 0
    assert not any(name.startswith(".touchfs-tmp-") for name in stored(scratch))


def test_killed_while_it_prepares(mount, source, scratch, stopping):
    """The next one sweeps up after it, and comes to an end."""
    mounted = mount(source, *stopping)
    pid = stopped_preparer(mounted)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not runs(pid))
    assert names(mounted, "a") in (["PREPARING.txt"], ["a", "y.txt"])
    assert touchfs("reload", mounted.path).returncode == 0
    wait_until(lambda: names(mounted, "a") == ["a", "y.txt"] and len(names(mounted, "b")) == 50)
    assert not any(name.startswith(".touchfs-tmp-") for name in stored(scratch))


def test_commands_wait(source, scratch):
    assert touchfs("cat", f"{source}:shards/b/line-3.json").stdout == '{"id": "line-3"}\n'
    # It was decompressed, and the other one, into which nobody looked, was not.
    assert "line-3.json\n" in touchfs("ls", f"{source}:shards/b", "--no-decompress").stdout
    assert touchfs("ls", f"{source}:shards/a", "--no-decompress").stdout == "ERROR.txt\n"
    done = touchfs("cat", f"{source}:shards/b/line-3.json", "--scratch-size", "lots")
    assert (done.returncode, done.stderr) == (
        2,
        "touchfs: not a size: 'lots'; expected bytes, or a number with k, M, G or T\n",
    )


def test_a_scratch_store_in_the_mount_point_is_refused(source, tmp_path):
    done = touchfs("mount", source, tmp_path / "mnt", "--scratch-dir", tmp_path / "mnt" / "scratch")
    assert done.returncode == 10
    assert "the scratch store" in done.stderr
