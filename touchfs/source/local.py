"""Local files as sources: read with pread, verified to be the same file, on few descriptors.

- Never mapped: a file that is truncated while it is mapped kills the reader with SIGBUS; pread only comes up short.
- `read_nowait` is `preadv2(RWF_NOWAIT)`, which gives what the page cache holds and otherwise fails at once. File
  systems in memory (tmpfs) do not know the flag, but have nothing to wait for, and are read directly; of others that
  do not know it (network ones), nothing is known to be there without waiting.
- A file is what it was when it was indexed or first opened: size, mtime and inode are compared at open, after a short
  read, and at most once a second in between. Another file under the name is a `ChangedError`, never other bytes. To
  compare them may wait, on a file system that does not answer for ever: so `read_nowait` never does.
- Descriptors are a pool over all sources of the process, of at most half of RLIMIT_NOFILE, less where that is below 96.
  The one whose use was least lately noticed (uses are noticed when files are verified) is closed, and opened anew when
  it is read again. Reads hold a reference while they run, so none is closed under them (a number that was closed might
  already be another file). To close a file may wait, too (FUSE asks the file system), so a thread of its own does it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cache
from queue import SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from touchfs.errors import ChangedError, NotFoundError, SourceError
from touchfs.extent import Buffer, Source
from touchfs.posix.links import open_data
from touchfs.posix.mounts import mounts

VERIFY_SECONDS = 1.0
CLOSE_SECONDS = 0.1
UNZEROED_SIZE = 1 << 15
DESCRIPTORS_MAX = 2**16  # where RLIMIT_NOFILE sets no limit
# A worker of a mount has some 25 besides, and its threads one for each file that they read just when it is evicted.
DESCRIPTORS_ELSE = 48
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)  # only Linux has it
_IN_MEMORY = frozenset({"tmpfs", "ramfs", "hugetlbfs"})


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What tells a file from a later one of the same name. The inode is None where only a listing was kept."""

    size: int
    mtime_ns: int
    inode: int | None = None

    @classmethod
    def of(cls, stat: os.stat_result) -> FileIdentity:
        return cls(stat.st_size, stat.st_mtime_ns, stat.st_ino)

    def matches(self, stat: os.stat_result) -> bool:
        return (
            stat.st_size == self.size
            and stat.st_mtime_ns == self.mtime_ns
            and (self.inode is None or stat.st_ino == self.inode)
        )


