"""More shards than a process may have files open, through a mount and without one."""

import resource
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from command import INSTALLED
from mounts import touchfs

SHARDS, LIMIT = 150, 128
FEW = 64


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> Path:
    """Shards of one sample each: token ids that tell their shard."""
    root = tmp_path_factory.mktemp("many") / "shards"
    index = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 4, 1, 2) + struct.pack("<iqqq", 1, 0, 0, 1)
    for shard in range(SHARDS):
        directory = root / f"{shard:09d}"
        directory.mkdir(parents=True)
        (directory / "texttoken.bin").write_bytes(struct.pack("<i", shard))
        (directory / "texttoken.idx").write_bytes(index)
    return root


def few_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))


def numbers(root: Path) -> list[int]:
    return [number_in(path) for path in sorted(root.glob("shards/*/*.npy"))]


def number_in(path: Path) -> int:
    return struct.unpack("<i", path.read_bytes()[-4:])[0]


def test_a_mount_with_few_descriptors_serves_them_all(many, tmp_path):
    made = subprocess.run([INSTALLED, "mount", many, tmp_path / "m"], preexec_fn=few_descriptors, check=True)
    assert made.returncode == 0
    try:
        assert numbers(tmp_path / "m") == list(range(SHARDS))
        assert [number_in(path) for path in sorted((tmp_path / "m").glob("shards/*5/*.npy"))] == [*range(5, SHARDS, 10)]
    finally:
        assert touchfs("umount", tmp_path / "m").returncode == 0


def test_a_mount_with_hardly_any_serves_many_readers_and_steps(many, tmp_path):
    """Half of them are not for data, when that leaves too few for the worker itself."""
    point = tmp_path / "m"
    command = ["sh", "-c", f'ulimit -n {FEW} && exec "$@"', "sh", INSTALLED, "mount", many, point]
    subprocess.run([*command, "--state-dir", tmp_path / "state"], check=True)
    try:
        (point / ".touchfs/iterators/train").mkdir()
        paths = sorted(point.glob("shards/*/*.npy"))
        with ThreadPoolExecutor(16) as threads:
            read = threads.map(number_in, paths[::2] * 2)
            for path in paths[:FEW]:
                assert (point / ".touchfs/iterators/train/next").read_text() == f"{path}\n"
            assert list(read) == [*range(0, SHARDS, 2)] * 2
        assert (point / ".touchfs/errors").read_text() == ""
    finally:
        assert touchfs("umount", point).returncode == 0


def test_a_copy_without_a_mount_too(many, tmp_path):
    subprocess.run([INSTALLED, "cp", "-r", f"{many}:", tmp_path / "copy"], preexec_fn=few_descriptors, check=True)
    assert numbers(tmp_path / "copy") == list(range(SHARDS))
