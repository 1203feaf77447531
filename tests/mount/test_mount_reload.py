"""A dataset that is read anew while it is mounted: what is new is seen, and who reads what is not notices nothing."""

import contextlib
import errno
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from command import INSTALLED, TOUCHFS
from mounts import SPEECH, WAYS, Mount, is_mounted, reader_of, samples_of, touchfs, ways, workers
from processes import children, runs
from spike_daemon import SLOW
from waiting import wait_until

MONDAY = "shards/000000000/talks/monday.wav"
RECORDING = (SPEECH / "wav" / "01.wav").read_bytes()
VIEWS = ("shards", "segments")

# Reads all files below some directories, past the page cache, for as long as its stdin is open. Prints how often, or
# what went wrong.
READER = """
import hashlib, os, select, sys
def read(path):
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return hashlib.sha256(file.read()).digest()
def look():
    paths = [os.path.join(d, n) for top in sys.argv[1:] for d, _, names in os.walk(top, onerror=fail) for n in names]
    return {path: read(path) for path in paths}
def fail(error):
    raise error
expected = look()
print(len(expected), flush=True)
rounds = 0
while not select.select([sys.stdin], [], [], 0.02)[0]:
    assert look() == expected
    rounds += 1
print(rounds)
"""


def reload(mounted: Mount) -> None:
    done = touchfs("reload", mounted.path)
    assert (done.returncode, done.stderr) == (0, "")
    info = mounted.info()
    shards, samples = info["shards"], info["samples"]
    assert done.stdout == f"{mounted.path} is read again ({shards} shard{'s' * (shards != 1)}, {samples} samples)\n"


def renew(shard: Path) -> None:
    """Another shard of the same name, swapped in by renaming: its recordings are inverted."""
    new, old = shard.parent.parent / "new", shard.parent.parent / "old"
    shutil.copytree(shard, new)
    (new / "audio.bin").write_bytes(bytes(byte ^ 0xFF for byte in (shard / "audio.bin").read_bytes()))
    os.rename(shard, old)
    os.rename(new, shard)
    shutil.rmtree(old)


def inodes(directory: Path) -> dict[Path, int]:
    return {path: path.stat().st_ino for path in [directory, *directory.rglob("*")]}


@contextlib.contextmanager
def reading(count: int, *directories: Path) -> Iterator[None]:
    """Some processes that read all there is, again and again, and must not meet an error."""
    with contextlib.ExitStack() as stack:
        readers = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", READER, *directories],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
            )
            for _ in range(count)
        ]
        try:
            for reader in readers:
                assert int(reader.stdout.readline()) > 10
            yield
            for reader in readers:
                out, told = reader.communicate(timeout=60)
                assert (reader.returncode, told) == (0, b"")
                assert int(out) > 0
        finally:
            for reader in readers:
                reader.kill()


@pytest.mark.parametrize("way", ways("two-workers"))
def test_shards_that_come_and_go(mount, copied, tmp_path, way):
    """Also one that was looked up before it was there, which the kernel remembers for an hour."""
    os.rename(copied / "000000001", tmp_path / "aside")
    mounted = mount(copied, *WAYS[way])
    before = inodes(mounted.path / "shards" / "000000000")
    places = [mounted.path / view / "000000001" for view in VIEWS]
    assert [place.exists() for place in places] == [False, False]
    os.rename(tmp_path / "aside", copied / "000000001")
    assert [place.exists() for place in places] == [False, False]
    reload(mounted)
    for place in places:
        assert sorted(os.listdir(place.parent)) == ["000000000", "000000001", "000000002"]
    got = next(path for path in (mounted.path / "shards" / "000000001").rglob("*.wav") if path.stat().st_size > 44)
    ordinal = int(os.getxattr(got, "user.touchfs.ordinal"))
    assert got.read_bytes()[44:] == samples_of(copied / "000000001", "audio")[ordinal]
    assert inodes(mounted.path / "shards" / "000000000") == before
    assert mounted.info()["generation"] == 2

    os.rename(copied / "000000001", tmp_path / "aside")
    reload(mounted)
    assert [place.exists() for place in places] == [False, False]
    for place in places:
        assert sorted(os.listdir(place.parent)) == ["000000000", "000000002"]
    assert inodes(mounted.path / "shards" / "000000000") == before
    assert mounted.info()["internal_errors"] == 0


