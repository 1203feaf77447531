"""Claims: of the processes that want a value of the scratch store which is missing, one makes it, and others wait.

A claim is a lock on a byte of a file in the store, by the hash of the value's name. It belongs to a process, and the
kernel drops it when that ends. It protects nothing: a process that waited in vain makes the value itself.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from contextlib import suppress

from touchfs.core.errors import TouchfsError
from touchfs.posix.trust import make_directory, open_for_update
from touchfs.source.scratch.store import Scratch

_FILE = ".touchfs-scratch.claims"
# `struct flock` of fcntl(2): kind, from where, start, length, process.
_LOCK = struct.Struct("hhqqi4x")
# Of a name, as many hexadecimal digits as an offset has.
_DIGITS = 15


class Claims:
    """The claims of this process. Safe for several threads, which share them, and for children of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By the directory of a store, the descriptor of its file; -1 if that cannot be used.
        self._descriptors: dict[str, int] = {}
        os.register_at_fork(after_in_child=self._forked)

    def take(self, name: str) -> bool:
        """Claim the value of a name. False if another process has claimed it; True, too, where nothing can be."""
        return self._call(fcntl.F_OFD_SETLK, fcntl.F_WRLCK, name) is not None

    def is_taken(self, name: str) -> bool:
        """True if another process has claimed the value of a name."""
        found = self._call(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, name)
        return bool(found) and _LOCK.unpack(found or b"")[0] != fcntl.F_UNLCK

    def release(self, name: str) -> None:
        """Give up a claim; nothing if there is none."""
        self._call(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, name)

    def _call(self, command: int, kind: int, name: str) -> bytes | None:
        """What the kernel says, empty if the file cannot be used; None if another process has the lock."""
        if (descriptor := self._descriptor()) < 0:
            return b""
        try:
            return fcntl.fcntl(descriptor, command, _LOCK.pack(kind, os.SEEK_SET, int(name[:_DIGITS], 16), 1, 0))
        except BlockingIOError:
            return None
        except OSError:  # a file system without locks
            return b""

    def _descriptor(self) -> int:
        try:
            directory = Scratch.configured().directory
        except TouchfsError:
            return -1
        if directory not in self._descriptors:
            with self._lock:
                if directory not in self._descriptors:
                    self._descriptors[directory] = _open(directory)
        return self._descriptors[directory]

    def _forked(self) -> None:
        self._lock = threading.Lock()
        descriptors, self._descriptors = self._descriptors, {}
        for descriptor in descriptors.values():  # their claims are those of the parent
            with suppress(OSError):
                os.close(descriptor)


def _open(directory: str) -> int:
    with suppress(OSError, TouchfsError):
        make_directory(directory)
        return open_for_update(os.path.join(directory, _FILE), os.O_RDWR)
    return -1


CLAIMS = Claims()
