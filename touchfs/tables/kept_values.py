"""A cache of what a process has read from tables: batches of rows, and the byte ranges of cells."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    import pyarrow

KEPT_BYTES = 1 << 26


class Measured(Protocol):
    """A value that says how many bytes it takes."""

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory it takes."""
        ...


T = TypeVar("T", bound=Measured)


class KeptValues(Generic[T]):
    """The last values that were added, `KEPT_BYTES` of them, and at least one. Safe for any number of threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, T] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> T | None:
        """The value of a key, or None."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def add(self, key: Hashable, value: T) -> None:
        """Keep a value, and drop those that were not asked for the longest."""
        with self._lock:
            before = self._kept.pop(key, None)
            self._size += value.nbytes - (0 if before is None else before.nbytes)
            self._kept[key] = value
            while len(self._kept) > 1 and self._size > KEPT_BYTES:
                _, oldest = self._kept.popitem(last=False)
                self._size -= oldest.nbytes


# Of all Arrow files of this process.
BATCHES: KeptValues[pyarrow.RecordBatch] = KeptValues()
