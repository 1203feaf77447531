"""Batches of rows that a process has read from Arrow files, so that the next row of a batch does not read it again."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow

KEPT_BYTES = 1 << 26


class KeptBatches:
    """The last batches that were added, `KEPT_BYTES` of them, and at least one. Safe for any number of threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, pyarrow.RecordBatch] = OrderedDict()
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> pyarrow.RecordBatch | None:
        """The batch of a key, or None."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def add(self, key: Hashable, batch: pyarrow.RecordBatch) -> None:
        """Keep a batch, and drop those that were not asked for the longest."""
        with self._lock:
            self._kept[key] = batch
            while len(self._kept) > 1 and sum(each.nbytes for each in self._kept.values()) > KEPT_BYTES:
                self._kept.popitem(last=False)


# Of all files of this process.
BATCHES = KeptBatches()
