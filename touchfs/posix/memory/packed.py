"""Objects that a process hands to another one through memory instead of a pipe.

A pipe takes 64 KiB at a time, so a batch of 2 MB makes both sides wait for each other 32 times. Here the sender pickles
an object into a file in memory (memfd_create), and sends only its process id and descriptor. The receiver opens that
descriptor in /proc, maps the file, unpickles the object, and marks the file as free for the next one. Files need no
name, and disappear with the sender. Only Linux has them.
"""

from __future__ import annotations

import mmap
import os
import pickle
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

from touchfs.core.errors import SourceError

IS_SUPPORTED = hasattr(os, "memfd_create")
# The first byte of a file says whether its object is still to be received.
_FREE, _TAKEN = b"\0", b"\1"


class Sender:
    """Pickles objects into files in memory. There are as many files as objects that wait at the same time."""

    def __init__(self) -> None:
        self._files: list[int] = []
        self._process = os.getpid()

    def pack(self, value: Any) -> Packed:
        """Return an object that is small when pickled, and `value` when unpickled, once, in another process.

        Raises what pickling raises, and OSError if there is no memory.
        """
        file = self._free_file()
        os.pwrite(file, _TAKEN, 0)
        writer = _Writer(file, len(_TAKEN))
        try:
            ForkingPickler(writer, pickle.HIGHEST_PROTOCOL).dump(value)
        except BaseException:
            os.pwrite(file, _FREE, 0)
            raise
        return Packed((os.getpid(), file, os.fstat(file).st_ino, writer.end))

    def _free_file(self) -> int:
        if self._process != os.getpid():  # the files are those of the process that forked this one
            self._close()
            self._process = os.getpid()
        for file in self._files:
            if os.pread(file, 1, 0) == _FREE:
                return file
        file = os.memfd_create("touchfs", os.MFD_CLOEXEC)
        self._files.append(file)
        return file

    def _close(self) -> None:
        while self._files:
            os.close(self._files.pop())

    def __del__(self) -> None:
        self._close()

    def __reduce__(self) -> tuple[type[Sender], tuple[()]]:
        return Sender, ()


class Packed:
    """An object in a file in memory. Unpickled, it is the object itself."""

    def __init__(self, where: tuple[int, int, int, int]) -> None:
        self._where = where

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[int, int, int, int]]:
        return _receive, self._where


class _Writer:
    """A file for a pickler, which ignores how much was written, to write to."""

    def __init__(self, file: int, end: int) -> None:
        self._file = file
        self.end = end

    def write(self, data: Any) -> None:
        with memoryview(data).cast("B") as view:
            done = 0
            while done < len(view):
                done += os.pwrite(self._file, view[done:], self.end + done)
            self.end += done


def _receive(process: int, number: int, inode: int, end: int) -> Any:
    path = f"/proc/{process}/fd/{number}"
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise SourceError(
            f"the process that sent a batch has ended, or is not ours: {error.strerror}", path=path
        ) from error
    try:
        if os.fstat(file).st_ino != inode:
            raise SourceError("the process that sent a batch has ended", path=path)
        mapped = mmap.mmap(file, end, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ)
        with mapped, memoryview(mapped) as view, view[len(_TAKEN) :] as pickled:
            value = pickle.loads(pickled)
        os.pwrite(file, _FREE, 0)
    finally:
        os.close(file)
    return value
