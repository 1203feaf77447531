"""Ids as bytes, end to end.

An id is hashed by NH, the universal hash of UMAC (RFC 4418), with keys that follow from the content of the list. So
nobody can choose ids of one hash without finding a list whose own hash allows it, and NumPy hashes 10 million in a few
seconds. Equal hashes do not mean equal ids: the bytes are compared, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Of an id, in bytes
SIZE_MAX = 1 << 16
_WORD = 8
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


class PackedIds(NamedTuple):
    """Ids: where each one starts in `data`, and its length. Arrays of shape (n,)."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, values: Sequence[bytes]) -> PackedIds:
        """These ids."""
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        return cls(np.frombuffer(b"".join(values), np.uint8), np.cumsum(lengths) - lengths, lengths)

    @classmethod
    def of_equal(cls, rows: NDArray[np.uint8]) -> PackedIds:
        """Ids of one length, as rows of shape (n, length)."""
        count, size = rows.shape
        return cls(rows.reshape(-1), np.arange(count) * size, np.full(count, size))

    def at(self, place: int) -> bytes:
        """The id at a place."""
        start = int(self.starts[place])
        return self.data[start : start + int(self.lengths[place])].tobytes()

    def taken(self, places: NDArray[np.int64]) -> PackedIds:
        """The ids at these places, in this order, with nothing between them."""
        starts, lengths = self.starts[places], self.lengths[places]
        ends = np.cumsum(lengths)
        made = PackedIds(np.empty(int(ends[-1]) if len(ends) else 0, np.uint8), ends - lengths, lengths)
        for length, rows in _by_length(lengths):
            if length:
                _windows(made.data, length)[made.starts[rows]] = _windows(self.data, length)[starts[rows]]
        return made

    def hashes(self, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """The hash of each id, shape (n,)."""
        padded = np.append(self.data, np.zeros(_WORD, np.uint8))
        words: NDArray[np.uint64] = np.ndarray((len(padded) - _WORD + 1,), "<u8", padded.data, strides=(1,))
        found: NDArray[np.uint64] = self.lengths.astype(np.uint64) * keys[-1]
        rows = np.arange(len(found))
        for number in range(-(-int(self.lengths.max(initial=0)) // _WORD)):
            rows = rows[self.lengths[rows] > number * _WORD]
            left = self.lengths[rows] - number * _WORD
            word = words[self.starts[rows] + number * _WORD]
            if (is_last := left < _WORD).any():
                unused = (_WORD * (_WORD - left[is_last])).astype(np.uint64)
                word[is_last] = word[is_last] << unused >> unused
            low = (word & _LOW) + keys[2 * number] & _LOW
            high = (word >> _HALF) + keys[2 * number + 1] & _LOW
            found[rows] += low * high
        # The upper bits choose the part of the list, so they depend on all others (the end of MurmurHash3).
        found ^= found >> np.uint64(33)
        found *= np.uint64(0xFF51AFD7ED558CCD)
        found ^= found >> np.uint64(33)
        return found


def hash_keys(seed: bytes) -> NDArray[np.uint64]:
    """The keys of hashes: two of 32 bits for each word of an id, and one for its length."""
    count = 2 * (SIZE_MAX // _WORD) + 1
    drawn = np.frombuffer(hashlib.shake_128(seed).digest(4 * count), "<u4").astype(np.uint64)
    drawn[-1] |= np.uint64(1)
    return drawn


def _by_length(lengths: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
    """Each length, and where it is."""
    if len(lengths) and (lengths == lengths[0]).all():
        return [(int(lengths[0]), np.arange(len(lengths)))]
    order = np.argsort(lengths, kind="stable")
    distinct, firsts = np.unique(lengths[order], return_index=True)
    return list(zip(distinct.tolist(), np.split(order, firsts[1:]), strict=False))


def _windows(data: NDArray[np.uint8], length: int) -> NDArray[np.void]:
    """All pieces of this length, by where they start: NumPy copies each at once."""
    return np.ndarray((len(data) - length + 1,), f"V{length}", data.data, strides=(1,))
