"""Hashes of ids.

An id is hashed by NH, the universal hash of UMAC (RFC 4418), with keys that follow from the content of the list. So
nobody can choose ids of one hash without finding a list whose own hash allows it, and NumPy hashes 10 million in half
a second. Equal hashes do not mean equal ids: the bytes are compared, too.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from touchfs.core.packed_bytes import PackedBytes

# Of an id, in bytes
SIZE_MAX = 1 << 16
_WORD = 8
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
# Ids whose intermediate results fit into the processor's cache
_BLOCK = 1 << 13


def hash_keys(seed: bytes) -> NDArray[np.uint64]:
    """The keys of hashes: two of 32 bits for each word of an id, and one for its length."""
    count = 2 * (SIZE_MAX // _WORD) + 1
    drawn = np.frombuffer(hashlib.shake_128(seed).digest(4 * count), "<u4").astype(np.uint64)
    drawn[-1] |= np.uint64(1)
    return drawn


def hashes_of(ids: PackedBytes, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The hash of each id, shape (n,). None is longer than `SIZE_MAX`."""
    found = np.empty(len(ids.lengths), np.uint64)
    for first in range(0, len(found), _BLOCK):
        block = slice(first, first + _BLOCK)
        found[block] = _hashes(ids.chosen(block), keys)
    return found


def _hashes(ids: PackedBytes, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    found: NDArray[np.uint64] = ids.lengths.astype(np.uint64) * keys[-1]
    for number, (places, words) in enumerate(ids.words()):
        low = (words & _LOW) + keys[2 * number] & _LOW
        high = (words >> _HALF) + keys[2 * number + 1] & _LOW
        found[places] += low * high
    # The upper bits choose the part of the list, so they depend on all others (the end of MurmurHash3).
    found ^= found >> np.uint64(33)
    found *= np.uint64(0xFF51AFD7ED558CCD)
    found ^= found >> np.uint64(33)
    return found
