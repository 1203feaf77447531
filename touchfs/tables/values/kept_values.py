"""Caches of what a process has read from tables: batches of rows, and the byte ranges of cells."""

from __future__ import annotations

from collections.abc import Hashable
from operator import attrgetter
from typing import TYPE_CHECKING

from touchfs.posix.bounded_cache import BoundedCache

if TYPE_CHECKING:
    import pyarrow

# Of each cache, and how many of them a value takes.
KEPT_BYTES, NBYTES = 1 << 26, attrgetter("nbytes")

# Of all Arrow files of this process.
BATCHES: BoundedCache[Hashable, pyarrow.RecordBatch] = BoundedCache(KEPT_BYTES, NBYTES)
