"""The link that mount(8) runs: made, replaced and removed, and never in the place of another's file."""

import os
import subprocess

import pytest
from command import INSTALLED, TOUCHFS


def helper(place, *options, **how):
    command = [TOUCHFS, "setup", "helper", "--directory", place, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, **how)


def test_a_link_is_made_and_replaced_and_removed(tmp_path):
    link = tmp_path / "mount.touchfs"
    os.symlink("/opt/old/bin/touchfs", link)
    for _ in range(2):
        done = helper(tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{link} links to {INSTALLED}: `mount -t touchfs DATASET DIRECTORY` runs it\n"
        assert os.readlink(link) == str(INSTALLED)
        assert os.listdir(tmp_path) == ["mount.touchfs"]
    done = subprocess.run([link, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: mount.touchfs [OPTIONS] DATASET MOUNTPOINT\n")
    assert helper(tmp_path, "--remove").stdout == f"{link} is removed\n"
    assert os.listdir(tmp_path) == []
    assert helper(tmp_path, "--remove").stdout == f"{link} does not exist\n"


def test_the_link_is_as_the_program_was_called(tmp_path):
    """pipx has a link in ~/.local/bin, and may move what is behind it."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "sbin").mkdir()
    (tmp_path / "bin/touchfs").symlink_to(INSTALLED)
    environment = os.environ | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    subprocess.run(["touchfs", "setup", "helper", "--directory", "sbin"], cwd=tmp_path, env=environment, check=True)
    assert os.readlink(tmp_path / "sbin/mount.touchfs") == str(tmp_path / "bin/touchfs")


@pytest.mark.parametrize("kind", ["file", "link", "directory"])
def test_files_of_others_stay(tmp_path, kind):
    foreign = tmp_path / "mount.touchfs"
    match kind:
        case "file":
            foreign.write_text("#!/bin/sh\n")
        case "link":
            foreign.symlink_to("/bin/true")
        case "directory":
            foreign.mkdir()
    for options in ((), ("--remove",)):
        done = helper(tmp_path, *options)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"touchfs: {foreign}: is not a link to touchfs, and stays as it is\n"
        assert os.listdir(tmp_path) == ["mount.touchfs"]


def test_a_directory_that_cannot_be_written(tmp_path):
    done = helper(tmp_path / "missing")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("missing/mount.touchfs: cannot be written: No such file or directory\n")
    tmp_path.chmod(0o555)
    setpriv = ["setpriv", "--bounding-set", "-dac_override", "--inh-caps", "-all", INSTALLED]
    command = [*setpriv, "setup", "helper", "--directory", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith(f"Permission denied; as root: {INSTALLED} setup helper --directory {tmp_path}\n")
