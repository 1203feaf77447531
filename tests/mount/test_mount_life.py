"""The life of a mount: several at once, workers that die, a daemon that is told to end, and what is left behind."""

import contextlib
import os
import re
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
from mounts import SPEECH, Mount, is_mounted, kill_workers_while, reader_of, touchfs
from processes import children, runs
from waiting import wait_until

MONDAY = "shards/000000000/talks/monday.wav"
RECORDING = (SPEECH / "wav" / "01.wav").read_bytes()


@contextlib.contextmanager
def in_foreground(source: Path, path: Path, *options: object, **how: object) -> Iterator["subprocess.Popen[str]"]:
    """`touchfs mount -f`, once it is ready."""
    command = [TOUCHFS, "mount", "-f", source, path, *map(str, options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(f"{source} is mounted at {path} (")
            yield process
        finally:
            process.terminate()
            process.wait(60)


def test_mounts_at_once(mount, speech, zoo):
    """Two of one dataset, and one of another."""
    mounts = [mount(speech, name="one"), mount(speech, name="two"), mount(zoo, name="three")]
    assert len({each.path.stat().st_dev for each in mounts}) == 3
    files = {str(path.relative_to(mounts[0].path)): path.read_bytes() for path in mounts[0].files()}

    def read(each: Mount) -> dict[str, bytes]:
        return {name: (each.path / name).read_bytes() for name in files}

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(read, mounts)) == [files] * 3
    assert touchfs("umount", mounts[0].path, mounts[2].path).returncode == 0
    assert read(mounts[1]) == files


def test_inode_numbers_stay(mount, zoo):
    def inodes(mounted: Mount) -> dict[Path, int]:
        return {path: path.lstat().st_ino for path in [*mounted.files(), mounted.path, *mounted.path.glob("*/*")]}

    mounted = mount(zoo)
    before = inodes(mounted)
    assert len(set(before.values())) == len(before)
    listed = {entry.name: entry.inode() for entry in os.scandir(mounted.path / "shards" / "wide")}
    assert listed == {path.name: inode for path, inode in before.items() if path.parent.match("shards/wide")}
    assert touchfs("umount", mounted.path).returncode == 0
    assert inodes(mount(zoo, "--workers", 2)) == before


def test_every_worker_serves(mount, zoo):
    mounted = mount(zoo, "--workers", 2)

    def read_calls() -> list[int]:
        told = [Path(f"/proc/{worker}/io").read_text() for worker in mounted.workers()]
        return [int(re.search(r"syscr: (\d+)", each)[1]) for each in told]

    def read_anew(path: Path) -> None:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # the kernel has what was read before
            file.read()

    def has_each_served() -> bool:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(read_anew, mounted.files()))
        return all(more - less > 100 for more, less in zip(read_calls(), before, strict=True))

    before = read_calls()
    wait_until(has_each_served)  # the kernel wakes the same one as long as that keeps up


def test_unmounting_what_another_program_looks_at(mount, speech):
    """As `touchfs status` and df do, for a moment."""
    mounted = mount(speech)
    program = "import sys, time; f = open(sys.argv[1]); print(flush=True); time.sleep(0.3)"
    with subprocess.Popen([sys.executable, "-c", program, mounted.path / MONDAY], stdout=subprocess.PIPE) as user:
        assert user.stdout.readline() == b"\n"
        done = touchfs("umount", mounted.path)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "way",
    ["open file", *(pytest.param(way, marks=pytest.mark.variant) for way in ("mapped file", "working directory"))],
)
def test_unmounting_what_is_in_use(mount, speech, way):
    mounted = mount(speech)
    code = {
        "open file": "f = open(sys.argv[1])",
        "mapped file": "f = open(sys.argv[1]); m = mmap.mmap(f.fileno(), 0, access=1); f.close()",
        "working directory": "os.chdir(os.path.dirname(sys.argv[1]))",
    }
    program = f"import mmap, os, sys; {code[way]}; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, mounted.path / MONDAY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as user:
        assert user.stdout.readline() == b"\n"
        done = touchfs("umount", mounted.path)
        name = Path(f"/proc/{user.pid}/comm").read_text().strip()
        told = f"touchfs: {mounted.path}: in use by {name} ({user.pid}): end them, or use --lazy\n"
        assert (done.returncode, done.stderr) == (1, told)
        assert (mounted.path / MONDAY).read_bytes() == RECORDING
    assert touchfs("umount", mounted.path).returncode == 0
    wait_until(lambda: not any(map(runs, mounted.processes())))


