"""Mounts and commands whose source is a URL, of a real S3 server and a web server."""

import os
import random
import secrets
import shutil
import signal
import subprocess
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from interleaved_tars import make_wds_tar
from mounts import is_mounted, read_anew, touchfs
from postgres_server import own_server, postgres_data
from processes import runs
from s3_server import SECRET, s3_server, upload
from small_disks import fill, refused, small_disk
from stores import place_in
from tars import write_tar
from variants import with_variants
from waiting import wait_until

pytestmark = pytest.mark.usefixtures("scratch")

__all__ = ["own_server", "postgres_data"]

SIZES = {"txt": 9, "bin": 5000}
# Of this run: all processes of this machine are looked at.
SIGNATURE, PASSWORD = (f"planted-{secrets.token_hex(8)}" for _ in range(2))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Three kinds of shards, each in a directory of its own."""
    place = tmp_path_factory.mktemp("kinds")
    samples = {f"s{i:02}.{end}": random.Random(i).randbytes(size) for i in range(20) for end, size in SIZES.items()}
    write_tar(place / "tar" / "a.tar", samples)
    make_wds_tar(place / "tar.gz" / "a.tar.gz", samples.items())
    (place / "jsonl").mkdir()
    (place / "jsonl" / "a.jsonl").write_bytes(b"".join(b'{"id": "line-%d"}\n' % i for i in range(40)))
    return place


@pytest.fixture(scope="module")
def s3(place):
    with pytest.MonkeyPatch.context() as patch, s3_server(patch) as client:
        upload(client, place, "data/set")
        yield client


def tar_of(tmp_path, members):
    return write_tar(tmp_path / "made.tar", members).read_bytes()


def files_below(directory):
    found = {}
    for above, _, names in os.walk(directory):
        for name in names:
            with open(os.path.join(above, name), "rb") as file:
                found[os.path.relpath(os.path.join(above, name), directory)] = file.read()
    return found


def test_workers_share_the_requests_that_a_mount_may_send(mount, server, tmp_path):
    """Four workers with one each, and eight readers."""
    sample = os.urandom(600_000)
    for number in range(8):
        server.put(f"/set/{number:02}.tar", tar_of(tmp_path, {"s.bin": sample}))
    mounted = mount(f"{server.url}/set/", "--workers", 4, "--requests", 4)
    lock, running, most = threading.Lock(), [0], [0]

    def count():
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.1)
        with lock:
            running[0] -= 1

    server.fault = count
    with ThreadPoolExecutor(8) as readers:
        files = [mounted.path / "shards" / f"{number:02}" / "s.bin" for number in range(8)]
        assert set(readers.map(Path.read_bytes, files)) == {sample}
    assert 1 <= most[0] <= 4


def test_a_mount_shows_the_same_as_the_disk_has(mount, place, s3):
    mounted = mount("s3://data/set/tar.gz", "--workers", 2)
    wait_until(lambda: not list(mounted.path.glob("shards/*/PREPARING.txt")))
    with tarfile.open(place / "tar.gz" / "a.tar.gz") as tar:
        expected = {f"a/{member.name}": tar.extractfile(member).read() for member in tar}
    assert len(expected) == 40
    assert files_below(mounted.path / "shards") == expected


@pytest.mark.variant
def test_a_mount_shows_the_same_of_every_kind(mount, tmp_path, s3):
    from every_kind import files_of, write_every_kind  # it imports many peers

    write_every_kind(tmp_path / "every")
    upload(s3, tmp_path / "every", "data/every")
    mounted = mount("s3://data/every", "--workers", 2)
    wait_until(lambda: not list(mounted.path.glob("shards/*/PREPARING.txt")))
    expected, _ = files_of(tmp_path / "every")
    found = {f"shards/{name}": data for name, data in files_below(mounted.path / "shards").items()}
    assert len(found) > 200
    assert found == expected


@pytest.mark.parametrize("store", with_variants(("sftp", "gs", "az", "hf"), lambda store: store == "sftp"))
def test_mounts_of_other_stores_go_on_after_kills(mount, store, tmp_path, monkeypatch):
    """Their clients are made in the process that reads, also in the one that comes after a killed one."""
    files = {f"f{number}.bin": bytes([number]) * 300_000 for number in range(10)}
    with place_in(store, tmp_path, monkeypatch) as (url, put):
        put("a.tar", tar_of(tmp_path, files))
        mounted = mount(url, "--workers", 2)
        below = mounted.path / "shards/a"
        assert (below / "f0.bin").read_bytes() == files["f0.bin"]
        workers = mounted.workers()
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        wait_until(lambda: len(mounted.workers()) == 2 and not set(mounted.workers()) & set(workers))
        shutil.rmtree(tmp_path / "scratch")
        assert {path.name: path.read_bytes() for path in below.iterdir()} == files


def test_the_commands(place, s3, tmp_path):
    source = "s3://data/set/tar"
    done = touchfs("index", "--force", source)
    assert (done.returncode, done.stdout.splitlines()) == (0, [f"{source}: 1 shard, 20 samples; 1 indexed now"]), done
    assert len(touchfs("ls", f"{source}:shards/a").stdout.splitlines()) == 40
    with tarfile.open(place / "tar" / "a.tar") as tar:
        expected = tar.extractfile("s01.bin").read()
    assert touchfs("cp", f"{source}:shards/a/s01.bin", tmp_path / "copy").returncode == 0
    assert (tmp_path / "copy").read_bytes() == expected


@pytest.mark.variant
def test_more_commands(s3):
    assert "samples:        20" in touchfs("info", "s3://data/set/tar").stdout
    done = touchfs("iterate", "s3://data/set/jsonl", "--shuffle", 1)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 40


def test_iterators_go_over_a_url(mount, server, place):
    server.put("/set/a.jsonl", (place / "jsonl" / "a.jsonl").read_bytes())
    mounted = mount(f"{server.url}/set/")
    iterator = mounted.path / ".touchfs" / "iterators" / "train"
    iterator.mkdir()
    taken = [(iterator / "next").read_text() for _ in range(40)]
    assert len(set(taken)) == 40
    done = touchfs("iterator", "list", f"{server.url}/set/")
    assert "train" in done.stdout, done.stderr


def test_a_reload_sees_what_is_new_and_a_changed_shard_is_stale_before(mount, server, tmp_path):
    """No byte of the new version is served before the reload, also not of a part that was never read."""
    before = {"s0.bin": b"a" * 3_000_000, "s1.bin": b"b" * 100}
    server.put("/set/one.tar", tar_of(tmp_path, before))
    mounted = mount(f"{server.url}/set/", "--revalidate", 0)
    shards = mounted.path / "shards"
    with open(shards / "one" / "s0.bin", "rb", 0) as opened:
        assert opened.read(1000) == b"a" * 1000
        server.put("/set/one.tar", tar_of(tmp_path, {name: data.swapcase() for name, data in before.items()}), '"2"')
        server.put("/set/two.tar", tar_of(tmp_path, {"t.txt": b"two"}))
        assert refused(read_anew, shards / "one" / "s1.bin") == "ESTALE"
        with pytest.raises(OSError, match="Stale"):
            os.pread(opened.fileno(), 1000, 2_900_000)
        assert touchfs("reload", mounted.path).returncode == 0
        assert (shards / "two" / "t.txt").read_bytes() == b"two"
        assert (shards / "one" / "s0.bin").read_bytes() == b"A" * 3_000_000


def test_a_store_that_does_not_answer(mount, server, tmp_path, monkeypatch):
    """Its reads fail in time, those of data that is here succeed, and the mount ends before the store's time."""
    monkeypatch.setenv("TOUCHFS_STORE_TIMEOUT", "1000")
    for name in ("silent", "here"):
        server.put(f"/set/{name}.tar", tar_of(tmp_path, {"s.bin": bytes(9_000_000), "t.bin": b"x" * 9_000_000}))
    mounted = mount(f"{server.url}/set/", "--timeout", 2, "--revalidate", 1000)
    here, silent = (mounted.path / "shards" / name for name in ("here", "silent"))
    assert (here / "t.bin").read_bytes() == b"x" * 9_000_000
    goes_on = threading.Event()
    server.fault = lambda: goes_on.wait() and None
    try:
        assert refused(read_anew, silent / "t.bin") == "ETIMEDOUT"
        os.posix_fadvise(descriptor := os.open(here / "t.bin", os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)
        assert os.read(descriptor, 100) == b"x" * 100
        os.close(descriptor)
        with subprocess.Popen(
            ["cat", silent / "s.bin"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as reader:
            everyone = mounted.processes()
            os.kill(mounted.pid, signal.SIGTERM)
            wait_until(lambda: not is_mounted(mounted.path) and not any(map(runs, everyone)))
            reader.wait()
    finally:
        goes_on.set()


def test_a_disk_that_is_full_keeps_no_blocks(mount, server, tmp_path, monkeypatch):
    """What is read comes from the store each time, and nobody sees an error."""
    data = secrets.token_bytes(9_000_000)
    server.put("/set/a.tar", tar_of(tmp_path, {"s.bin": data}))
    with small_disk(tmp_path / "disk") as disk:
        monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(disk))
        mounted = mount(f"{server.url}/set/")
        fill(disk, 100_000)
        assert (mounted.path / "shards" / "a" / "s.bin").read_bytes() == data
        asked = len(server.ranges)
        mounted.end()
        mounted = mount(f"{server.url}/set/", name="again")
        assert (mounted.path / "shards" / "a" / "s.bin").read_bytes() == data
        assert len(server.ranges) > asked, "it is not here"
        assert (mounted.path / ".touchfs" / "errors").read_text() == ""
        mounted.end()
        left = [path.name for path in disk.iterdir() if path.name.startswith(".touchfs-tmp-")]
        assert left == [], "what was begun is removed"


def command_lines():
    """Of all processes of this machine. One may end meanwhile."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes().decode(errors="replace"))
    return found


def test_secrets_are_nowhere(mount, server, s3, place, tmp_path, monkeypatch):
    """Neither the key of a store nor the signature of a URL, while it works and when it fails."""
    for name in ("cache", "state"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    server.put("/set/a.tar", (place / "tar" / "a.tar").read_bytes())
    url, index = f"{server.url}/set/a.tar", f"{server.url}/index?X-Signature={SIGNATURE}"
    signed = mount(f"{url}?X-Signature={SIGNATURE}", "--revalidate", 0, "--log-level", "debug", "--index", index)
    stored = mount("s3://data/set/jsonl", f"--index={index}", name="stored")
    local = mount(place / "tar", "-o", f"noatime,index={index}\\,{SIGNATURE},workers=2", name="local")
    mounts = (signed, stored, local)
    seen = [touchfs("status", each.path).stdout for each in mounts]
    seen += command_lines()
    for each in mounts:
        iterator = each.path / ".touchfs" / "iterators" / "train"
        iterator.mkdir()
        (iterator / "next").read_bytes()
        seen.append((iterator / "token").read_text())
        assert files_below(each.path / "shards")
    del server.files["/set/a.tar"]
    assert refused(read_anew, signed.path / "shards" / "a" / "s01.bin") in ("ENOENT", "ESTALE")
    seen += [(each.path / ".touchfs" / name).read_text() for each in mounts for name in ("info", "errors")]
    assert "a.tar" in seen[-5], "the error is recorded"
    done = touchfs("storage", "ls")
    assert url in done.stdout, done.stderr
    seen.append(done.stdout)
    done = touchfs("info", f"{url}?X-Signature={SIGNATURE}")
    assert (done.returncode, done.stdout) == (1, "")
    seen += [done.stderr, Path("/proc/self/mountinfo").read_text(errors="surrogateescape")]
    kept = [path for name in ("cache", "state", "scratch") for path in (tmp_path / name).rglob("*")]
    assert len(kept) > 8
    seen += [str(path) for path in kept]
    seen += [path.read_bytes().decode(errors="replace") for path in kept if path.is_file()]
    assert [text for text in seen if SIGNATURE in text or SECRET in text] == []


def test_the_password_of_a_database_is_nowhere(mount, place, own_server, tmp_path, monkeypatch):
    """It is in the file of PGPASSFILE, and from there it goes to the database only."""
    for name in ("cache", "state"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    passwords = tmp_path / "passwords"
    passwords.write_text(f"*:*:*:guarded:{PASSWORD}\n")
    passwords.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    own_server.execute(f"CREATE ROLE guarded LOGIN PASSWORD '{PASSWORD}'")
    own_server.execute("GRANT CREATE ON DATABASE postgres TO guarded")
    store = own_server.url.replace("postgres@", "guarded@")
    mounted = mount(place / "jsonl", "--state-store", store, "--state-name", "n", "--log-level", "debug")
    iterator = mounted.path / ".touchfs" / "iterators" / "train"
    iterator.mkdir()
    seen = [(iterator / "next").read_text(), (iterator / "token").read_text()]
    assert all(seen)
    seen += [*command_lines(), touchfs("status", mounted.path).stdout, touchfs("storage", "ls").stdout]
    own_server.kill()
    assert refused(read_anew, iterator / "next") == "EIO"
    seen += [(mounted.path / ".touchfs" / name).read_text() for name in ("info", "errors")]
    assert seen[-1], "the error is recorded"
    kept = [path for name in ("cache", "state") for path in (tmp_path / name).rglob("*") if path.is_file()]
    assert kept
    seen += [path.read_bytes().decode(errors="replace") for path in kept]
    assert [text for text in seen if PASSWORD in text] == []
