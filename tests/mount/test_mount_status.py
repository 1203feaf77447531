"""`touchfs status` lists mounts and whether they answer, and `touchfs umount --abort` ends one that hangs."""

import json
import os
import signal
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from mounts import TOUCHFS, Mount, is_mounted, touchfs, wait_until
from processes import runs

STRANGER = 65534


def status_of(path, *options):
    done = touchfs("status", path, "--json", *options)
    (found,) = json.loads(done.stdout)
    return found, done.returncode


def read_ahead_of(path) -> int:
    device = os.stat(path).st_dev
    return int(Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb").read_text())


def test_a_mount_says_what_it_is(mount, speech):
    begun = datetime.now(UTC).replace(microsecond=0)
    mounted = mount(speech)
    found, status = status_of(mounted.path)
    assert status == 0
    assert (found["mountpoint"], found["health"]) == (str(mounted.path), "answers")
    assert found["workers"] == mounted.workers()
    assert found["info"] == mounted.info() | {key: found["info"][key] for key in ("requests", "late_replies")}
    assert begun <= datetime.fromisoformat(found["info"]["since"]) <= datetime.now(UTC)
    assert all(os.path.exists(found["info"][name]) for name in ("index", "state", "log"))
    text = touchfs("status", mounted.path).stdout.splitlines()
    assert text == [
        str(mounted.path),
        f"  source      {speech}",
        "  health      answers",
        "  content     TouchDataset (.bin/.idx), 3 shards, 10 samples",
        f"  since       {found['info']['since']}",
        f"  supervisor  {mounted.pid}",
        f"  workers     {mounted.workers()[0]}",
        *(f"  {name:<11} {found['info'][name]}" for name in ("index", "state", "log")),
        f"  read-ahead  {found['read_ahead_kb']} KiB",
    ]
    assert found["read_ahead_kb"] == read_ahead_of(mounted.path)


def test_all_mounts_are_listed(mount, speech):
    first, second = mount(speech), mount(speech, name="second")
    points = [each["mountpoint"] for each in json.loads(touchfs("status", "--json").stdout)]
    assert {str(first.path), str(second.path)} <= set(points)


def test_no_mount(tmp_path):
    done = touchfs("status", tmp_path)
    assert (done.returncode, done.stderr) == (1, f"touchfs: {tmp_path}: touchfs is not mounted here\n")


def test_a_dead_mount_is_named(mount, speech):
    mounted = mount(speech)
    mounted.crash()
    found, status = status_of(mounted.path)
    assert (found["health"], found["info"], status) == ("dead", {}, 1)
    for command in ("stats", "reload"):
        done = touchfs(command, mounted.path)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert done.stderr.endswith("dead: its daemon is gone; `touchfs umount --lazy` removes it\n")
    assert touchfs("umount", "--lazy", mounted.path).returncode == 0


def test_a_mount_that_hangs_is_named_and_ended(mount, speech):
    mounted = mount(speech)
    processes = mounted.processes()
    try:
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        with subprocess.Popen(["cat", mounted.path / ".touchfs" / "info"], stderr=subprocess.PIPE, text=True) as reader:
            found, status = status_of(mounted.path, "--wait-seconds", 0.5)
            assert (found["health"], status) == ("does not answer", 1)
            assert "umount --abort" in touchfs("status", mounted.path, "--wait-seconds", 0.5).stdout
            assert touchfs("umount", "--abort", mounted.path).returncode == 0
            _, error = reader.communicate(timeout=20)
            assert reader.returncode == 1
            assert error.endswith((": Software caused connection abort\n", ": Transport endpoint is not connected\n"))
        assert not is_mounted(mounted.path)
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not any(map(runs, processes)))


def test_a_mount_that_hangs_takes_no_time_from_others(mount, speech):
    hanging, well = mount(speech, name="hanging"), mount(speech, name="well")
    processes = hanging.processes()
    try:
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        listed = {each["mountpoint"]: each["health"] for each in json.loads(touchfs("status", "--json").stdout)}
        assert listed[str(hanging.path)] == "does not answer"
        assert listed[str(well.path)] == "answers"
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("command", ["stats", "reload"])
def test_no_command_waits_for_a_mount_that_hangs(mount, speech, command):
    mounted = mount(speech)
    processes = mounted.processes()
    try:
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        # Not in a `with`: a process that does wait could not be killed before the mount goes on.
        waiting = subprocess.Popen([TOUCHFS, command, mounted.path], stderr=subprocess.PIPE, text=True)
        _, error = waiting.communicate(timeout=60)
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)
    hangs = f"touchfs: {mounted.path}: does not answer; `touchfs umount --abort` ends it\n"
    assert (waiting.returncode, error) == (1, hangs)


@pytest.mark.usefixtures("as_root")
def test_the_mount_of_another_user_is_named_and_is_no_problem(speech):
    def as_stranger(*arguments):
        ids = [f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"]
        capabilities = "-all,+dac_read_search"  # our Python may be in a home that others cannot enter
        ids += [f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}"]
        command = ["setpriv", *ids, TOUCHFS, *arguments, path]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")

    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)  # all may get at the mount point
        path = Path(place, "mnt")
        mounted = Mount(path, speech)
        try:
            shown = as_stranger("status")
            assert (shown.returncode, shown.stderr) == (0, "")
            assert "  health      another user's\n" in shown.stdout
            for command in ("stats", "reload"):
                done = as_stranger(command)
                wanted = f"touchfs: {path}: this is the mount of root: run the command as root\n"
                assert (done.returncode, done.stderr) == (1, wanted)
            for options in ([], ["--lazy"], ["--abort"]):
                done = as_stranger("umount", *options)
                wanted = f"touchfs: {path}: this is the mount of root: unmount it as root\n"
                assert (done.returncode, done.stderr) == (1, wanted)
            assert is_mounted(path)
        finally:
            mounted.end()
