"""The memory, descriptors and locks that all processes of a mount share. They are made before the first fork."""

from __future__ import annotations

import fcntl
import mmap
import os
from contextlib import suppress

from touchfs_mount.control.reloads import Reloads
from touchfs_mount.loop.loop import CELLS
from touchfs_mount.numbers.slots import MountNumbers
from touchfs_mount.requests.alone import Door
from touchfs_mount.requests.strikes import Strikes


class Shared:
    """Everything that the processes of a mount with so many workers share.

    The read lock is a memfd because it needs an inode that every worker can open separately, and no path.
    """

    def __init__(self, workers: int) -> None:
        cells = memoryview(mmap.mmap(-1, 8 * CELLS * workers)).cast("q")
        self.counters = [cells[number * CELLS : (number + 1) * CELLS] for number in range(workers)]
        self.numbers = MountNumbers(workers)
        self.strikes = Strikes(workers)
        self.door = Door()
        self.reloads = Reloads()
        # How often the kernel was asked to resend requests. Only the supervisor writes it.
        self.resent = memoryview(mmap.mmap(-1, 8)).cast("q")
        self._drains = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(workers)]
        self._lock = os.memfd_create("touchfs-read-lock", os.MFD_CLOEXEC)
        self.lifeline, self.lifeline_write = os.pipe2(os.O_CLOEXEC)

    def open_read_lock(self) -> int:
        """A new descriptor for flock: that lock belongs to the open file, not to the process."""
        return os.open(f"/proc/self/fd/{self._lock}", os.O_RDWR | os.O_CLOEXEC)

    def drain(self, number: int) -> None:
        """Make a worker drain. It cannot miss this: the descriptor that it polls stays readable until `undrain`."""
        os.eventfd_write(self._drains[number], 1)

    def undrain(self, number: int) -> None:
        """Reset `drain`, before a new worker with this number starts."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._drains[number])

    def draining(self, number: int) -> int:
        """A descriptor that becomes readable when this worker must drain."""
        return self._drains[number]

    def claim_unmount(self) -> bool:
        """True for one process only, as long as it lives: it unmounts after the supervisor has died."""
        try:
            # A POSIX lock, because it does not conflict with the flocks of the readers.
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError:
            return False
        return True
