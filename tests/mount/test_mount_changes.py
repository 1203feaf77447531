"""Data that changes under a mount: errors, never other bytes; the rest goes on; mounting again serves what is there."""

import errno
import os
import time
from pathlib import Path

import pytest
from mounts import SPEECH, outcome, samples_of, touchfs
from waiting import wait_until

from touchfs.source.local import VERIFY_SECONDS

MONDAY, TUESDAY = "shards/000000000/talks/monday.wav", "shards/000000000/talks/tuesday.wav"


def replace(file: Path) -> None:
    """By other bytes, as many."""
    new = file.with_suffix(".new")
    new.write_bytes(bytes(byte ^ 0xFF for byte in file.read_bytes()))
    new.replace(file)


def overwrite(file: Path) -> None:
    with open(file, "r+b") as opened:
        opened.write(bytes(byte ^ 0xFF for byte in file.read_bytes()))


def truncate(file: Path) -> None:
    os.truncate(file, 1000)


def grow(file: Path) -> None:
    with open(file, "ab") as opened:
        opened.write(b"more")


CHANGES = [replace, overwrite, truncate, grow, Path.unlink]


@pytest.mark.parametrize(
    ("change", "read_before"),
    [
        pytest.param(
            change,
            read_before,
            id=f"{change.__name__}-{'read' if read_before else 'unread'}",
            marks=[] if read_before == place % 2 else [pytest.mark.variant],
        )
        for place, change in enumerate(CHANGES)
        for read_before in (False, True)
    ],
)
def test_a_bin_that_changes_is_an_error(mount, copied, change, read_before):
    mounted = mount(copied)
    path, other = mounted.path / MONDAY, mounted.path / "shards" / "000000001"
    right, names = (SPEECH / "wav" / "01.wav").read_bytes(), sorted(os.listdir(other))
    untouched = {file: file.read_bytes() for file in mounted.files() if other in file.parents}
    if read_before:
        assert path.read_bytes() == right
    change(copied / "000000000" / "audio.bin")
    if read_before:
        assert path.read_bytes() == right  # the kernel keeps it
        if change is overwrite:
            time.sleep(VERIFY_SECONDS)  # until then the other bytes may be visible
    seen = set()

    def is_an_error() -> bool:
        # Files are looked at once a second at most.
        seen.add(outcome(path))
        return bool(seen & {"ESTALE", "EIO"})

    wait_until(is_an_error)
    assert seen - {"ESTALE", "EIO"} <= ({right} if read_before else set())
    assert outcome(mounted.path / TUESDAY) in ("ESTALE", "EIO")
    assert path.stat().st_size == len(right)
    assert path.with_suffix(".txt").read_text() == "Good morning. This is a talk."
    assert sorted(os.listdir(other)) == names
    assert {file: file.read_bytes() for file in untouched} == untouched
    assert mounted.info()["internal_errors"] == 0


def test_reads_of_an_open_file_fail_when_its_shard_is_cut(mount, zoo, tmp_path):
    """No page of it is cached, and no other bytes are made up."""
    shard = tmp_path / "shards" / "mixed"
    shard.mkdir(parents=True)
    for file in (zoo / "mixed").iterdir():
        (shard / file.name).write_bytes(file.read_bytes())
    mounted = mount(shard.parent)
    with open(mounted.path / "shards/mixed/long/noise.wav", "rb", 0) as file:
        os.truncate(shard / "audio.bin", 30_000)
        with pytest.raises(OSError) as caught:
            os.pread(file.fileno(), 1000, 1_000_000)
    assert caught.value.errno in (errno.EIO, errno.ESTALE)


def test_mounting_again_serves_the_new_shard(mount, copied):
    mounted = mount(copied)
    path = mounted.path / MONDAY
    before, inode = path.read_bytes(), path.stat().st_ino
    replace(copied / "000000000" / "audio.bin")
    wait_until(lambda: outcome(path) == "ESTALE")
    assert touchfs("umount", mounted.path).returncode == 0
    again = mount(copied)
    assert path.read_bytes()[:44] == before[:44]
    assert path.read_bytes()[44:] == samples_of(copied / "000000000", "audio")[0] != before[44:]
    assert path.stat().st_ino != inode
    assert again.info()["shards_with_errors"] == []
