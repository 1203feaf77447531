"""`touchfs doctor` says what a machine lacks for mounting, and what to do."""

import os
import shutil
import subprocess

from mounts import TOUCHFS, touchfs


def lines(done):
    """The verdict and the rest of each line, by its subject."""
    rows = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    return {subject: (verdict, rest) for verdict, subject, rest in rows}


def test_a_machine_that_mounts_is_good():
    done = touchfs("doctor")
    assert done.returncode == 0, done.stdout
    found = lines(done)
    assert found["/dev/fuse"] == ("ok", "can be opened")
    assert found["fusermount3"][1].startswith(shutil.which("fusermount3"))
    assert found["kernel"][1].startswith(f"Linux {os.uname().release}")
    assert found["touchfs[fuse]"][0] == "ok"


def test_what_is_missing_is_named(tmp_path):
    """No fusermount3 in the path, and a state directory below a file."""
    (tmp_path / "file").write_bytes(b"")
    done = touchfs("doctor", "--state-dir", tmp_path / "file" / "state", env=os.environ | {"PATH": str(tmp_path)})
    assert done.returncode == 1
    assert lines(done)["fusermount3"] == ("bad", "is missing: install the package fuse3")


def test_another_user_gets_advice(tmp_path):
    """`nobody` has no home, and is not allowed to use --allow-other."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", TOUCHFS, "doctor"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 1, done.stderr
    assert "indexes              / cannot be written: choose another place: $XDG_CACHE_HOME" in done.stdout


def test_a_dead_mount_is_named(mount, speech):
    mounted = mount(speech)
    mounted.crash()
    done = touchfs("doctor")
    assert done.returncode == 1
    assert f"{mounted.path}" in done.stdout
    assert f"dead: touchfs umount --lazy {mounted.path}" in done.stdout
