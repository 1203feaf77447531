"""`touchfs status` lists mounts and whether they answer, and `touchfs umount --abort` ends one that hangs."""

import json
import os
import signal
import subprocess
from datetime import UTC, datetime

from mounts import is_mounted, touchfs, wait_until
from processes import runs


def status_of(path, *options):
    done = touchfs("status", path, "--json", *options)
    (found,) = json.loads(done.stdout)
    return found, done.returncode


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
    assert text[0] == str(mounted.path)
    assert f"  supervisor  {mounted.pid}" in text
    assert f"  log         {found['info']['log']}" in text


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
