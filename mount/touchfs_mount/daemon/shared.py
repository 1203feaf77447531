"""The memory, descriptors and locks that all processes of a mount share. They are made before the first fork."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

from touchfs.posix.memory.shared import SharedFile, shared_cells
from touchfs_mount.numbers.cells import CELLS
from touchfs_mount.numbers.reloads import Reloads
from touchfs_mount.numbers.slots import MountNumbers
from touchfs_mount.requests.server import Worker
from touchfs_mount.requests.strikes import Strikes
from touchfs_mount.supervision.stuck import Watched


class Shared:
    """Everything that the processes of a mount share.

    They have numbers: workers from 0 on, then `alone`, which runs requests with a strike, and `control`.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.alone, self.control = workers, workers + 1
        processes = workers + 2
        self.counters = shared_cells(*[CELLS] * processes)
        self.numbers = MountNumbers(processes)
        self.strikes = Strikes(workers, processes)
        # Messages of requests with a strike, from the workers to the process that runs them.
        self.alone_end, self.door = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.reloads = Reloads()
        # How often the kernel was asked to send requests again. Only the supervisor writes it.
        (self.resent,) = shared_cells(1)
        # When the kernel last interrupted a request (`requests.interrupts`).
        (self._interrupted,) = shared_cells(1)
        self._drains = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(processes)]
        self._unmounting = SharedFile("touchfs-unmount-lock")
        self.lifeline, self.lifeline_write = os.pipe2(os.O_CLOEXEC)

    def worker(self, number: int) -> Worker:
        """The part of this memory that one process writes."""
        return Worker(
            self.counters[number],
            self.numbers.workers[number],
            self.strikes,
            self.strikes.running(number),
            self.lifeline,
            self._drains[number],
            self._interrupted,
        )

    def watched(self, number: int) -> Watched:
        """The part of a process's memory by which the supervisor notices that it is stuck."""
        return Watched(self.counters[number], self.strikes.running(number))

    def drain(self, number: int) -> None:
        """Make a process drain. It cannot miss this: the descriptor that it polls stays readable until `undrain`."""
        os.eventfd_write(self._drains[number], 1)

    def undrain(self, number: int) -> None:
        """Reset `drain`, before a new process with this number starts."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._drains[number])

    def claim_unmount(self) -> bool:
        """True for one process only, as long as it lives: it unmounts after the supervisor has died."""
        return self._unmounting.acquire(blocking=False)