@pytest.mark.parametrize("way", ways())
def test_a_shard_that_changes(mount, copied, way):
    mounted = mount(copied, *WAYS[way])
    changed, unchanged = mounted.path / "shards" / "000000000", mounted.path / "shards" / "000000001"
    before, before_unchanged = inodes(changed), inodes(unchanged)
    mtime = (mounted.path / "shards").stat().st_mtime_ns
    other = next(path for path in unchanged.rglob("*.wav") if path.stat().st_size > 44)
    right = other.read_bytes()
    with open(mounted.path / MONDAY, "rb", 0) as stale, open(other, "rb", 0) as lasting:
        renew(copied / "000000000")
        reload(mounted)
        new = samples_of(copied / "000000000", "audio")[0]
        assert (mounted.path / MONDAY).read_bytes() == RECORDING[:44] + new != RECORDING
        after = inodes(changed)
        assert after.keys() == before.keys()
        assert not set(after.values()) & set(before.values())
        assert inodes(unchanged) == before_unchanged
        assert (mounted.path / "shards").stat().st_mtime_ns > mtime
        os.posix_fadvise(lasting.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert lasting.read() == right
        os.posix_fadvise(stale.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            assert stale.read() == RECORDING
        except OSError as error:
            assert error.errno == errno.ESTALE


@pytest.mark.parametrize(
    ("way", "killing"),
    [
        pytest.param(way, killing, marks=[] if (way, killing) == ("two-workers", True) else [pytest.mark.variant])
        for way, killing in (("two-workers", True), ("one-worker", False))
    ],
)
def test_readers_of_other_shards_notice_nothing(mount, copied, tmp_path, way, killing):
    mounted, dice = mount(copied, *WAYS[way]), random.Random(1)
    same = [mounted.path / view / shard for view in VIEWS for shard in ("000000000", "000000002")]
    with reading(1, *same):
        for number in range(3):
            if number == 0:
                os.rename(copied / "000000001", tmp_path / "aside")
            elif number == 1:
                os.rename(tmp_path / "aside", copied / "000000001")
            else:
                renew(copied / "000000001")
            if not killing:
                reload(mounted)
                continue
            with subprocess.Popen([TOUCHFS, "reload", mounted.path], stderr=subprocess.PIPE) as reloading:
                for _ in range(3):
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        reloading.wait(0.1 * dice.random())
                    for worker in mounted.workers():
                        # The child that reads the dataset is one of them: then nothing has changed, and that is told.
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(worker, signal.SIGKILL)
        if killing:
            wait_until(lambda: touchfs("reload", mounted.path).returncode == 0)
    assert sorted(os.listdir(mounted.path / "shards")) == ["000000000", "000000001", "000000002"]
    assert mounted.info()["internal_errors"] == 0


def test_a_source_that_is_gone(mount, copied, tmp_path):
    mounted = mount(copied, "--log-file", tmp_path / "log")
    workers = mounted.workers()
    before = inodes(mounted.path)
    os.rename(copied, tmp_path / "elsewhere")
    done = touchfs("reload", mounted.path)
    told = f"not reloaded: {copied}: no such file or directory"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"touchfs: {mounted.path}: {told}\n")
    info = mounted.info()
    assert (info["generation"], info["reload_error"]) == (1, told)
    assert (tmp_path / "log").read_text().count(told) == 1
    assert mounted.workers() == workers
    assert inodes(mounted.path) == before
    os.rename(tmp_path / "elsewhere", copied)
    reload(mounted)
    assert mounted.info()["reload_error"] is None
    assert (mounted.path / MONDAY).read_bytes() == RECORDING


@contextlib.contextmanager
def without_an_answer(mount, copied: Path, zoo: Path) -> Iterator[Mount]:
    """A mount whose source, a list, is on a mount that answers no more."""
    stuck = mount(zoo, "--stuck-seconds", 1000, name="stuck")
    source = copied.with_name("list")
    source.write_text(f"{copied / '000000000'} audio+metainfo\n")
    mounted = mount(source)
    source.unlink()
    source.symlink_to(stuck.path / "shards" / "list")
    (stopped,) = stuck.workers()
    os.kill(stopped, signal.SIGSTOP)
    try:
        yield mounted
    finally:
        os.kill(stopped, signal.SIGCONT)


def test_a_source_that_does_not_answer(mount, copied, zoo):
    """The child that looks at it waits; all else goes on, and ends."""
    with without_an_answer(mount, copied, zoo) as mounted:
        (worker,) = mounted.workers()
        done = touchfs("reload", mounted.path, "--wait-seconds", 0.5)
        told = f"touchfs: {mounted.path}: not reloaded after 0.5 s: the reload continues\n"
        assert (done.returncode, done.stderr) == (17, told)
        os.kill(worker, signal.SIGKILL)
        assert (mounted.path / MONDAY).read_bytes() == RECORDING
        everyone = mounted.processes()
        assert len(everyone) == 5  # one of them opens the dataset
        assert touchfs("umount", mounted.path).returncode == 0
        wait_until(lambda: not any(map(runs, everyone)))


def test_a_reload_that_hangs_does_not_keep_a_mount_whose_processes_die(mount, copied, zoo):
    """Neither its data nor its control files: who asks for them gets an error."""
    with without_an_answer(mount, copied, zoo) as mounted:
        before, control = mounted.processes(), os.readlink(mounted.path / ".touchfs")
        os.kill(mounted.pid, signal.SIGHUP)
        (child,) = wait_until(lambda: [each for each in mounted.processes() if each not in before])
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in before:
                os.kill(pid, number)
        wait_until(lambda: not any(map(runs, before)))
        for path in (mounted.path, control):
            command = ["timeout", "--signal", "KILL", "20", "stat", "-f", path]
            told = subprocess.run(command, capture_output=True, text=True, check=False).stderr
            # Who asked before the connection had ended gets another error.
            ends = ": Transport endpoint is not connected\n", ": Software caused connection abort\n"
            if path == control:  # the next mount of this user, of any test, removes it
                ends += (": No such file or directory\n",)
            assert told.endswith(ends)
        assert runs(child)


def test_signals_while_it_reloads_are_one_more_reload(mount, copied, tmp_path):
    os.rename(copied / "000000001", tmp_path / "aside")
    mounted = mount(copied, "--workers", 2)
    (zygote,) = children(mounted.pid)
    os.kill(zygote, signal.SIGSTOP)
    os.kill(mounted.pid, signal.SIGHUP)
    wait_until(lambda: mounted.info()["reloads_begun"] == 1)
    for _ in range(20):
        os.kill(mounted.pid, signal.SIGHUP)
    os.rename(tmp_path / "aside", copied / "000000001")
    os.kill(zygote, signal.SIGCONT)
    wait_until(lambda: mounted.info()["reloads_ended"] == 2)
    assert (mounted.path / "shards" / "000000001").is_dir()
    reload(mounted)  # those that were asked for before have begun before
    assert mounted.info()["reloads_begun"] == 3


def test_two_signals_at_once(mount, copied, tmp_path):
    """What was there before the second is there at the end."""
    os.rename(copied / "000000001", tmp_path / "aside")
    mounted = mount(copied)
    os.kill(mounted.pid, signal.SIGHUP)
    os.rename(tmp_path / "aside", copied / "000000001")
    os.kill(mounted.pid, signal.SIGHUP)
    wait_until(lambda: (mounted.path / "shards" / "000000001").is_dir())


def test_a_worker_that_does_not_drain_is_killed(mount, copied, tmp_path):
    mounted = mount(copied, "--workers", 2, "--log-file", tmp_path / "log")
    old = mounted.workers()
    os.kill(old[0], signal.SIGSTOP)
    with ThreadPoolExecutor(1) as thread:
        read = thread.submit((mounted.path / MONDAY).read_bytes)
        reload(mounted)
        assert read.result(60) == RECORDING
    assert not set(old) & set(mounted.workers())
    # On a busy machine the dataset may be opened so slowly that the watchdog is first, which sees it stuck or stopped.
    assert re.search(rf"\(pid {old[0]}\) (has not drained|has been stuck|was stopped)", (tmp_path / "log").read_text())


@pytest.mark.parametrize("more", [[], ["no-resend"]], ids=["", "no-resend"])
def test_reads_under_way_are_answered(tmp_path, more):
    """Also where a request that a worker leaves unanswered cannot be sent to another one."""
    command = [sys.executable, Path(__file__).with_name("spike_daemon.py"), tmp_path / "mnt", tmp_path, "1"]
    with (
        open(tmp_path / "log", "wb") as log,
        subprocess.Popen([*command, *more], stdout=subprocess.PIPE, stderr=log) as daemon,
        ThreadPoolExecutor(1) as thread,
    ):

        def only_worker() -> int | None:
            """The worker, once there is one."""
            found = workers(daemon.pid)
            return found[0] if len(found) == 1 else None

        try:
            assert daemon.stdout.readline() == b"ready\n"
            worker = wait_until(only_worker)
            read = thread.submit((tmp_path / "mnt" / "slow-500").read_bytes)
            wait_until(lambda: len(os.listdir(f"/proc/{worker}/task")) > 1)
            os.kill(daemon.pid, signal.SIGHUP)
            assert read.result(60) == SLOW
            wait_until(lambda: not runs(worker))
            other = wait_until(only_worker)
            assert (tmp_path / "mnt" / "data" / "0000007").read_bytes()
            assert workers(daemon.pid) == [other]
        finally:
            daemon.terminate()
            daemon.wait(60)
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize("count", [2, pytest.param(100, marks=pytest.mark.soak)])
def test_nothing_grows(mount, copied, count):
    mounted = mount(copied, "--workers", 2)

    def turn() -> None:
        renew(copied / "000000001")
        reload(mounted)
        list(mounted.path.rglob("*"))

    def facts() -> list[tuple[int, int]]:
        """Descriptors and KiB of private memory of the supervisor and the zygote."""
        told = []
        for pid in mounted.processes()[:2]:
            status = Path(f"/proc/{pid}/status").read_text()
            told.append((len(os.listdir(f"/proc/{pid}/fd")), int(re.search(r"RssAnon:\s+(\d+)", status)[1])))
        return told

    for _ in range(2):
        turn()
    before = facts()
    for _ in range(count):
        turn()
    for (descriptors, memory), (descriptors_before, memory_before) in zip(facts(), before, strict=True):
        assert descriptors == descriptors_before
        assert memory < memory_before + 1000
    assert len(mounted.processes()) == 5


@pytest.mark.parametrize(
    ("way", "delay"),
    [
        *[("fusermount3", 0), ("SIGTERM", 0.02)],
        *(
            pytest.param(*each, marks=pytest.mark.variant)
            for each in (("fusermount3", 0.05), ("SIGTERM", 0.03), ("SIGTERM", 0.1))
        ),
    ],
)
def test_unmounted_while_it_reloads(mount, copied, tmp_path, way, delay):
    mounted = mount(copied, "--workers", 2, "--log-file", tmp_path / "log")
    everyone = mounted.processes()
    os.kill(mounted.pid, signal.SIGHUP)
    time.sleep(delay)
    everyone += mounted.processes()
    if way == "SIGTERM":
        os.kill(mounted.pid, signal.SIGTERM)
    else:
        subprocess.run(["fusermount3", "-u", mounted.path], check=True)
    wait_until(lambda: not any(map(runs, everyone)))
    assert not is_mounted(mounted.path)
    assert not re.search("Traceback|CRITICAL|ERROR", (tmp_path / "log").read_text())


def test_a_new_mount_is_left_alone_by_the_old_one(mount, copied):
    """Even if the device number, which is all that tells them apart, is the same, as the lowest free one always is."""
    old = mount(copied)
    everyone = old.processes()
    (zygote,) = children(old.pid)
    os.kill(zygote, signal.SIGSTOP)
    subprocess.run(["fusermount3", "-u", old.path], check=True)
    new = mount(copied)
    os.kill(zygote, signal.SIGCONT)
    wait_until(lambda: not any(map(runs, everyone)))
    assert is_mounted(new.path)
    assert (new.path / MONDAY).read_bytes() == RECORDING


def test_an_inode_of_a_shard_that_is_gone_is_named(mount, copied, tmp_path):
    mounted = mount(copied)
    with open(mounted.path / MONDAY, "rb", buffering=0) as file:
        inode = os.fstat(file.fileno()).st_ino
        os.rename(copied / MONDAY.split("/")[1], tmp_path / "gone")
        reload(mounted)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with pytest.raises(OSError) as stale:
            file.read()
    assert stale.value.errno == errno.ESTALE
    (line,) = (mounted.path / ".touchfs/errors").read_text().splitlines()
    assert line.endswith(f" inode {inode}: the shard of this inode has changed: look its path up again")


def test_a_mount_that_was_started_elsewhere(copied, tmp_path):
    """Its source is relative to where that was."""
    assert touchfs("mount", copied.name, "mnt", cwd=copied.parent).returncode == 0
    try:
        shutil.copytree(copied / "000000001", copied / "000000007")
        assert touchfs("reload", tmp_path / "mnt", cwd="/").returncode == 0
        assert (tmp_path / "mnt" / "shards" / "000000007").is_dir()
    finally:
        assert touchfs("umount", tmp_path / "mnt").returncode == 0


def test_what_cannot_be_reloaded(mount, copied, tmp_path):
    done = touchfs("reload", tmp_path)
    assert (done.returncode, done.stderr) == (1, f"touchfs: {tmp_path}: touchfs is not mounted here\n")
    mounted = mount(copied)
    with reader_of(mounted.path / MONDAY):
        mounted.crash()
        done = touchfs("reload", mounted.path)
        assert done.returncode == 1
        assert done.stderr.startswith(f"touchfs: {mounted.path}: dead: ")


def test_systemd_is_told(copied, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(f"{tmp_path}/notify")
        told.settimeout(60)

        def next_word() -> bytes:
            words = iter(lambda: told.recv(1000), b"")
            return next(word.partition(b"\nSTATUS=")[0] for word in words if not word.startswith(b"EXTEND"))

        command = [INSTALLED, "mount", "-f", copied, tmp_path / "mnt"]
        with subprocess.Popen(command, env=os.environ | {"NOTIFY_SOCKET": f"{tmp_path}/notify"}) as process:
            try:
                assert next_word() == b"READY=1"
                for _ in range(2):
                    begun = time.monotonic_ns() // 1000
                    process.send_signal(signal.SIGHUP)
                    reloading = re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=(\d+)", next_word())
                    assert int(reloading[1]) >= begun
                    assert next_word() == b"READY=1"
            finally:
                process.terminate()
                assert process.wait(60) == 0


def test_a_mount_that_is_stopped(mount, copied):
    mounted = mount(copied)
    os.kill(mounted.pid, signal.SIGSTOP)
    try:
        done = touchfs("reload", mounted.path)
    finally:
        os.kill(mounted.pid, signal.SIGCONT)
    assert done.returncode == 1
    assert f"is stopped: let it go on with kill -CONT {mounted.pid}" in done.stderr
