"""`.touchfs/errors` and `.touchfs/log-level` are for the user who mounted and for root; and the level takes effect."""

import errno
import os
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from mounts import WAYS, Mount, mounts_below, touchfs, ways
from waiting import wait_until

STRANGER = 65534


@pytest.fixture
def place() -> Iterator[Path]:
    """One that all may look into, unlike pytest's."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    (place / "one.jsonl").write_text('{"id": "one"}\n')
    yield place
    for point in mounts_below(place):
        subprocess.run(["fusermount3", "-u", "-z", point], check=True)
    shutil.rmtree(place)


def errnos_for(user: int, control: Path, *attempts: str) -> list[str]:
    """The names of the errors that a program of a user gets by these."""
    program = "import errno, os\n"
    for attempt in attempts:
        program += f"""
try:
    {attempt}
except OSError as error:
    print(errno.errorcode[error.errno])
else:
    print("none")
"""
    command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "/usr/bin/python3", "-c", program]
    return subprocess.run(command, cwd=control, capture_output=True, text=True, check=True).stdout.split()


def check_private(control: Path) -> None:
    private, public = ("errors", "log-level"), ("info", "stats")
    for name, mode in zip(private, (0o400, 0o600), strict=True):
        found = (control / name).stat()
        assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (0, mode)
    reads = [f"open({name!r}).read()" for name in (*private, *public)]
    assert errnos_for(0, control, *reads) == ["none"] * 4
    writes = ["open('log-level', 'w').write('debug')", "os.chmod('log-level', 0o666)", "os.truncate('log-level', 0)"]
    *told, _ = errnos_for(STRANGER, control, *reads, *writes)
    assert told == ["EACCES", "EACCES", "none", "none", "EACCES", "EPERM"]
    assert (control / "log-level").read_text() == "info\n"


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("options", [(), ("--uid", STRANGER, "--gid", STRANGER)], ids=["ours", "another's"])
def test_others_open_neither(place, options):
    mounted = Mount(place / "mnt", place / "one.jsonl", "--allow-other", *options)
    try:
        check_private(mounted.path / ".touchfs")
    finally:
        mounted.end()


@pytest.mark.usefixtures("as_root")
def test_others_open_neither_though_the_kernel_does_not_check(place, descriptor):
    """Whoever mounts the control files for us may let others in, and have nobody look at modes."""
    data = descriptor(place / "mnt", "allow_other", "default_permissions")
    control = descriptor(place / "control", "allow_other", kind="touchfs-control")
    options = ("--control", f"/dev/fd/{control}")
    done = touchfs("mount", place / "one.jsonl", f"/dev/fd/{data}", *options, pass_fds=[data, control])
    assert (done.returncode, done.stderr) == (0, "")
    lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    assert ["default_permissions" in line for line in lines if str(place / "control") in line] == [False]
    check_private(place / "mnt" / ".touchfs")
    assert touchfs("umount", place / "mnt").returncode == 0


def log_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def kill_a_worker(mounted: Mount) -> None:
    """The supervisor says so in a warning."""
    workers = mounted.workers()
    os.kill(workers[0], signal.SIGKILL)
    wait_until(lambda: len(now := mounted.workers()) == len(workers) and workers[0] not in now)
    mounted.info()


@pytest.mark.parametrize("way", ways("two-workers"))
def test_the_level_changes_in_all_processes(mount, speech, tmp_path, way):
    log, level = tmp_path / "log", tmp_path / "mnt/.touchfs/log-level"
    mounted = mount(speech, "--log-file", log, "--log-level", "error", *WAYS[way])
    assert level.read_text() == "error\n"
    kill_a_worker(mounted)
    assert log_of(log) == []
    level.write_text("warning")
    kill_a_worker(mounted)
    assert [line for line in log_of(log) if "ended with status -9: starting another" in line]
    assert level.read_text() == "warning\n"

    def refuse(word: str) -> None:
        """The worker that refuses it has an info line of it, once a minute."""
        with pytest.raises(OSError) as refused:
            level.write_text(word)
        assert refused.value.errno == errno.EINVAL

    refuse("loud\n")
    assert "loud" in (mounted.path / ".touchfs/errors").read_text()
    assert not [line for line in log_of(log) if "loud" in line]
    subprocess.run(["sh", "-c", f"echo info > {level}"], check=True)
    assert level.read_text() == "info\n"
    kill_a_worker(mounted)
    kill_a_worker(mounted)  # both are new, so that neither has logged such an error
    assert touchfs("reload", mounted.path).returncode == 0
    assert [line for line in log_of(log) if line.endswith("reloaded")]
    refuse("l" * 5000)
    assert [line for line in log_of(log) if "is no level of the log: write one of debug, info, warning, error" in line]
    assert max(map(len, log_of(log))) < 300


def test_a_wrong_word_changes_nothing_and_other_files_cannot_be_written(mount, speech):
    mounted = mount(speech)
    level = mounted.path / ".touchfs/log-level"
    for word in (b"\n", b"INFO", b"info info", b"\0", b"10", b"debug\nerror", b"\xff" * 100_000):
        descriptor = os.open(level, os.O_WRONLY)
        try:
            with pytest.raises(OSError) as refused:
                os.write(descriptor, word)
            assert refused.value.errno == errno.EINVAL
        finally:
            os.close(descriptor)
    level.open("w").close()  # writes nothing
    assert level.read_text() == "info\n"
    for name in ("info", "stats", "errors"):
        with pytest.raises(OSError) as refused:
            os.open(mounted.path / ".touchfs" / name, os.O_WRONLY)
        assert refused.value.errno == errno.EROFS


def test_a_descriptor_that_was_read_can_write(mount, speech):
    """It then writes behind what it has read. A second write is refused, wherever the first one was."""
    mounted = mount(speech, "--workers", 2)
    level = mounted.path / ".touchfs/log-level"
    for length in (0, 2, 100):
        level.write_text("info")
        descriptor = os.open(level, os.O_RDWR)
        try:
            assert os.read(descriptor, length) == b"info\n"[:length]
            assert os.write(descriptor, b"warning\n") == 8
            assert level.read_text() == "warning\n"
            with pytest.raises(OSError) as refused:
                os.write(descriptor, b"debug\n")
            assert refused.value.errno == errno.EINVAL
        finally:
            os.close(descriptor)
        assert level.read_text() == "warning\n"
    errors = (mounted.path / ".touchfs/errors").read_text()
    assert ".touchfs/log-level: this file takes a value in one write" in errors
