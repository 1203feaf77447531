"""The pool of decoders that all of a process shares, made when it is first needed."""

from __future__ import annotations

import atexit
import os

from touchfs.media.decoder.pool import DecodePool

# One for each processor. Each takes 30 MB.
CHILDREN = min(os.cpu_count() or 1, 8)

_pools: dict[float, DecodePool] = {}


def shared_pool(timeout: float) -> DecodePool:
    """The pool of this process whose requests may take `timeout` seconds. A process nearly always has one limit.

    A process that forks does not share its children, and they end with it.
    """
    pool = _pools.get(timeout)
    return pool if pool is not None else _pools.setdefault(timeout, DecodePool(CHILDREN, timeout))


@atexit.register
def _close() -> None:
    for pool in _pools.values():
        pool.close()
