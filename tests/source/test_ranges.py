"""Ranges that are read with few calls are the bytes that one call each would give."""

import random

import numpy as np
import pytest

from touchfs.source.ranges import BLOCK, SMALL, read_ranges

DATA = random.Random(1).randbytes(1 << 20)


class Source:
    """Bytes that count how often they are asked for, and how many are asked for at once."""

    def __init__(self) -> None:
        self.reads: list[int] = []

    def read(self, offset: int, length: int) -> bytes:
        assert 0 <= offset <= offset + length <= len(DATA)
        self.reads.append(length)
        return DATA[offset : offset + length]

    read_nowait = read


@pytest.mark.parametrize("seed", range(20))
def test_any_ranges_in_any_order(seed: int) -> None:
    dice = np.random.default_rng(seed)
    largest = dice.choice([1, 100, SMALL, 4 * SMALL])
    lengths = dice.integers(0, largest, 300, endpoint=True)
    offsets = dice.integers(0, dice.choice([1, 5000, len(DATA) - largest]), 300)
    source = Source()
    found = read_ranges(source, offsets, lengths)
    assert found == [DATA[o : o + n] for o, n in zip(offsets.tolist(), lengths.tolist(), strict=True)]
    assert all(type(each) is bytes for each in found)
    assert max(source.reads) <= max(BLOCK + SMALL, largest)


def test_small_neighbours_are_read_at_once_and_large_ones_alone() -> None:
    for size, reads in (100, 1), (2 * SMALL, 10):
        source = Source()
        read_ranges(source, np.arange(10)[::-1] * (size + 500), np.full(10, size))
        assert len(source.reads) == reads
