"""A seeded permutation of n ordinals in constant memory, computable at any position in both directions.

Six rounds of a balanced Feistel network permute the smallest even number of bits that holds n; a result of n or more
is permuted again until it is less ("cycle walking"), at most four times on average. Round function and `round_keys` are
those of Lhotse's shuffled range, so a seed gives the same order. Seeds are taken modulo 2**32.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

ROUNDS = 6
# Ordinals permuted at a time: three such arrays, of eight bytes an ordinal, stay in the processor's cache.
BLOCK = 1 << 14


@lru_cache(maxsize=64)
def round_keys(seed: int) -> tuple[int, ...]:
    """Return the keys of the rounds, drawn as Lhotse draws them."""
    random = np.random.RandomState(seed & 0xFFFFFFFF)
    return tuple(int(random.randint(0, 2**63, dtype=np.int64)) for _ in range(ROUNDS))


class Feistel:
    """The permutation of `size` ordinals that keys make, as many as `ROUNDS`.

    They are integers, or an array of shape `(ROUNDS, n)` with other keys for each of the n numbers in a call.
    """

    __slots__ = ("_half", "_keys", "_mask", "size")

    def __init__(self, size: int, keys: tuple[int, ...] | NDArray[np.uint64]) -> None:
        self.size = size
        self._half = max(1, (max(size - 1, 0).bit_length() + 1) // 2)
        self._mask = np.uint64((1 << self._half) - 1)
        self._keys = np.asarray(keys, np.uint64).reshape(ROUNDS, -1)

    def __call__(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ordinals at these positions, an array of the same shape `(n,)`."""
        return self._walk(positions, self._keys, swap=False)

    def inverse(self, ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of these ordinals: the same rounds in reverse order, with the halves swapped."""
        return self._walk(ordinals, self._keys[::-1], swap=True)

    def _walk(self, values: NDArray[np.int64], keys: NDArray[np.uint64], swap: bool) -> NDArray[np.int64]:
        result = np.empty(len(values), np.int64)
        # What the rounds make of each half, if many numbers of the same keys have few of them.
        made: list[NDArray[np.int64]] = []
        if keys.shape[1] == 1 and 1 << self._half <= len(values):
            halves = np.arange(1 << self._half, dtype=np.uint64)
            made = [_round(halves, key, self._mask).view(np.int64) for key in keys]
        for start in range(0, len(values), BLOCK):
            part = slice(start, start + BLOCK)
            its = keys if keys.shape[1] == 1 else keys[:, part]
            block = self._cipher(values[part], its, made, swap)
            outside = np.flatnonzero(block >= self.size)
            while len(outside):
                theirs = its if its.shape[1] == 1 else its[:, outside]
                block[outside] = again = self._cipher(block[outside], theirs, made, swap)
                outside = outside[again >= self.size]
            result[part] = block
        return result

    def _cipher(
        self, x: NDArray[np.int64], keys: NDArray[np.uint64], made: list[NDArray[np.int64]], swap: bool
    ) -> NDArray[np.int64]:
        left, right = x >> self._half, x & int(self._mask)
        if swap:
            left, right = right, left
        for number, key in enumerate(keys):
            h = made[number][right] if made else _round(right.view(np.uint64), key, self._mask).view(np.int64)
            np.bitwise_xor(left, h, out=left)
            left, right = right, left
        if swap:
            left, right = right, left
        return (left << self._half) | right


def _round(right: NDArray[np.uint64], key: NDArray[np.uint64], mask: np.uint64) -> NDArray[np.uint64]:
    """Return what a round mixes into the other half."""
    u = np.uint64
    h = right ^ key
    np.multiply(h, u(2654435761), out=h)
    shifted = h >> u(17)
    np.bitwise_xor(h, shifted, out=h)
    np.multiply(h, u(0xBF58476D1CE4E5B9), out=h)
    np.right_shift(h, u(31), out=shifted)
    np.bitwise_xor(h, shifted, out=h)
    np.bitwise_and(h, mask, out=h)
    return h
