"""Samples of files: which blocks they are of."""

from itertools import pairwise

import pytest

from touchfs.source.fingerprint import Fingerprint, build_files, parse_files, sample_of

BLOCK, MOST = 4096, 64


def reads_of(size: int) -> list[tuple[int, int]]:
    reads = []

    def read(offset, length):
        reads.append((offset, length))
        return bytes(length)

    sample_of(read, size)
    return reads


@pytest.mark.parametrize("size", [0, 1, BLOCK, MOST * BLOCK])
def test_a_small_file_is_read_as_a_whole(size):
    assert reads_of(size) == [(0, size)]


@pytest.mark.parametrize("size", [MOST * BLOCK + 1, MOST * BLOCK + 5000, 10**7, 3 * 10**12])
def test_a_large_one_at_its_ends_and_in_each_part_between(size):
    reads = reads_of(size)
    offsets = [offset for offset, _ in reads]
    assert (len(reads), {length for _, length in reads}) == (MOST, {BLOCK})
    assert (offsets[0], offsets[-1]) == (0, size - BLOCK)
    assert offsets == sorted(offsets)
    assert max(after - before for before, after in pairwise(offsets)) <= 2 * size / 62 + BLOCK
    assert reads_of(size) == reads


def test_neither_the_ctime_nor_the_sample_is_a_part_of_the_version():
    first, second = Fingerprint(7, 1, 2, ctime_ns=3, sample="a"), Fingerprint(7, 1, 2, ctime_ns=4)
    assert first == second
    assert first.hashed == second.hashed
    stored = parse_files(build_files({"a": first}))["a"]
    assert (stored.ctime_ns, stored.sample) == (3, "a")
