"""Reads that the loop answers at once and reads that wait for a thread take turns, and none gets bytes of another."""

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tars import write_tar
from touchfs_mount.requests.tree_answers import CONTENTS_KEPT

THREADS, SECONDS = 6, 1.2
# The pages of the mount's files are dropped before each read, so each read is a request.
SIZE = 9000


def test_reads_of_many_files_by_many_threads(mount, tmp_path):
    """More files than a worker keeps contents of; each second a read waits until its shard is verified again."""
    names = [f"{number:05d}.bin" for number in range(CONTENTS_KEPT + 500)]
    source = tmp_path / "many.tar"
    content = [random.Random(number).randbytes(SIZE) for number in range(16)]
    write_tar(source, {name: _bytes_of(number, content) for number, name in enumerate(names)})
    directory = mount(source).path / "shards" / "many"
    assert sorted(os.listdir(directory)) == names
    until = time.monotonic() + SECONDS

    def read_at_random(seed: int) -> int:
        chance, reads = random.Random(seed), 0
        while not reads or time.monotonic() < until:
            number = chance.randrange(len(names))
            reads += _is_right(directory / names[number], _bytes_of(number, content), chance.randrange(SIZE))
        return reads

    with ThreadPoolExecutor(THREADS) as threads:
        done = list(threads.map(read_at_random, range(THREADS)))
    assert all(done)
    # All of them once, so that the first contents are evicted.
    assert all(_is_right(directory / name, _bytes_of(number, content), 0) for number, name in enumerate(names))
    assert all(_is_right(directory / names[number], _bytes_of(number, content), 4096) for number in range(50))


def _bytes_of(number: int, content: list[bytes]) -> bytes:
    return number.to_bytes(8, "little") + content[number % len(content)][8:]


def _is_right(path: Path, expected: bytes, offset: int) -> bool:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        assert os.pread(descriptor, SIZE, offset) == expected[offset:]
        return True
    finally:
        os.close(descriptor)
