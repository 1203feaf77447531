"""Random numbers that can be resumed anywhere: the state is the count of numbers drawn so far.

Philox encrypts a counter, so the k-th block of numbers for a (seed, epoch) is computed directly.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

# Numbers per generator: constructing one costs as much as some hundred numbers.
BLOCK = 256
WORD = (1 << 64) - 1


def draws(seed: int, epoch: int, start: int) -> Iterator[float]:
    """Yield endless numbers in [0, 1) for a (seed, epoch), from number `start` on."""
    key = (seed & WORD) | (epoch & WORD) << 64
    block, skip = divmod(start, BLOCK)
    while True:
        # Each value of the counter yields four numbers.
        words = np.random.Philox(key=key, counter=block * (BLOCK // 4)).random_raw(BLOCK)
        yield from ((words[skip:] >> np.uint64(11)) * 2.0**-53).tolist()
        block, skip = block + 1, 0
