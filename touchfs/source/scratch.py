"""The scratch store: a directory for files that can be made again, such as decompressed shards.

    <32 hex digits>.scratch                complete and immutable: its name is a hash that identifies its content
    .touchfs-tmp-<32 hex digits>.scratch   being written; its size includes the space reserved for it
    .touchfs-scratch.lock                  locked while a process counts and removes files

Any number of processes share the store. Its only state is file locks, which end with the process that holds them. A
writer holds an exclusive lock (flock) on its file, so an unfinished file that can be locked was left by a killed
process, and the next writer removes it. A reader holds a shared lock, as a `ScratchFile`.

One limit applies to the total size of all files. A file that would exceed it evicts unlocked files, the least recently
used first (opening a file sets its access time). If that does not free enough, nothing is evicted and the new file is
refused. Other files in the directory are neither counted nor changed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import platformdirs

from touchfs.errors import SourceError, UntrustedError, UsageError
from touchfs.extent import Buffer
from touchfs.posix.atomic import TEMPORARY_PREFIX
from touchfs.posix.trust import (
    check_trusted_directory,
    check_trusted_file,
    make_directory,
    open_for_update,
    open_trusted_unique,
)

DIRECTORY_VARIABLE, SIZE_VARIABLE = "TOUCHFS_SCRATCH_DIR", "TOUCHFS_SCRATCH_SIZE"
# Default limit in bytes; never more than half of the disk space available to the store.
SIZE_DEFAULT = 50 * 10**9
# Space reserved beyond what is needed, if there is room: otherwise each written block would need its own reservation.
AHEAD_SIZE = 1 << 20

_SUFFIX = ".scratch"
_OURS = re.compile(rf"({re.escape(TEMPORARY_PREFIX)})?[0-9a-f]{{32}}{re.escape(_SUFFIX)}")
_LOCK = ".touchfs-scratch.lock"
_POLL_SECONDS = 0.05
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kMGT]?)B?", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def parse_size(text: str) -> int:
    """Parse a size in bytes such as 800M, 50G or 1.5T (decimal units). Raises UsageError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"not a size: {text!r}; expected bytes, or a number with k, M, G or T")
    return int(float(match[1]) * _UNITS[match[2].upper()])


class ScratchFile:
    """A locked file of the store. It is not evicted while this object, or its copy in a forked process, exists."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @property
    def exists(self) -> bool:
        """True if the file is still in the store."""
        return os.fstat(self._descriptor).st_nlink > 0

    def close(self) -> None:
        """Release the lock, so that the file may be evicted."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    stat: os.stat_result

    @property
    def is_complete(self) -> bool:
        return not os.path.basename(self.path).startswith(TEMPORARY_PREFIX)