class _Descriptor:
    """An open file, closed when the last reader lets go of it."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self.number)


def _share_of(limit: int) -> int:
    """How many of the process's descriptors are for sources: half, if enough is left for all else."""
    return max(min(limit // 2, limit - DESCRIPTORS_ELSE), 16)


class _Closer:
    """Lets go of descriptors in a thread. That is waited for a moment: it may not fall behind, unless it hangs."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[_Descriptor | None, threading.Event]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._hangs = False

    def close(self, descriptor: _Descriptor | None) -> None:
        closed = threading.Event()
        self._queue.put((descriptor, closed))
        del descriptor
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="closer", daemon=True)
            self._thread.start()
        if not self._hangs:
            self._hangs = not closed.wait(CLOSE_SECONDS)

    def _run(self) -> None:
        while True:
            descriptor, closed = self._queue.get()
            del descriptor
            self._hangs = False
            closed.set()


class _Pool:
    """The sources that hold a descriptor, the least lately verified first."""

    def __init__(self) -> None:
        self._open: OrderedDict[int, LocalFile] = OrderedDict()
        self._lock = threading.RLock()  # the garbage collector may close a source while this thread adds one
        self._closer = _Closer()
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.limit = DESCRIPTORS_MAX if limit == resource.RLIM_INFINITY else _share_of(limit)
        os.register_at_fork(after_in_child=self._forked)

    def add(self, source: LocalFile) -> None:
        evicted: list[_Descriptor | None] = []
        with self._lock:
            self._open[id(source)] = source
            self._open.move_to_end(id(source))
            while len(self._open) > self.limit:
                _, oldest = self._open.popitem(last=False)
                evicted.append(oldest._descriptor)
                oldest._descriptor = None
        while evicted:
            self._closer.close(evicted.pop())

    def remove(self, source: LocalFile) -> None:
        with self._lock:
            self._open.pop(id(source), None)

    def _forked(self) -> None:
        self._lock = threading.RLock()  # another thread may have held it at the fork
        self._closer = _Closer()


_pool = _Pool()


class LocalFile:
    """A local file as a source. `identity` is what it must still be; by default, what it is at the first open."""

    __slots__ = ("_descriptor", "_identity", "_nowait", "_verify_at", "path")

    def __init__(self, path: str, identity: FileIdentity | None = None) -> None:
        self.path = path
        self._identity = identity
        self._descriptor: _Descriptor | None = None
        self._nowait = _NOWAIT
        self._verify_at = 0.0

    @property
    def size(self) -> int:
        """In bytes. Opens and verifies the file."""
        descriptor = self._verified()  # held: the pool may drop it at any time
        return os.fstat(descriptor.number).st_size

    @property
    def expected_size(self) -> int:
        """In bytes, as it was indexed; the file is only opened where that is not known."""
        return self.size if self._identity is None else self._identity.size

    def open(self) -> None:
        """Open and verify now, so that a file that is gone or changed is known before the first read."""
        self._verify_at = 0.0
        self._verified()

    def close(self) -> None:
        """Give the descriptor up; a further read opens the file again."""
        self._descriptor = None
        _pool.remove(self)

    def read(self, offset: int, length: int) -> bytes:
        descriptor = self._descriptor
        if descriptor is None or monotonic() >= self._verify_at:
            descriptor = self._verified()
        try:
            data = os.pread(descriptor.number, length, offset)
            while len(data) < length:
                more = os.pread(descriptor.number, length - len(data), offset + len(data))
                if not more:
                    raise self._short(offset + len(data))
                data += more
        except OSError as error:
            raise self._failed(error, offset) from error
        return data

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill a view of bytes: `read` for whoever has the memory already."""
        descriptor = self._verified()
        try:
            done = os.preadv(descriptor.number, (buffer,), offset)
            while done < len(buffer):
                count = os.preadv(descriptor.number, (buffer[done:],), offset + done)
                if not count:
                    raise self._short(offset + done)
                done += count
        except OSError as error:
            raise self._failed(error, offset) from error

    @property
    def is_verified(self) -> bool:
        """Whether it was within the last second, so that nothing has to be waited for to know that it is the same."""
        return self._descriptor is not None and monotonic() < self._verify_at

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        descriptor = self._descriptor
        if descriptor is None or monotonic() >= self._verify_at:
            return None
        # A bytearray is zeroed first: of 128 KiB that is a sixth of the whole read, of 1 MiB two fifths.
        buffer = bytearray(length) if length < UNZEROED_SIZE else np.empty(length, np.uint8).data
        try:
            count = os.preadv(descriptor.number, (buffer,), offset, self._nowait)
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return None
            if error.errno == errno.EOPNOTSUPP and self._nowait:
                return None
            raise self._failed(error, offset) from error
        return buffer if count == length else None

    def _verified(self) -> _Descriptor:
        """The descriptor, opened when there is none, of a file that is still the one we know."""
        now = monotonic()
        descriptor = self._descriptor
        if descriptor is not None and now < self._verify_at:
            return descriptor
        try:
            if descriptor is None:
                descriptor = _Descriptor(self._open())
                stat = os.fstat(descriptor.number)
                self._nowait = 0 if _is_in_memory(stat.st_dev) else _NOWAIT
            else:
                stat = os.stat(self.path)
        except OSError as error:
            raise self._failed(error, 0) from error
        if self._identity is None:
            self._identity = FileIdentity.of(stat)
        elif not self._identity.matches(stat):
            self.close()
            raise ChangedError("was replaced or changed since it was indexed", path=self.path)
        elif self._identity.inode is None:
            self._identity = FileIdentity.of(stat)
        self._verify_at = now + VERIFY_SECONDS
        if self._descriptor is None:
            self._descriptor = descriptor
        _pool.add(self)
        return descriptor

    def _open(self) -> int:
        # O_NONBLOCK: if a pipe is there by now, opening it must not wait for a writer.
        return open_data(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)

    def _short(self, end: int) -> SourceError | ChangedError:
        self._verify_at = 0.0
        self._verified()  # says so when the file is another one by now
        return SourceError("the file ends here, before the data that its index names", path=self.path, offset=end)

    def _failed(self, error: OSError, offset: int) -> SourceError | NotFoundError | ChangedError:
        missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
        if (missing or error.errno == errno.ESTALE) and self._identity is not None:
            return ChangedError("was removed since it was indexed", path=self.path)
        if missing:
            return NotFoundError("no such file", path=self.path)
        return SourceError(error.strerror or str(error), path=self.path, offset=offset)

    def __repr__(self) -> str:
        return f"LocalFile({self.path!r})"

    def __reduce__(self) -> tuple[type[LocalFile], tuple[str, FileIdentity | None]]:
        return LocalFile, (self.path, self._identity)


@cache
def _is_in_memory(device: int) -> bool:
    """Whether a mounted device is a file system in memory."""
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        return any(mounted.device == number and mounted.kind in _IN_MEMORY for mounted in mounts())
    except OSError:
        return False


if TYPE_CHECKING:
    _: type[Source] = LocalFile
