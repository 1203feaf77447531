"""The scratch store: a directory for what can be made again, as the decompressed form of a shard.

    <32 hex digits>.scratch                whole, and never changed: its name says what is in it
    .touchfs-tmp-<32 hex digits>.scratch   in the making; with its size goes what is set aside for it
    .touchfs-scratch.lock                  held by who counts and removes

Any number of processes share it, and nothing is written down: all that must be known ends with the process it is about.
Who makes a file holds it locked (flock, exclusive), so one that can be locked is left from a process that was killed,
and whoever makes something next removes it. Who uses a file holds it locked too (shared), as a `ScratchFile`.

One limit counts for all files together. Where it would be passed, files that nobody holds go, the least recently used
first (an opening is a use; its time is the file's access time). If that is not enough, nothing goes, and what was to be
made is refused. Other files in the directory are neither counted nor touched.
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
from touchfs.posix.trust import check_directory, check_file, make_directory, open_alone, open_to_change

DIRECTORY_VARIABLE, SIZE_VARIABLE = "TOUCHFS_SCRATCH_DIR", "TOUCHFS_SCRATCH_SIZE"
# Unless a limit is given: so much, but never more than half of what the disk has for the store.
SIZE_DEFAULT = 50 * 10**9
# Set aside beyond what is needed, where there is room: else each block written would be counted by itself.
AHEAD_SIZE = 1 << 20

_SUFFIX = ".scratch"
_OURS = re.compile(rf"({re.escape(TEMPORARY_PREFIX)})?[0-9a-f]{{32}}{re.escape(_SUFFIX)}")
_LOCK = ".touchfs-scratch.lock"
_POLL_SECONDS = 0.05
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kMGT]?)B?", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def parse_size(text: str) -> int:
    """Bytes, where `text` is as 800M, 50G or 1.5T. Raises UsageError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"no size: {text!r}; expected bytes, or a number with k, M, G or T")
    return int(float(match[1]) * _UNITS[match[2].upper()])


class ScratchFile:
    """A file of the store, which is not evicted while this object or a copy of it in a forked process lives."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @property
    def is_there(self) -> bool:
        return os.fstat(self._descriptor).st_nlink > 0

    def close(self) -> None:
        """It may be evicted from now on."""
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
    def is_whole(self) -> bool:
        return not os.path.basename(self.path).startswith(TEMPORARY_PREFIX)


@dataclass(frozen=True, slots=True)
class Scratch:
    """The store in a directory. A name is 32 hexadecimal digits, a hash of all that what is called so depends on."""

    directory: str
    limit: int | None = None

    @classmethod
    def configured(cls) -> Scratch:
        """The store of this process: its environment says where."""
        told, size = os.environ.get(DIRECTORY_VARIABLE), os.environ.get(SIZE_VARIABLE)
        directory = told or os.path.join(platformdirs.user_cache_dir("touchfs"), "scratch")
        return cls(os.path.abspath(directory), parse_size(size) if size else None)

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name + _SUFFIX)

    def find(self, name: str) -> ScratchFile | None:
        """The file of this name, held; None where it is not there, or is not believed."""
        try:
            held = ScratchFile(self.path(name), open_alone(self.path(name), os.O_RDWR))
            # Who has it locked for himself is about to remove it, which takes no time.
            fcntl.flock(held._descriptor, fcntl.LOCK_SH)
            if not held.is_there:
                return None
            os.utime(held._descriptor, ns=(time.time_ns(), os.fstat(held._descriptor).st_mtime_ns))
        except (FileNotFoundError, UntrustedError):
            return None
        except OSError as error:
            raise self._failed(error) from error
        return held

    def stored(self) -> list[str]:
        """The paths of all files that are whole."""
        try:
            return sorted(file.path for file in self._files() if file.is_whole)
        except FileNotFoundError:
            return []

    def is_used(self, path: str) -> bool:
        """Somebody holds this file."""
        with ExitStack() as until_seen:
            return not _locked(path, until_seen)

    def make(self, name: str, pieces: Iterable[Buffer], at_least: int = 0) -> ScratchFile:
        """The file of this name, held; if it is not there, made of `pieces`, which are `at_least` so many bytes.

        If another process is making it, that is waited for. Raises SourceError where there is no room for it; then, and
        after an error of `pieces`, nothing of it stays.
        """
        try:
            make_directory(self.directory)
            check_directory(self.directory)
            while (held := self.find(name)) is None:
                with self._claimed(name) as descriptor:
                    if descriptor is None:
                        time.sleep(_POLL_SECONDS)
                    elif (held := self.find(name)) is None:  # which another may have made since we looked
                        return self._write(descriptor, name, pieces, at_least)
        except UntrustedError as error:
            told = f"{error.message}: see to that, or name another --scratch-dir"
            raise SourceError(told, path=error.path) from error
        except OSError as error:
            raise self._failed(error) from error
        return held

    @contextmanager
    def _claimed(self, name: str) -> Iterator[int | None]:
        """The file in the making, locked for us, and removed at the end if it is not whole by then; None if it is
        another process's.
        """
        path = self._unfinished(name)
        descriptor = open_to_change(path, os.O_RDWR)
        try:
            if not _lock(descriptor) or not _is_at(descriptor, path):
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
        os.ftruncate(descriptor, 0)  # what a process left that was killed
        room, size = self._set_aside(descriptor, at_least), 0
        with open(descriptor, "wb", AHEAD_SIZE, closefd=False) as file:
            for piece in pieces:
                size += len(piece)
                if size > room:
                    room = self._set_aside(descriptor, size)
                file.write(piece)
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)
        os.rename(self._unfinished(name), self.path(name))
        held = ScratchFile(self.path(name), os.dup(descriptor))
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # of both numbers, as they are one open file
        if not held.is_there:
            raise SourceError("was evicted as soon as it was made: --scratch-size raises the limit", path=held.path)
        return held

    def _set_aside(self, descriptor: int, needed: int) -> int:
        """Make room for a file in the making of `needed` bytes or more. Returns how many it may have."""
        with self._alone(), ExitStack() as going:
            own = os.fstat(descriptor)
            files = list(self._files())
            others = [file for file in files if file.stat.st_ino != own.st_ino]
            others.sort(key=lambda file: (file.is_whole, file.stat.st_atime_ns))
            used = sum(file.stat.st_size for file in others)
            limit = self._limit(files)
            evicted = []
            for file in others if needed <= limit else []:
                if file.is_whole and used + needed <= limit:
                    break
                if _locked(file.path, going):
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
                        yield _File(entry.path, check_file(entry.path))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        descriptor = open_to_change(os.path.join(self.directory, _LOCK), os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _unfinished(self, name: str) -> str:
        return os.path.join(self.directory, TEMPORARY_PREFIX + name + _SUFFIX)

    def _failed(self, error: OSError) -> SourceError:
        told = "--scratch-dir names another place"
        if error.errno in _FULL:
            told = f"free some space there, or {told}"
        return SourceError(f"the scratch store cannot be used: {error.strerror}; {told}", path=self.directory)


def _lock(descriptor: int) -> bool:
    """Lock for us alone, if nobody else has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _locked(path: str, until: ExitStack) -> bool:
    """Lock a file for us alone until then, if nobody else has it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    until.callback(os.close, descriptor)
    return _lock(descriptor) and _is_at(descriptor, path)


def _is_at(descriptor: int, path: str) -> bool:
    """Whether a path still is that of an open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False
