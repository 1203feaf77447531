"""A buffer for reads that is used again as soon as nothing refers to the bytes of the read before.

To allocate 128 KiB for each read takes up to 4 µs, as the kernel has to map and to clear the pages each time. Most
reads are copied into a reply before the next one begins.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any

import numpy as np
from numpy.typing import NDArray

BUFFER_SIZE, KEPT_MAX = 1 << 17, 1 << 20


def _take(kept: list[NDArray[Any]]) -> tuple[NDArray[Any], int]:
    """Take the last buffer, and count the references to it. Raises IndexError if there is none."""
    buffer = kept.pop()
    return buffer, getrefcount(buffer)


# The count for a buffer without views; each view adds one. It is not the same in all versions of Python.
_, _UNUSED = _take([np.empty(1, np.uint8)])


class ReusedBuffer:
    """Safe for any number of threads: one that takes the buffer while another one is about to makes a new one."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[NDArray[Any]] = []

    def view(self, length: int) -> memoryview:
        """A view of `length` bytes of any value, which no other view shares while it lives."""
        if length > KEPT_MAX:
            return np.empty(length, np.uint8).data
        try:
            buffer, references = _take(self._kept)
        except IndexError:
            buffer, references = np.empty(BUFFER_SIZE, np.uint8), _UNUSED
        if references > _UNUSED or len(buffer) < length:
            buffer = np.empty(max(length, BUFFER_SIZE), np.uint8)
        view = buffer.data[:length]
        self._kept.append(buffer)
        return view
