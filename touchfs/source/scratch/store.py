"""The scratch store: a directory for files that can be made again, such as decompressed shards and rendered slices.

    <32 hex digits>.scratch          a file: complete and immutable, named by a hash that identifies its content
    <32 hex digits>.value            a small value: a header with a checksum, and the bytes
    .touchfs-tmp-<either of these>   being written; its size includes the space reserved for it
    .touchfs-scratch.lock            locked while a process reserves room or removes files; holds the account
    .touchfs-scratch.claims          a byte of it is locked for each value that a process fetches (`claims.py`)

Any number of processes share the store. File locks end with the process that holds them. A writer holds an exclusive
lock (flock) on its file, so an unfinished file that can be locked was left by a killed process. The next writer removes
it, or, if it had reserved no room yet, the next count. A reader of a file holds a shared lock, as a `ScratchFile`. A
value is read whole and verified, so it needs no lock, and no flush to the disk when it is written.

One limit applies to the total size of all files. The account (`account.py`) says how much is used, so a new
file costs no look at the others. Only if the account is lost, or says that the limit would be exceeded, all files are
counted (`space.py`). Then unlocked files are evicted, the least recently used first (opening a file sets its
access time), until a tenth of what may be evicted is free, so that the next count is far away. If that does not free
enough, nothing is evicted and the new file is refused. Other files in the directory are neither counted nor changed.

A store may have a lower one: a directory of the same form that others fill, such as a machine for its containers. What
it has is read there and not made again. No file is written there, so it may be read-only; access times are set if they
can be.

Blocks of data at URLs are values here, because no kept library does what they need:

- fsspec's `blockcache` notes the blocks of all files in one JSON, to which a process adds its own when it closes a
  file, without a lock. It has no checksums and no limit of size. It looks at the version of a file only when that is
  opened, and only if it is asked to; its requests have no condition, so a file may become a mixture of two versions.
- fsspec's `filecache` and `simplecache` copy whole files.
- diskcache has a limit that processes share, but no checksums, and each look is a query of a SQLite database, which
  must not wait for a writer on the loop of a mount. It unpickles what the database says, so anyone who may write to the
  directory can run code of his.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import lru_cache

import platformdirs

from touchfs.core.errors import SourceError, UntrustedError
from touchfs.core.extent import Buffer
from touchfs.limits import parse_size
from touchfs.posix.trust import check_trusted_directory
from touchfs.source.counts import count
from touchfs.source.scratch.file import ScratchFile, is_believed, open_complete
from touchfs.source.scratch.space import Space, converted_errors
from touchfs.source.scratch.value import VALUE_START, open_value, value_header
from touchfs.source.scratch.write_behind import WRITE_BEHIND

DIRECTORY_VARIABLE, SIZE_VARIABLE = "TOUCHFS_SCRATCH_DIR", "TOUCHFS_SCRATCH_SIZE"
LOWER_VARIABLE = "TOUCHFS_LOWER_SCRATCH_DIR"
# Space reserved at most beyond what is needed and an eighth: otherwise each written block would need a reservation.
AHEAD_SIZE = 1 << 20

_FILE, _VALUE = ".scratch", ".value"


@dataclass(frozen=True, slots=True)
class Scratch:
    """The store in a directory, and the directory of a lower one. A name is 32 hexadecimal digits: a hash of all inputs
    of the content.
    """

    directory: str
    limit: int | None = None
    lower: str | None = None

    @classmethod
    def configured(cls) -> Scratch:
        """Return the store that the environment configures.

        Raises UsageError for a bad size, and SourceError for a lower store that is missing or not trusted.
        """
        directory, size = os.environ.get(DIRECTORY_VARIABLE), os.environ.get(SIZE_VARIABLE)
        directory = directory or _default(os.environ.get("XDG_CACHE_HOME"), os.environ.get("HOME"))
        lower = os.environ.get(LOWER_VARIABLE)
        return _scratch(_absolute(directory), size or "", lower and _absolute(lower))

    @property
    def _space(self) -> Space:
        return Space(self.directory, self.limit)

    def path(self, name: str) -> str:
        """Return the path of the complete file of this name: in the lower store if only that has it."""
        return self._place(name + _FILE)

    def value_path(self, name: str) -> str:
        """Return the path of the value of this name: in the lower store if only that has it."""
        return self._place(name + _VALUE)

    def _place(self, file: str) -> str:
        path = self._space.path(file)
        if self.lower is None or os.path.lexists(path):
            return path
        lower = os.path.join(self.lower, file)
        return lower if is_believed(lower) else path

    def find(self, name: str) -> ScratchFile | None:
        """Return the locked file of this name, or None if it does not exist or is not trusted. Raises SourceError."""
        with converted_errors(self.directory):
            path = self.path(name)
            descriptor = open_complete(path)
            if descriptor is None:
                return None
            file = ScratchFile(path, descriptor)
            # An exclusive holder is about to unlink it, so this wait is short.
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            return file if file.exists else None

    def make(self, name: str, pieces: Iterable[Buffer], at_least: int = 0, *, is_flushed: bool = True) -> ScratchFile:
        """Return the locked file of this name. If it is missing, write it from `pieces`, of at least `at_least` bytes.

        If it is not flushed to the disk, its name has the boot, after which it may be damaged.

        Waits if another process is writing it. Raises SourceError if there is no room. Then, and after an error of
        `pieces`, the partial file is removed.
        """
        with converted_errors(self.directory):
            if (file := self.find(name)) is None:
                with self._space.unfinished_file(name + _FILE) as descriptor:
                    if (file := self.find(name)) is None:  # another process may have made it since the last look
                        count("scratch_misses")
                        return self._write(descriptor, name, pieces, at_least, is_flushed)
            count("scratch_hits")
            return file

    def kept(self, name: str) -> bytes | None:
        """Return the value of this name, or None if it does not exist, is damaged or is not trusted.

        Raises SourceError.
        """
        with converted_errors(self.directory):
            opened = open_value(self.value_path(name))
            if opened is None:
                return None
            descriptor, value = opened
            os.close(descriptor)
        return value

    def keep(self, name: str, value: Buffer) -> None:
        """Keep a small value, of kilobytes to megabytes, that can be made again, unless it is kept already.

        It appears complete or not at all. A power failure may damage it, and then it counts as missing. Raises
        SourceError if there is no room.
        """
        if (descriptor := self.keep_open(name, value)) is not None:
            os.close(descriptor)

    def keep_open(self, name: str, value: Buffer) -> int | None:
        """Like `keep`. Returns a descriptor of the value, or None if it was kept already."""
        with converted_errors(self.directory), self._space.unfinished_file(name + _VALUE) as descriptor:
            if self.kept(name) is not None:
                return None
            self._write_value(descriptor, name, value)
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # both descriptors share the lock, and a value may be evicted
            return os.dup(descriptor)

    def kept_or_made(self, name: str, make: Callable[[], Buffer]) -> Buffer:
        """Return the value of this name. If it is missing, make it and keep it.

        Waits if another process or thread is making it, so it is made once. It is written behind the answer, and others
        wait for that. If the store has no room or cannot be used, the value is made and not kept. Raises what `make`
        raises.
        """
        with ExitStack() as stack:
            descriptor = None
            with suppress(SourceError), converted_errors(self.directory):
                if (value := self.kept(name)) is not None:
                    count("scratch_hits")
                    return value
                descriptor = stack.enter_context(self._space.unfinished_file(name + _VALUE))
                if (value := self.kept(name)) is not None:
                    count("scratch_hits")
                    return value
            count("scratch_misses")
            made = make()
            if descriptor is not None:
                lock = stack.pop_all()
                WRITE_BEHIND.do(len(made), lambda: self._write_locked(lock, descriptor, name, made))
            return made

    def limit_now(self) -> int:
        """The number of bytes that the store may hold now: its limit, or what the disk allows. Raises SourceError."""
        with converted_errors(self.directory):
            return self._space.limit_now()

    def stored(self) -> list[str]:
        """Return the paths of all complete files, sorted."""
        return self._paths(_FILE)

    def values(self) -> list[str]:
        """Return the paths of all values, sorted."""
        return self._paths(_VALUE)

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files and values, even those in use. One that is missing already is no error. Raises OSError."""
        self._space.remove(paths)

    def _write(
        self, descriptor: int, name: str, pieces: Iterable[Buffer], at_least: int, is_flushed: bool
    ) -> ScratchFile:
        space, file_name = self._space, name + _FILE
        os.ftruncate(descriptor, 0)  # a killed process may have left data
        room, size = space.reserve(descriptor, file_name, at_least, _ahead(at_least)), 0
        with open(descriptor, "wb", AHEAD_SIZE, closefd=False) as file:
            for piece in pieces:
                size += len(piece)
                if size > room:
                    room = space.reserve(descriptor, file_name, size, _ahead(size))
                file.write(piece)
        os.ftruncate(descriptor, size)
        if is_flushed:
            os.fsync(descriptor)
        space.complete(descriptor, file_name)
        scratch_file = ScratchFile(self.path(name), os.dup(descriptor))
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # both descriptors share one open file, so they share its lock
        if not scratch_file.exists:
            message = "was evicted as soon as it was made: --scratch-size raises the limit"
            raise SourceError(message, path=scratch_file.path)
        return scratch_file

    def _write_locked(self, lock: ExitStack, descriptor: int, name: str, value: Buffer) -> None:
        with suppress(SourceError), converted_errors(self.directory), lock:
            self._write_value(descriptor, name, value)

    def _write_value(self, descriptor: int, name: str, value: Buffer) -> None:
        self._space.reserve(descriptor, name + _VALUE, VALUE_START + len(value))
        with open(descriptor, "wb", closefd=False) as file:
            file.write(value_header(value))
            file.write(value)
        self._space.complete(descriptor, name + _VALUE)

    def _paths(self, suffix: str) -> list[str]:
        try:
            names = [name for name, _ in self._space.files() if name.endswith(suffix) and not name.startswith(".")]
        except FileNotFoundError:
            return []
        return [self._space.path(name) for name in sorted(names)]


@lru_cache(maxsize=16)  # each read of a remote file asks for it several times
def _scratch(directory: str, size: str, lower: str | None) -> Scratch:
    limit = parse_size(size) if size else None
    if lower:
        try:
            check_trusted_directory(lower)
        except UntrustedError as error:
            message = f"{error.message}; --trust USER believes what USER wrote to the lower scratch store"
            raise SourceError(message, path=lower) from error
        except OSError as error:
            message = f"{error.strerror}; --lower-scratch-dir names the lower scratch store"
            raise SourceError(message, path=lower) from error
    return Scratch(os.path.normpath(directory), limit, lower or None)


@lru_cache(maxsize=16)
def _default(*_environment: str | None) -> str:
    """The directory of the store where none is named, which depends on these variables."""
    return os.path.join(platformdirs.user_cache_dir("touchfs"), "scratch")


def _absolute(path: str) -> str:
    return path if os.path.isabs(path) else os.path.abspath(path)


def _ahead(size: int) -> int:
    return size // 8 + min(size, AHEAD_SIZE)
