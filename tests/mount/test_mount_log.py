"""The log of a mount: where it is, what is in it, and how journald wants it."""

import json
import os
import signal
import subprocess
from pathlib import Path

from command import TOUCHFS
from mounts import is_mounted, workers
from waiting import wait_until

ENDED = "worker 0 (pid"


def mount_in_the_foreground(source: Path, path: Path, stderr: Path, *options: object, to_journal: bool = False) -> str:
    """What such a mount writes to stderr when a worker is killed, and then the daemon told to end."""
    command = [TOUCHFS, "mount", "-f", source, path, *map(str, options)]
    with open(stderr, "wb") as file:
        status = os.fstat(file.fileno())
        journal = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"} if to_journal else {}
        daemon = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file, env=os.environ | journal)
    try:
        wait_until(lambda: is_mounted(path) and (path / ".touchfs" / "info").exists())
        (worker,) = workers(json.loads((path / ".touchfs" / "info").read_bytes())["pid"])
        os.kill(worker, signal.SIGKILL)
        assert os.getxattr(path, "user.touchfs.info")  # by another worker
    finally:
        daemon.terminate()
        daemon.wait()
    return stderr.read_text()


def test_in_the_background_it_is_a_file_named_after_the_mount_point(mount, speech, tmp_path):
    mount(speech, "--state-dir", tmp_path / "state", name="one")
    (log,) = (tmp_path / "state").glob("*.log")
    assert log.name.startswith(f"{tmp_path}/one".strip("/").replace("/", "-") + ".")
    mounted = mount(speech, "--log-file", tmp_path / "log", name="two")
    (worker,) = mounted.workers()
    os.kill(worker, signal.SIGKILL)
    line = f"WARNING {mounted.pid} touchfs_mount.daemon.supervisor: worker 0 (pid {worker}) ended"
    wait_until(lambda: line in (tmp_path / "log").read_text())
    assert "ended with" not in log.read_text()


def test_in_the_foreground_it_is_stderr(speech, tmp_path):
    said = mount_in_the_foreground(speech, tmp_path / "mnt", tmp_path / "stderr")
    assert f"WARNING {ENDED}" in said


def test_in_the_foreground_it_is_the_file_that_is_named(speech, tmp_path):
    said = mount_in_the_foreground(speech, tmp_path / "mnt", tmp_path / "stderr", "--log-file", tmp_path / "log")
    assert said == ""
    assert f"touchfs_mount.daemon.supervisor: {ENDED}" in (tmp_path / "log").read_text()


def test_a_level_leaves_out_what_is_below_it(speech, tmp_path):
    said = mount_in_the_foreground(speech, tmp_path / "mnt", tmp_path / "stderr", "--log-level", "error")
    assert said == ""


def test_journald_is_given_the_priority_of_each_line(speech, tmp_path):
    said = mount_in_the_foreground(speech, tmp_path / "mnt", tmp_path / "stderr", to_journal=True)
    assert f"<4>touchfs_mount.daemon.supervisor: {ENDED}" in said
    assert all(line.startswith("<") for line in said.splitlines())


def test_one_of_ours_is_not_written_through_what_is_planted(mount, speech, tmp_path):
    mount(speech, "--state-dir", tmp_path / "state").end()
    (log,) = (tmp_path / "state").glob("*.log")
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    for plant in (log.symlink_to, log.hardlink_to, lambda victim: os.mkfifo(log)):
        log.unlink()
        plant(victim)
        mounted = mount(speech, "--state-dir", tmp_path / "state")
        (worker,) = mounted.workers()
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: log.is_file() and "ended with" in log.read_text())
        assert victim.read_bytes() == b"precious"
        assert (log.lstat().st_mode & 0o777, log.lstat().st_nlink) == (0o600, 1)
        mounted.end()


def test_one_that_the_user_names_may_be_a_link(mount, speech, tmp_path):
    (tmp_path / "log").symlink_to("elsewhere")
    mounted = mount(speech, "--log-file", tmp_path / "log")
    (worker,) = mounted.workers()
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: "ended with" in (tmp_path / "elsewhere").read_text())
