"""How the bytes of files are divided into chunks, each of which is in blocks of the image or of a device.

A member of a tar is one chunk. So is a whole file if its last block is full. Else its last chunk is copied into the
image. The shorter its chunks are, the less is copied, and the more indexes it has: they have the size with which both
together take the fewest bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from touchfs.format.erofs.layout import BLOCK, BLOCK_BITS, CHUNK_BITS_MAX, CHUNK_INDEX

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """For each file, how many chunks it has, and the base-2 logarithm of the number of blocks in one, `bits`."""

    bits: Numbers
    counts: Numbers

    @classmethod
    def of(cls, sizes: Numbers, are_copied: NDArray[np.bool_]) -> Chunks:
        """Those of files, of which some have a copy of their last chunk."""
        blocks = np.maximum((sizes + BLOCK - 1) >> BLOCK_BITS, 1)
        # frexp is exact below 2**53: the bits of blocks - 1
        bits = np.frexp((blocks - 1).astype(np.float64))[1].astype(np.int64)
        bits[are_copied] = _shortest(blocks[are_copied])
        return cls(bits, _count(blocks, bits))


def copied_sizes(sizes: Numbers) -> Numbers:
    """The bytes of the last chunk of each whole file, which are copied; 0 if its last block is full."""
    has_copy = sizes % BLOCK > 0
    chunks = Chunks.of(sizes, has_copy)
    return np.where(has_copy, sizes - ((chunks.counts - 1) << chunks.bits + BLOCK_BITS), 0)


def _shortest(blocks: Numbers) -> Numbers:
    """The bits with which the indexes and the copies of files of so many blocks take the fewest bytes."""
    values, places = np.unique(blocks, return_inverse=True)
    bits = np.arange(CHUNK_BITS_MAX + 1)[:, None]
    counts = _count(values, bits)
    copied = values - ((counts - 1) << bits)
    best: Numbers = (counts * CHUNK_INDEX.itemsize + copied * BLOCK).argmin(axis=0)[places]
    return best


def _count(blocks: Numbers, bits: Numbers) -> Numbers:
    return (blocks + (1 << bits) - 1) >> bits
