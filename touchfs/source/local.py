"""Local files as sources: read with pread, verified to be the same file, on few descriptors.

- Files are not mapped: truncating a mapped file kills its reader with SIGBUS; pread returns fewer bytes.
- `read_nowait` is `preadv2(RWF_NOWAIT)`, which returns data from the page cache or fails at once. File systems in
  memory (tmpfs) lack the flag but never block, so they are read directly. On others that lack it (network file
  systems) any read may block, so `read_nowait` returns None.
- A file must stay the one that was indexed or first opened: size, mtime and inode are compared at open, after a short
  read, and at most once a second in between; and samples of it where only the ctime differs (`fingerprint`). A
  replaced file is a `ChangedError`, never wrong bytes. The comparison may block for ever on a file system that does
  not answer, so `read_nowait` does not do it.
- All sources of the process share a pool of descriptors, at most half of RLIMIT_NOFILE, less where that is below 96.
  The least recently verified one is closed, and opened again at its next read. Reads hold a reference while they run,
  so their descriptor stays open (its number might otherwise become another file). Closing may block too (FUSE asks the
  file system), so a separate thread does it.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from queue import SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING
from weakref import KeyedRef

from touchfs.core.errors import ChangedError, NotFoundError, SourceError, os_error
from touchfs.core.extent import Buffer
from touchfs.posix.links import open_data
from touchfs.posix.mounts import mounts
from touchfs.posix.threads import start_thread
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.reused_buffer import ReusedBuffer
from touchfs.source.store import PlainRange, StoredFile

VERIFY_SECONDS = 1.0
CLOSE_SECONDS = 0.1
UNZEROED_SIZE = 1 << 15
DESCRIPTORS_MAX = 2**16  # where RLIMIT_NOFILE sets no limit
# A worker of a mount uses about 25 others, and each of its threads one for a file that is evicted while it is read.
DESCRIPTORS_ELSE = 48
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)  # only Linux has it
_REMOVED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})
_IN_MEMORY = frozenset({"tmpfs", "ramfs", "hugetlbfs"})


class _Descriptor:
    """An open file, closed when its last reference is dropped."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        try:  # at the end of a process modules are emptied before the last objects go: a default stays
            close(self.number)
        except OSError:
            return