def test_who_unmounts_the_directory_that_he_is_in_is_told(mount, speech):
    mounted = mount(speech)
    told = f"touchfs: {mounted.path}: this directory is in it: cd out of it first\n"
    shell = ["bash", "-c", '"$0" umount . || exit $?', INSTALLED]  # which is there, too
    done = subprocess.run(shell, cwd=mounted.path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, told)


def test_lazy_unmounting_lets_readers_go_on(mount, speech):
    """And whoever mounts there next is left alone by the daemon that still serves them."""
    old = mount(speech)
    processes = old.processes()
    with reader_of(old.path / MONDAY) as reader:
        assert touchfs("umount", "--lazy", old.path).returncode == 0
        assert not is_mounted(old.path)
        new = mount(speech)
        out, _ = reader.communicate(timeout=60)
        assert out == f"{len(RECORDING) - 1}\n".encode()
    wait_until(lambda: not any(map(runs, processes)))
    assert (new.path / MONDAY).read_bytes() == RECORDING
    with reader_of(new.path / MONDAY):
        assert touchfs("umount", "--lazy", old.path).returncode == 0
        newest = mount(speech)
        wait_until(lambda: not interrupted(new.pid))  # the first interrupt waits for the reader
        assert (newest.path / MONDAY).read_bytes() == RECORDING


