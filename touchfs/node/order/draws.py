"""Random numbers that can be continued anywhere: the state is how many were drawn.

Philox is a cipher of a counter, so the k-th block of numbers for a (seed, epoch) is computed directly.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

# Numbers made at a time: making a generator costs as much as making some hundred numbers.
BLOCK = 256
WORD = (1 << 64) - 1


def draws(seed: int, epoch: int, start: int) -> Iterator[float]:
    """Numbers in [0, 1), without end, from the `start`-th on."""
    key = (seed & WORD) | (epoch & WORD) << 64
    block, skip = divmod(start, BLOCK)
    while True:
        # One step of the counter makes four numbers.
        words = np.random.Philox(key=key, counter=block * (BLOCK // 4)).random_raw(BLOCK)
        yield from ((words[skip:] >> np.uint64(11)) * 2.0**-53).tolist()
        block, skip = block + 1, 0
