"""A shard that is overwritten in place under a mount, with the size and the mtime of before."""

import os
from pathlib import Path

import pytest
from mounts import outcome, touchfs
from overwritten import KINDS, SIZE, data_of, write_version
from variants import with_variants
from waiting import wait_until


def reload(mounted) -> None:
    done = touchfs("reload", mounted.path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("kind", with_variants(KINDS, lambda kind: kind == "touchnet"))
def test_it_is_stale_until_a_reload_shows_the_new_one(mount, tmp_path, monkeypatch, kind):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data = tmp_path / "data"
    write_version(kind, data, 1)
    mounted = mount(data)
    (directory,) = (mounted.path / "shards").iterdir()
    cached, other = sorted(file for file in directory.iterdir() if file.suffix in (".bin", ".wav"))
    before, inode = cached.read_bytes(), cached.stat().st_ino
    assert before.endswith(data_of(1)[0])
    files = write_version(kind, data, 2)
    wait_until(lambda: outcome(other) == "ESTALE")
    assert outcome(cached, Path.read_bytes) in (before, "ESTALE")
    reload(mounted)
    assert [file.read_bytes()[-SIZE:] for file in (cached, other)] == data_of(2)
    inodes = cached.stat().st_ino, other.stat().st_ino
    assert inode not in inodes

    catalogs = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.arrow")}
    for file in files:
        file.chmod(0o640)
        os.link(file, tmp_path / f"link to {file.name}")
    assert other.read_bytes().endswith(data_of(2)[1])
    reload(mounted)
    assert other.read_bytes().endswith(data_of(2)[1])
    assert (cached.stat().st_ino, other.stat().st_ino) == inodes
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.arrow")} == catalogs
    assert mounted.info()["internal_errors"] == 0