def interrupted(pid: int) -> bool:
    """Interrupt a process, if it runs."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGINT)
    return runs(pid)


def test_umount_where_nothing_is_mounted(tmp_path):
    done = touchfs("umount", tmp_path)
    assert (done.returncode, done.stderr) == (1, f"touchfs: {tmp_path}: touchfs is not mounted here\n")
    assert touchfs("umount", "/proc").returncode == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.variant)])
def test_a_signal_ends_a_mount_in_the_foreground(speech, tmp_path, number):
    with in_foreground(speech, tmp_path / "mnt") as process:
        assert (tmp_path / "mnt" / MONDAY).read_bytes() == RECORDING
        process.send_signal(number)
        assert process.wait(60) == 0
    assert not (tmp_path / "mnt").exists()


def test_a_signal_ends_a_mount_in_use(speech, tmp_path):
    """The name goes at once; who reads has some seconds, then errors."""
    with in_foreground(speech, tmp_path / "mnt") as process, reader_of(tmp_path / "mnt" / MONDAY):
        process.terminate()
        wait_until(lambda: not is_mounted(tmp_path / "mnt"))
        assert process.wait(60) == 0
        assert "is still in use: aborting" in process.stderr.read()


def test_a_second_interrupt_does_not_wait(speech, tmp_path):
    with in_foreground(speech, tmp_path / "mnt") as process, reader_of(tmp_path / "mnt" / MONDAY):
        process.send_signal(signal.SIGINT)
        wait_until(lambda: not is_mounted(tmp_path / "mnt"))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_unmounting_ends_a_mount_in_the_foreground(speech, tmp_path):
    with in_foreground(speech, tmp_path / "mnt") as process:
        subprocess.run(["umount", tmp_path / "mnt"], check=True)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""


def test_only_the_supervisor_listens_to_sighup(mount, speech):
    mounted = mount(speech, "--workers", 2)
    everyone = mounted.processes()
    for pid in everyone[1:]:
        os.kill(pid, signal.SIGHUP)
    wait_until(lambda: not any(map(is_about_to_get_a_signal, everyone)))
    assert mounted.processes() == everyone
    assert mounted.info()["reloads_begun"] == 0
    assert (mounted.path / MONDAY).read_bytes() == RECORDING


def is_about_to_get_a_signal(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    pending, blocked = (int(re.search(rf"{name}:\t(\w+)", status)[1], 16) for name in ("ShdPnd", "SigBlk"))
    return pending & ~blocked != 0


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.variant)])
def test_a_worker_killed_during_a_copy_costs_nothing(mount, zoo, tmp_path, workers):
    mounted = mount(zoo, "--workers", workers, "--log-file", tmp_path / "log")
    copies = []

    def start() -> "list[subprocess.Popen[str]]":
        copies.append(tmp_path / f"copy{len(copies)}")
        command = ["cp", "-r", mounted.path / "shards", copies[-1]]
        return [subprocess.Popen(command, stderr=subprocess.PIPE, text=True)]

    for copying in kill_workers_while(start, mounted, 1, workers, least=3):
        assert (copying.communicate()[1], copying.returncode) == ("", 0)
    for copy in copies:
        subprocess.run(["diff", "-r", mounted.path / "shards", copy], check=True)
    wait_until(lambda: len(mounted.workers()) == workers)
    assert re.search(
        r"WARNING .* worker \d \(pid \d+\) ended with status -9: starting another", (tmp_path / "log").read_text()
    )


def test_a_worker_is_stuck_only_when_requests_wait(mount, speech):
    mounted = mount(speech, "--stuck-seconds", 0.5)
    (worker,) = mounted.workers()
    # It has answered all, and sleeps.
    wait_until(lambda: "poll" in Path(f"/proc/{worker}/wchan").read_text())
    os.kill(worker, signal.SIGSTOP)
    time.sleep(1.2)  # nobody asks anything: it may stay as it is for ever
    assert mounted.workers() == [worker]
    os.kill(worker, signal.SIGCONT)

    ask = "[os.path.exists(f'{sys.argv[1]}/{os.getpid()}-{i}') or i % 1000 or print(flush=True) for i in range(10**9)]"
    command = [sys.executable, "-c", f"import os, sys; {ask}", mounted.path]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as one,
        subprocess.Popen(command, stdout=subprocess.PIPE) as two,
    ):
        try:
            assert one.stdout.readline() == two.stdout.readline() == b"\n"
            (worker,) = wait_until(mounted.workers)  # on a busy machine it is another one by now
            os.kill(worker, signal.SIGSTOP)  # wherever it is: in a request, or about to take one
            wait_until(lambda: not runs(worker))
            assert one.stdout.readline() == two.stdout.readline() == b"\n"
        finally:
            one.kill()
            two.kill()
    wait_until(lambda: len(mounted.workers()) == 1)
    assert (mounted.path / MONDAY).read_bytes() == RECORDING


def test_a_dead_mount_is_replaced(mount, speech):
    mounted = mount(speech, "--workers", 2)
    control = (mounted.path / ".touchfs").readlink()
    mounted.crash()
    assert is_mounted(mounted.path)
    with pytest.raises(OSError, match=r"not connected|connection abort"):
        os.statvfs(mounted.path)  # the kernel keeps the listing
    again = touchfs("mount", speech, mounted.path)
    assert again.returncode == 0
    assert "detaching a mount of" in again.stderr
    assert not control.exists()
    assert (mounted.path / MONDAY).read_bytes() == RECORDING
    assert touchfs("umount", mounted.path).returncode == 0


def test_a_dead_mount_is_unmounted(mount, speech):
    mounted = mount(speech)
    control = (mounted.path / ".touchfs").readlink()
    mounted.crash()
    assert touchfs("umount", mounted.path).returncode == 0
    assert not is_mounted(mounted.path)
    assert not control.exists()


def test_nothing_of_the_caller_is_kept(speech, tmp_path):
    """Neither its pipes, those for output and others, nor its directory."""
    reading, writing = os.pipe()
    (tmp_path / "here").mkdir()
    done = touchfs("mount", speech, tmp_path / "mnt", pass_fds=[writing], cwd=tmp_path / "here", timeout=60)
    try:
        os.close(writing)
        assert done.returncode == 0
        os.set_blocking(reading, False)
        assert os.read(reading, 1) == b""
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                assert os.readlink(process / "cwd") != str(tmp_path / "here")
    finally:
        os.close(reading)
        assert touchfs("umount", tmp_path / "mnt").returncode == 0


@pytest.mark.parametrize(
    "streams",
    [
        *("<&- >&- 2>&-", ">/dev/full"),
        *(pytest.param(each, marks=pytest.mark.variant) for each in ("| true", "2>&-", "2>&1 >&- | cat")),
    ],
)
def test_a_message_that_nobody_can_read_is_no_failure(speech, tmp_path, streams):
    script = f'"$1" mount "$2" mnt {streams}; echo "${{PIPESTATUS[0]}}" > status'
    subprocess.run(["bash", "-c", script, "bash", TOUCHFS, speech], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    try:
        assert (tmp_path / "status").read_text() == "0\n"
        assert (tmp_path / "mnt/shards").is_dir()
    finally:
        assert touchfs("umount", tmp_path / "mnt").returncode == 0


def test_programs_that_the_daemon_runs_inherit_nothing(mount, speech):
    """Every descriptor but the standard ones is closed on exec, the one of FUSE too."""
    mounted = mount(speech, "--workers", 2)

    def fuse(pid: int) -> int:
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
        for descriptor in descriptors:
            flags = re.search(r"flags:\t(\d+)", Path(f"/proc/{pid}/fdinfo/{descriptor.name}").read_text())
            assert int(descriptor.name) <= 2 or int(flags[1], 8) & os.O_CLOEXEC, os.readlink(descriptor)
        return [os.readlink(descriptor) for descriptor in descriptors].count("/dev/fuse")

    # Those of data and of control: a process has only the one that it serves.
    assert [fuse(pid) for pid in (mounted.pid, *children(mounted.pid))] == [2, 2]
    assert [fuse(pid) for pid in mounted.serving()] == [1, 1, 1]


@pytest.fixture
def stuck_source(mount, zoo) -> Iterator[Path]:
    """A directory that is there, and whose listing takes for ever: in a mount whose worker is stopped."""
    mounted = mount(zoo, "--stuck-seconds", 1000, name="stuck")
    source = mounted.path / "shards"
    source.stat()
    (worker,) = mounted.workers()
    # One that is stopped in the middle of a request is soon replaced.
    wait_until(lambda: "poll" in Path(f"/proc/{worker}/wchan").read_text())
    os.kill(worker, signal.SIGSTOP)
    yield source
    os.kill(worker, signal.SIGCONT)


def test_not_ready_in_time(stuck_source, tmp_path):
    done = touchfs("mount", stuck_source, tmp_path / "mnt", "--wait-timeout", 1)
    assert (done.returncode, done.stderr) == (17, "touchfs: not ready after 1 s: gave up\n")
    assert not (tmp_path / "mnt").exists()


def test_interrupted_before_it_is_ready(stuck_source, tmp_path):
    with subprocess.Popen([INSTALLED, "mount", stuck_source, tmp_path / "mnt"], stderr=subprocess.PIPE) as process:
        try:
            (child,) = wait_until(lambda: children(process.pid))
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()
        assert not runs(child)
    assert not (tmp_path / "mnt").exists()


@pytest.mark.parametrize("kind", ["path", pytest.param("abstract", marks=pytest.mark.variant)])
def test_systemd_is_told(speech, tmp_path, kind):
    name = f"{tmp_path}/notify" if kind == "path" else f"@touchfs-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(name.replace("@", "\0", 1))
        told.settimeout(60)
        environment = os.environ | {"NOTIFY_SOCKET": name}

        def next_word() -> bytes:
            words = iter(lambda: told.recv(1000), b"")
            return next(word.partition(b"\nSTATUS=")[0] for word in words if not word.startswith(b"EXTEND"))

        with in_foreground(speech, tmp_path / "mnt", env=environment) as process:
            assert next_word() == b"READY=1"
            process.terminate()
            assert next_word() == b"STOPPING=1"
        with in_foreground(speech, tmp_path / "mnt", env=environment):
            assert next_word() == b"READY=1"
            assert touchfs("umount", tmp_path / "mnt").returncode == 0
            assert next_word() == b"STOPPING=1"


def test_a_shell_that_may_open_too_little(speech, tmp_path):
    """With fewer, the mount was there, and most reads failed."""
    (tmp_path / "mnt").mkdir()
    command = ["bash", "-c", 'ulimit -n 32 && exec "$0" "$@"', INSTALLED, "mount", speech, tmp_path / "mnt"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    problem = "a mount needs 64 open files, and a process may have 32 here: raise ulimit -Hn"
    assert (done.returncode, done.stderr) == (1, f"touchfs: {problem}\n")


def test_a_daemon_that_fails_names_its_log_and_quotes_it(speech, tmp_path):
    program = """
import sys
from touchfs_mount.mounting import mounting
from touchfs.cli.main import main

def fail(*arguments):
    raise ZeroDivisionError("by chance")

mounting._serving = fail
main()
"""
    (tmp_path / "mnt").mkdir()
    log = tmp_path / "log"
    command = [sys.executable, "-c", program, "mount", speech, tmp_path / "mnt", "--log-file", log]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    problem = f"the daemon failed: the last line of its log {log} is: ZeroDivisionError: by chance"
    assert (done.returncode, done.stderr) == (1, f"touchfs: {problem}\n")
