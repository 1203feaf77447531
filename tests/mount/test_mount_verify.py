"""A mount with --verify shows no bytes that differ from their checksums."""

import errno
import os
from pathlib import Path

import pytest
from damage import flip_byte
from mounts import touchfs
from small_disks import refused
from tars import write_tar

from touchfs.indexing import open_dataset
from touchfs.verify.checksums import checksums_path

SMALL = {f"{name}.txt": name.encode() * 5000 for name in "abc"}
LARGE = 70 << 20


@pytest.fixture
def source(tmp_path):
    place = tmp_path / "set"
    write_tar(place / "small.tar", SMALL)
    assert touchfs("verify", "--write", place).returncode == 0
    return place


@pytest.mark.parametrize("workers", [2, pytest.param(1, marks=pytest.mark.variant)])
def test_what_is_damaged_cannot_be_read(mount, source, workers):
    flip_byte(source / "small.tar", 512 + 5000 + 1)  # of a.txt, which is followed by zeros up to a whole block
    flip_byte(source / "small.tar", 512 + 7)
    mounted = mount(source, "--verify", "--workers", workers)
    files = mounted.path / "shards" / "small"
    for _ in range(3):
        assert refused((files / "a.txt").read_bytes) == "EIO"
        assert refused((mounted.path / "by-key" / "a.txt").read_bytes) == "EIO"
        assert (files / "b.txt").read_bytes() == SMALL["b.txt"]
    assert (
        "shards/small/a.txt: damaged: its 5000 bytes have the checksum"
        in (mounted.path / ".touchfs/errors").read_text()
    )


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A shard of large files, with checksums. One is damaged at its end, one at its beginning, and one not."""
    place = tmp_path_factory.mktemp("large")
    write_tar(place / "large.tar", {"end.bin": bytes(LARGE), "begin.bin": b"b" * LARGE, "good.bin": b"y" * LARGE})
    assert touchfs("verify", "--write", place).returncode == 0
    flip_byte(place / "large.tar", 512 + LARGE - 1)
    flip_byte(place / "large.tar", 512 + LARGE + 512 + 1)
    return place


@pytest.mark.parametrize("workers", [2, pytest.param(1, marks=pytest.mark.variant)])
def test_large_files_are_compared_while_they_are_read(mount, large, workers):
    """The end of one is not shown before that: readers of ZIP and Parquet begin there, and then the kernel has it for
    all others.
    """
    mounted = mount(large, "--verify", "--workers", workers)
    files = mounted.path / "shards" / "large"
    with open(files / "end.bin", "rb") as file:
        assert file.read(1000) == bytes(1000)  # nobody knows yet
        with pytest.raises(OSError) as failed:
            while file.read(1 << 20):
                pass
        assert failed.value.errno == errno.EIO
    assert refused((files / "end.bin").read_bytes) == "EIO"
    named = (mounted.path / ".touchfs/errors").read_text().splitlines()
    assert named and all(
        f" shards/large/end.bin: damaged: its {LARGE} bytes have the checksum " in line for line in named
    )
    with open(files / "good.bin", "rb") as file:
        file.seek(-100_000, os.SEEK_END)
        assert file.read() == b"y" * 100_000
    with open(files / "begin.bin", "rb") as file:
        file.seek(-100_000, os.SEEK_END)
        with pytest.raises(OSError) as failed:
            file.read()
        assert failed.value.errno == errno.EIO
    assert refused((files / "begin.bin").read_bytes) == "EIO"
    for _ in range(2):
        assert (files / "good.bin").read_bytes() == b"y" * LARGE


def test_without_checksums_it_is_refused(source, tmp_path):
    write_tar(source / "new.tar", SMALL)
    done = touchfs("mount", source, tmp_path / "mnt", "--verify")
    assert done.returncode == 2
    assert done.stderr == (
        f"touchfs: {source}: --verify: 1 shard without checksums, new for one: `touchfs verify --write` writes them\n"
    )


def test_checksums_of_another_version_do_not_count(mount, source, tmp_path):
    """Who changes a byte changes the time of the shard, too: its checksums are there, but nothing compares them."""
    log = tmp_path / "log"
    mounted = mount(source, "--verify", "--log-file", log)
    with open(source / "small.tar", "r+b") as shard:
        shard.seek(512 + 7)
        shard.write(b"X")
    done = touchfs("mount", source, tmp_path / "other", "--verify")
    assert done.returncode == 2
    assert "--verify: 1 shard without checksums, small for one" in done.stderr
    assert touchfs("reload", mounted.path).returncode == 0
    assert "shards without checksums, which are not verified: small" in log.read_text()
    done = touchfs("verify", source)
    assert done.returncode == 1
    assert "shards/small: was changed after its checksums were written" in done.stdout


def test_damaged_checksums_let_no_file_be_read(mount, source):
    checksums = Path(checksums_path(open_dataset(str(source)).shards[0]))
    checksums.write_bytes(checksums.read_bytes()[:100])
    mounted = mount(source, "--verify")
    assert refused((mounted.path / "shards" / "small" / "a.txt").read_bytes) == "EIO"


def test_a_new_shard_is_shown_and_the_log_says_that_it_is_not_verified(mount, source, tmp_path):
    log = tmp_path / "log"
    mounted = mount(source, "--verify", "--log-file", log)
    write_tar(source / "new.tar", SMALL)
    assert touchfs("reload", mounted.path).returncode == 0
    assert (mounted.path / "shards/new/a.txt").read_bytes() == SMALL["a.txt"]
    assert "shards without checksums, which are not verified: new" in log.read_text()
