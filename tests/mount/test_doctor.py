"""`touchfs doctor` says what a machine lacks for mounting, and what to do."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from command import INSTALLED
from machine import run_on_machine
from mounts import touchfs


def lines(done):
    """The verdict and the rest of each line, by its subject."""
    rows = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    return {subject: (verdict, rest) for verdict, subject, rest in rows}


@pytest.mark.usefixtures("as_root")
def test_a_machine_that_mounts_is_good(tmp_path):
    """One without the mounts of other tests, of which one that hangs would be no good."""
    done = run_on_machine(tmp_path, "touchfs doctor")
    assert done.returncode == 0, done.stdout
    found = lines(done)
    assert found["/dev/fuse"] == ("ok", "can be opened")
    assert found["fusermount3"][1].startswith(shutil.which("fusermount3"))
    assert found["kernel"][1].startswith(f"Linux {os.uname().release}")
    assert found["touchfs-shards[fuse]"][0] == "ok"


def test_what_is_missing_is_named(tmp_path):
    """No fusermount3 in the path, and a state directory below a file."""
    (tmp_path / "file").write_bytes(b"")
    done = touchfs("doctor", "--state-dir", tmp_path / "file" / "state", env=os.environ | {"PATH": str(tmp_path)})
    assert done.returncode == 1
    found = lines(done)
    assert found["fusermount3"] == ("bad", "is missing: install the package fuse3")
    assert found["states"] == ("bad", f"{tmp_path}/file is not a directory: choose another place: --state-dir")


@pytest.mark.usefixtures("as_root")
def test_a_place_without_room_is_named(tmp_path):
    """A full disk, and a file system that has no room for files at all. No directory is made there."""
    for directory in ("/proc", small := tmp_path / "small"):
        if directory == small:
            small.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", small], check=True)
        try:
            done = touchfs("doctor", "--state-dir", f"{directory}/nope")
            assert not os.path.exists(f"{directory}/nope")
        finally:
            if directory == small:
                subprocess.run(["umount", small], check=True)
        assert done.returncode == 1
        assert lines(done)["states"] == ("bad", f"{directory} has no room: choose another place: --state-dir")


def test_all_extras_of_users_are_listed():
    """Those of the package, with what they need: `touchfs-shards[s3]` needs aiohttp by way of fsspec[http]."""
    with open(Path(__file__).parent.parent.parent / "pyproject.toml", "rb") as file:
        extras = set(tomllib.load(file)["project"]["optional-dependencies"])
    found = lines(touchfs("doctor"))
    listed = {subject[len("touchfs-shards[") : -1] for subject in found if subject.startswith("touchfs-shards[")}
    assert listed == extras - {"all", "dev", "interop", "bench"}
    assert {word.split()[0] for word in found["touchfs-shards[s3]"][1].split(", ")} == {"fsspec", "aiohttp", "s3fs"}


def test_missing_extras_are_one_line(tmp_path):
    """Metadata of our distribution with two more extras come before the installed ones."""
    installed = distribution("touchfs-shards")
    metadata = installed.read_text("METADATA") or installed.read_text("PKG-INFO")  # as in a checkout
    more = [f"Provides-Extra: {name}\nRequires-Dist: no-such-{name}; extra == '{name}'\n" for name in ("x", "y")]
    place = tmp_path / "touchfs_shards-9.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(
        re.sub("(?=^Provides-Extra: )", "".join(more), metadata, count=1, flags=re.MULTILINE)
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [INSTALLED, "doctor", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    (missing,) = (each for each in json.loads(done.stdout) if each["subject"] == "extras")
    assert (missing["rating"], missing["subject"]) == ("note", "extras")
    assert missing["found"].endswith(": x, y") and "'touchfs-shards[x]'" in missing["advice"]


def test_another_user_gets_advice(mount, speech):
    """`nobody` has no home, may not use --allow-other, and cannot ask a mount where our Python is closed to him."""
    mount(speech)
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", INSTALLED, "doctor"]
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