@dataclass(frozen=True, slots=True)
class Scratch:
    """The store in a directory. A file's name is 32 hexadecimal digits: a hash of all inputs of its content."""

    directory: str
    limit: int | None = None

    @classmethod
    def configured(cls) -> Scratch:
        """Return the store that the environment configures. Raises UsageError for a bad size."""
        directory, size = os.environ.get(DIRECTORY_VARIABLE), os.environ.get(SIZE_VARIABLE)
        directory = directory or os.path.join(platformdirs.user_cache_dir("touchfs"), "scratch")
        return cls(os.path.abspath(directory), parse_size(size) if size else None)

    def path(self, name: str) -> str:
        """Return the path of the complete file of this name."""
        return os.path.join(self.directory, name + _SUFFIX)

    def find(self, name: str) -> ScratchFile | None:
        """Return the locked file of this name, or None if it does not exist or is not trusted. Raises SourceError."""
        try:
            file = ScratchFile(self.path(name), open_trusted_unique(self.path(name), os.O_RDWR))
            # An exclusive holder is about to unlink it, so this wait is short.
            fcntl.flock(file._descriptor, fcntl.LOCK_SH)
            if not file.exists:
                return None
            os.utime(file._descriptor, ns=(time.time_ns(), os.fstat(file._descriptor).st_mtime_ns))
        except (FileNotFoundError, UntrustedError):
            return None
        except OSError as error:
            raise self._convert_error(error) from error
        return file

    def stored(self) -> list[str]:
        """Return the paths of all complete files, sorted."""
        try:
            return sorted(file.path for file in self._files() if file.is_complete)
        except FileNotFoundError:
            return []

    def is_used(self, path: str) -> bool:
        """Return whether a process holds a lock on this file."""
        with ExitStack() as stack:
            return not _try_lock_path(path, stack)

    def make(self, name: str, pieces: Iterable[Buffer], at_least: int = 0) -> ScratchFile:
        """Return the locked file of this name. If it is missing, write it from `pieces`, of at least `at_least` bytes.

        Waits if another process is writing it. Raises SourceError if there is no room. Then, and after an error of
        `pieces`, the partial file is removed.
        """
        try:
            make_directory(self.directory)
            check_trusted_directory(self.directory)
            while (file := self.find(name)) is None:
                with self._unfinished_file(name) as descriptor:
                    if descriptor is None:
                        time.sleep(_POLL_SECONDS)
                    elif (file := self.find(name)) is None:  # another process may have made it since the last look
                        return self._write(descriptor, name, pieces, at_least)
        except UntrustedError as error:
            message = f"{error.message}: correct that, or name another --scratch-dir"
            raise SourceError(message, path=error.path) from error
        except OSError as error:
            raise self._convert_error(error) from error
        return file

    @contextmanager
    def _unfinished_file(self, name: str) -> Iterator[int | None]:
        """Open the unfinished file of this name, locked, and remove it at the end if it was not completed. Yields None
        if another process is writing it.
        """
        path = self._unfinished(name)
        descriptor = open_for_update(path, os.O_RDWR)
        try:
            if not _try_lock(descriptor) or not _is_at(descriptor, path):
                yield None
                return
            try:
                yield descriptor
            finally:
                if _is_at(descriptor, path):
                    os.unlink(path)
        finally:
            os.close(descriptor)

    def _write(self, descriptor: int, name: str, pieces: Iterable[Buffer], at_least: int) -> ScratchFile:
        os.ftruncate(descriptor, 0)  # a killed process may have left data
        room, size = self._reserve(descriptor, at_least), 0
        with open(descriptor, "wb", AHEAD_SIZE, closefd=False) as file:
            for piece in pieces:
                size += len(piece)
                if size > room:
                    room = self._reserve(descriptor, size)
                file.write(piece)
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)
        os.rename(self._unfinished(name), self.path(name))
        scratch_file = ScratchFile(self.path(name), os.dup(descriptor))
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # both descriptors share one open file, so they share its lock
        if not scratch_file.exists:
            message = "was evicted as soon as it was made: --scratch-size raises the limit"
            raise SourceError(message, path=scratch_file.path)
        return scratch_file

    def _reserve(self, descriptor: int, needed: int) -> int:
        """Reserve room for an unfinished file of at least `needed` bytes. Returns the size that it may have."""
        with self._exclusive(), ExitStack() as locks:
            own = os.fstat(descriptor)
            files = list(self._files())
            others = [file for file in files if file.stat.st_ino != own.st_ino]
            others.sort(key=lambda file: (file.is_complete, file.stat.st_atime_ns))
            used = sum(file.stat.st_size for file in others)
            limit = self._limit(files)
            evicted = []
            for file in others if needed <= limit else []:
                if file.is_complete and used + needed <= limit:
                    break
                if _try_lock_path(file.path, locks):
                    evicted.append(file.path)
                    used -= file.stat.st_size
            if used + needed > limit:
                taken = f", of which {used:,} are in use" if needed <= limit else ""
                raise SourceError(
                    f"takes {needed:,} bytes or more in the scratch store {self.directory}, and the limit of that is "
                    f"{limit:,}{taken}: --scratch-size raises it"
                )
            for path in evicted:
                os.unlink(path)
            room = max(needed, min(needed + needed // 8 + AHEAD_SIZE, limit - used))
            os.ftruncate(descriptor, room)
            return room

    def _limit(self, files: Iterable[_File]) -> int:
        if self.limit is not None:
            return self.limit
        disk = os.statvfs(self.directory)
        stored = sum(file.stat.st_blocks for file in files) * 512
        return min(SIZE_DEFAULT, (disk.f_bavail * disk.f_frsize + stored) // 2)

    def _files(self) -> Iterator[_File]:
        with os.scandir(self.directory) as entries:
            for entry in entries:
                if _OURS.fullmatch(entry.name):
                    with suppress(FileNotFoundError, UntrustedError):
                        yield _File(entry.path, check_trusted_file(entry.path))

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        descriptor = open_for_update(os.path.join(self.directory, _LOCK), os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _unfinished(self, name: str) -> str:
        return os.path.join(self.directory, TEMPORARY_PREFIX + name + _SUFFIX)

    def _convert_error(self, error: OSError) -> SourceError:
        advice = "--scratch-dir names another place"
        if error.errno in _FULL:
            advice = f"free some space there, or {advice}"
        return SourceError(f"the scratch store cannot be used: {error.strerror}; {advice}", path=self.directory)


def _try_lock(descriptor: int) -> bool:
    """Take an exclusive lock if the file is not locked; return whether it succeeded."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _try_lock_path(path: str, stack: ExitStack) -> bool:
    """Take an exclusive lock on a file until `stack` closes, if it is not locked; return whether it succeeded."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    stack.callback(os.close, descriptor)
    return _try_lock(descriptor) and _is_at(descriptor, path)


def _is_at(descriptor: int, path: str) -> bool:
    """Return whether a path still names an open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False