def _share_of(limit: int) -> int:
    """Return the number of descriptors for sources: half of the limit, if enough is left for other uses."""
    return max(min(limit // 2, limit - DESCRIPTORS_ELSE), 16)


class _Closer:
    """Closes descriptors in a thread. `close` waits a moment, so that the thread cannot fall behind unless it hangs."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[_Descriptor | None, threading.Event]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._hangs = False

    def close(self, descriptor: _Descriptor | None) -> None:
        closed = threading.Event()
        self._queue.put((descriptor, closed))
        del descriptor
        if self._thread is None:
            try:
                self._thread = start_thread(self._run, name="closer")
            except SourceError:  # this thread closes it
                self._queue.get()
                return
        if not self._hangs:
            self._hangs = not closed.wait(CLOSE_SECONDS)

    def _run(self) -> None:
        while True:
            descriptor, closed = self._queue.get()
            del descriptor
            self._hangs = False
            closed.set()


class _Pool:
    """The sources with an open descriptor, the least recently verified first. Those that nobody has any more go."""

    def __init__(self) -> None:
        self._open: OrderedDict[int, KeyedRef[int, LocalFile]] = OrderedDict()
        self._lock = threading.RLock()  # a source may go, with the garbage collector, while this thread adds one
        self._closer = _Closer()
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.limit = DESCRIPTORS_MAX if limit == resource.RLIM_INFINITY else _share_of(limit)
        os.register_at_fork(after_in_child=self._forked)

    def add(self, source: LocalFile) -> None:
        evicted: list[_Descriptor | None] = []
        with self._lock:
            if id(source) in self._open:
                self._open.move_to_end(id(source))
            else:
                self._open[id(source)] = KeyedRef(source, self._gone, id(source))
            while len(self._open) > self.limit:
                oldest = self._open.popitem(last=False)[1]()
                if oldest is not None:
                    evicted.append(oldest._descriptor)
                    oldest._descriptor = None
        while evicted:
            self._closer.close(evicted.pop())

    def remove(self, source: LocalFile) -> None:
        with self._lock:
            self._open.pop(id(source), None)

    def _gone(self, source: KeyedRef[int, LocalFile]) -> None:
        with self._lock:
            if self._open.get(source.key) is source:
                del self._open[source.key]

    def _forked(self) -> None:
        self._lock = threading.RLock()  # another thread may have held it at the fork
        self._closer = _Closer()


_pool = _Pool()
_reused = ReusedBuffer()


class LocalFile:
    """A local file as a source. It must match `fingerprint`; by default, its fingerprint at the first open."""

    __slots__ = ("__weakref__", "_descriptor", "_fingerprint", "_identity", "_nowait", "_verify_at", "path")

    def __init__(self, path: str, fingerprint: Fingerprint | None = None) -> None:
        self.path = path
        self._fingerprint = fingerprint
        # Of a fingerprint, as tables ask for it with each cell
        self._identity: tuple[Fingerprint, str] | None = None
        self._descriptor: _Descriptor | None = None
        self._nowait = _NOWAIT
        self._verify_at = 0.0

    @property
    def size(self) -> int:
        if self._fingerprint is None:
            self._verified()  # sets it
            return self.size
        return self._fingerprint.size

    @property
    def fingerprint(self) -> Fingerprint | None:
        return self._fingerprint

    @property
    def identity(self) -> str | None:
        fingerprint, known = self._fingerprint, self._identity
        if known is not None and known[0] is fingerprint:
            return known[1]
        if fingerprint is None or fingerprint.inode is None:
            return None
        identity = f"{os.path.abspath(self.path)}\0{fingerprint.hashed}"
        self._identity = fingerprint, identity
        return identity

    def open(self) -> None:
        self._verify_at = 0.0
        self._verified()

    def close(self) -> None:
        """See `StoredFile.close`: close the descriptor."""
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
                    raise self._truncated_error(offset + len(data))
                data += more
        except OSError as error:
            raise self._convert_error(error, offset) from error
        return data

    def read_into(self, offset: int, buffer: memoryview) -> None:
        descriptor = self._verified()
        try:
            done = os.preadv(descriptor.number, (buffer,), offset)
            while done < len(buffer):
                count = os.preadv(descriptor.number, (buffer[done:],), offset + done)
                if not count:
                    raise self._truncated_error(offset + done)
                done += count
        except OSError as error:
            raise self._convert_error(error, offset) from error

    def plain_range(self, offset: int, length: int) -> PlainRange | None:
        return PlainRange(os.path.abspath(self.path), offset, length)

    @property
    def is_verified(self) -> bool:
        return self._descriptor is not None and monotonic() < self._verify_at

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        """See `Source.read_nowait`. Returns None also if the file has to be verified first."""
        descriptor = self._descriptor
        if descriptor is None or monotonic() >= self._verify_at:
            return None
        # A bytearray is zeroed first: for 128 KiB that takes a sixth of the whole read, for 1 MiB two fifths.
        buffer = bytearray(length) if length < UNZEROED_SIZE else _reused.view(length)
        try:
            count = os.preadv(descriptor.number, (buffer,), offset, self._nowait)
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return None
            if error.errno == errno.EOPNOTSUPP and self._nowait:
                return None
            raise self._convert_error(error, offset) from error
        return buffer if count == length else None

    def _verified(self) -> _Descriptor:
        """Return the descriptor of the verified file; opens the file if necessary."""
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
                stat = self._stat()
        except OSError as error:
            raise self._convert_error(error, 0) from error
        found, known = Fingerprint.of(stat), self._fingerprint
        if known is not None:
            renewed = self._renewed(known, found, descriptor) if known.matches(found) else None
            if renewed is None or renewed.etag != known.etag:
                self.close()
                raise ChangedError("was replaced or changed since it was indexed", path=self.path)
            found = renewed
        self._fingerprint = found  # which also has the inode
        self._verify_at = now + VERIFY_SECONDS
        if self._descriptor is None:
            self._descriptor = descriptor
        _pool.add(self)
        return descriptor

    def _renewed(self, known: Fingerprint, found: Fingerprint, descriptor: _Descriptor) -> Fingerprint:
        try:
            return known.renewed(found, lambda offset, length: os.pread(descriptor.number, length, offset))
        except OSError as error:
            raise self._convert_error(error, 0) from error

    def _open(self) -> int:
        # O_NONBLOCK: if the path is a pipe by now, opening it must not wait for a writer.
        return open_data(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)

    def _stat(self) -> os.stat_result:
        return os.stat(self.path)

    def _truncated_error(self, end: int) -> SourceError | ChangedError:
        self._verify_at = 0.0
        self._verified()  # raises ChangedError if the file was replaced
        return SourceError("the file ends here, before the data that its index names", path=self.path, offset=end)

    def _convert_error(self, error: OSError, offset: int) -> SourceError | NotFoundError | ChangedError:
        if error.errno in _REMOVED and self._fingerprint is not None:
            return ChangedError("was removed since it was indexed", path=self.path)
        return os_error(error, self.path, offset=offset)

    def __repr__(self) -> str:
        return f"LocalFile({self.path!r})"

    def __reduce__(self) -> tuple[type[LocalFile], tuple[str, Fingerprint | None]]:
        return LocalFile, (self.path, self._fingerprint)


@cache
def _is_in_memory(device: int) -> bool:
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        return any(mounted.device == number and mounted.kind in _IN_MEMORY for mounted in mounts())
    except OSError:
        return False


if TYPE_CHECKING:
    _: type[StoredFile] = LocalFile
