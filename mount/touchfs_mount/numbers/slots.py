"""The counters of a mount, in memory that all its processes share.

Each worker has a *slot* of 64-bit cells, and only that worker writes it, so there is no lock. A worker adds to what the
worker of the same number before it has left there: so nothing has to be moved when a worker ends, no counter ever goes
back, and a killed worker loses at most the update that it was making. The supervisor has a slot of its own.

A reader sums the slots. A request is written in two cells, so a reader may see one of them before the other.
"""

from __future__ import annotations

import errno
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from touchfs.posix.memory.shared import shared_cells
from touchfs.source.counts import COUNTS

# What either connection of a mount is asked for: its data, or its control files, which alone are opened and written.
# `Slot.record` takes the position of an operation in this tuple.
OPERATIONS = (
    "lookup",
    "getattr",
    "readlink",
    "open",
    "read",
    "release",
    "opendir",
    "readdir",
    "getxattr",
    "listxattr",
    "statfs",
    "flush",
    "write",
    "mkdir",
    "rmdir",
    "setattr",
    "create",
    "link",
    "mknod",
    "removexattr",
    "rename",
    "setxattr",
    "symlink",
    "unlink",
)
# The errnos that are counted by themselves. All others are one.
ERRNOS = (
    errno.ENOENT,
    errno.EIO,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EINVAL,
    errno.EEXIST,
    errno.ENOSPC,
    errno.ENODATA,
    errno.ENAMETOOLONG,
)

# A request of n ns is counted in the bucket of the number of bits of (n - 1) >> BUCKET_SHIFT. So bucket i ends at
# 2**(BUCKET_SHIFT + i) ns, from 1 µs on, and 54 buckets are enough for any 64-bit number.
BUCKET_SHIFT = 10
BUCKETS = 64 - BUCKET_SHIFT
# The cells of an operation: the sum of nanoseconds, and the buckets. A power of two makes a shift of the product.
_WIDTH_BITS = 6
_WIDTH = 1 << _WIDTH_BITS

_ERRORS = len(OPERATIONS) << _WIDTH_BITS
_READ_BYTES = _ERRORS + len(ERRNOS) + 1
_SUPERVISOR = _READ_BYTES + 1
_COUNTS = _SUPERVISOR + 2
_CELLS = _COUNTS + len(COUNTS)
_ERROR_CELLS = {number: _ERRORS + i for i, number in enumerate(ERRNOS)}


class SupervisorCount(IntEnum):
    """The counts of the supervisor: workers that replaced one that failed, and strikes."""

    RESTARTS = 0
    STRIKES = 1


class Slot:
    """The cells of one process, which alone writes them."""

    __slots__ = ("_cells", "counts")

    def __init__(self, cells: memoryview[int]) -> None:
        self._cells = cells
        self.counts = cells[_COUNTS:]  # for `touchfs.source.counts.share`

    def record(self, operation: int, nanoseconds: int) -> None:
        """Count a request that was answered, and the time from its arrival to its answer."""
        cells, place = self._cells, operation << _WIDTH_BITS
        cells[place] += nanoseconds
        cells[place + 1 + (nanoseconds - 1 >> BUCKET_SHIFT).bit_length()] += 1

    def add_read(self, size: int) -> None:
        """Count bytes that a read returned."""
        self._cells[_READ_BYTES] += size

    def add_error(self, number: int) -> None:
        """Count an errno that a request got."""
        self._cells[_ERROR_CELLS.get(number, _ERRORS + len(ERRNOS))] += 1

    def add(self, count: SupervisorCount, amount: int = 1) -> None:
        self._cells[_SUPERVISOR + count] += amount


class Totals:
    """The sums of all slots at one moment."""

    def __init__(self, cells: npt.NDArray[np.int64]) -> None:
        self._cells: list[int] = cells.tolist()

    def requests(self, operation: int) -> tuple[list[int], int]:
        """The requests of an operation in each bucket, and the sum of their nanoseconds."""
        place = operation << _WIDTH_BITS
        return self._cells[place + 1 : place + 1 + BUCKETS], self._cells[place]

    @property
    def errors(self) -> list[int]:
        """How often requests got each of `ERRNOS`, and then any other one."""
        return self._cells[_ERRORS:_READ_BYTES]

    @property
    def read_bytes(self) -> int:
        return self._cells[_READ_BYTES]

    def supervisor(self, count: SupervisorCount) -> int:
        return self._cells[_SUPERVISOR + count]

    @property
    def counts(self) -> dict[str, int]:
        """The counts of `touchfs.source.counts.COUNTS`, by name."""
        return dict(zip(COUNTS, self._cells[_COUNTS:], strict=True))


class MountNumbers:
    """The slots of a mount's workers and of its supervisor. Created before the first fork."""

    def __init__(self, workers: int) -> None:
        self._slots = shared_cells(*[_CELLS] * (workers + 1))
        *self.workers, self.supervisor = map(Slot, self._slots)

    def totals(self) -> Totals:
        """The sums of all slots now."""
        return Totals(np.sum([np.asarray(slot) for slot in self._slots], 0))
