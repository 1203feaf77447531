"""Atomic creation of files and directories: they appear complete or not at all, even after a kill or a power failure.

A file is written under a temporary name in the target directory, flushed to the disk and renamed; then the directory is
flushed. So a reader sees the old file or the new one, never a part. The name of a file that a killed process leaves
behind begins with `.touchfs-tmp-`; anyone may delete it if no process is writing it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from touchfs.core.errors import SourceError, TouchfsError, UnwritableError, UsageError

TEMPORARY_PREFIX = ".touchfs-tmp-"
# Prefix of a directory that is about to replace another one (`touchfs.bulk.replace_files`). Only the swapping job may
# delete it.
SWAP_PREFIX = f"{TEMPORARY_PREFIX}swap-"
# Errors that mean that no file can be written, however much is deleted. EISDIR: a directory has the name of the file,
# and we may not replace it.
_REFUSED = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EIO}
)

# File systems without locks.
UNLOCKABLE = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK})
# Beside a file that one process makes, whose turn it is.
_LOCK_SUFFIX = ".lock"

_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a new file for writing that replaces the file at `path` on success; an exception discards it.

    A symbolic link stays, and its target is replaced. Raises SourceError if the path exists and is not a regular file
    (`/dev/stdout`), otherwise as `replacement`.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file() and not path.is_dir():
        raise SourceError("cannot be written: is not a regular file", path=str(path))
    with replacement(path, 0o666) as file:
        yield file


@contextmanager
def replacement(path: Path, mode: int) -> Iterator[BinaryIO]:
    """Open a new file with this mode (less the umask) that replaces whatever is at the path on success.

    A symbolic link is replaced too. Raises UnwritableError without permission to write, and SourceError otherwise.
    """
    temporary = _beside(path)
    try:
        with open(temporary, "xb", opener=lambda path, flags: os.open(path, flags | os.O_CLOEXEC, mode)) as file:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, path)
        sync(path.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and not isinstance(error, TouchfsError):
            raise write_error(error, f"cannot be written: {error.strerror or error}", path) from error
        raise


@contextmanager
def atomic_directory(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Create a directory to fill, which is renamed to `path` on success; an exception discards it.

    Raises UsageError if `path` exists, otherwise as `replacement`.
    """
    path = Path(path)
    if os.path.lexists(path):
        raise UsageError("already exists: remove it, or choose another path", path=str(path))
    temporary = _beside(path)
    try:
        temporary.mkdir()
        yield temporary
        sync_tree(temporary)
        os.rename(temporary, path)
        sync(path.parent)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError) and not isinstance(error, TouchfsError):
            raise write_error(error, f"cannot be written: {error.strerror or error}", path) from error
        raise


def move_into(path: Path, directory: Path) -> None:
    """Like `move`, under the same name into a directory."""
    move(path, directory / path.name)


def move(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Move a complete file or directory to another path on the same file system, where it replaces a file.

    Raises UnwritableError or SourceError.
    """
    try:
        os.replace(path, target)
        sync(Path(target).parent)
    except OSError as error:
        raise write_error(error, f"cannot be written: {error.strerror or error}", target) from error


def is_locked(path: str | os.PathLike[str]) -> bool:
    """True if a process has locked a file, as it does with one that it writes under a temporary name."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)  # else a file system without locks
    finally:
        os.close(descriptor)
    return False


def _beside(path: Path) -> Path:
    # 64 random bits instead of the process id, which is not unique across machines that share a file system.
    return path.parent / f"{TEMPORARY_PREFIX}{os.urandom(8).hex()}"


def sync_tree(path: Path) -> None:
    """Flush a directory and all that is in it to the disk. Raises OSError, also for symbolic links."""
    for directory, _, names in os.walk(path):
        for name in names:
            sync(Path(directory, name))
        sync(Path(directory))


def sync(path: Path) -> None:
    """Flush a file or directory to the disk. Raises OSError, also for a symbolic link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file_system(path: str | os.PathLike[str]) -> None:
    """Flush all of the file system of a directory to the disk: thousands of small files in the time of a few `sync`.

    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if _libc.syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), os.fspath(path))
    finally:
        os.close(descriptor)


def write_error(error: OSError, problem: str, path: str | os.PathLike[str]) -> SourceError:
    """Convert an OSError from writing: UnwritableError if nothing can be written at `path`, else SourceError."""
    kind = UnwritableError if error.errno in _REFUSED else SourceError
    return kind(problem, path=os.fspath(path))


@contextmanager
def turn(path: str) -> Iterator[None]:
    """Have the turn to make the file at a path: one process or thread at a time has it, and who waits for it finds the
    file made.

    It is a lock on a file beside it, which the kernel drops with a process that ends. Raises UnwritableError or
    SourceError.
    """
    lock = path + _LOCK_SUFFIX
    try:
        descriptor = _take(lock)
    except OSError as error:
        raise write_error(error, f"cannot be written: {error.strerror}", path) from error
    try:
        yield
    finally:
        with suppress(OSError):
            os.unlink(lock)  # before it is let go of: who waits for it makes another one
        os.close(descriptor)


def is_taken(path: str) -> bool:
    """True if a process has the turn to make the file at a path."""
    return is_locked(path + _LOCK_SUFFIX)


def _take(lock: str) -> int:
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            lock_if_possible(descriptor, fcntl.LOCK_EX)
            if is_at(descriptor, lock):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def lock_if_possible(descriptor: int, kind: int) -> None:
    """Lock a file or directory, after waiting for it. Does nothing on a file system without locks. Raises OSError."""
    try:
        fcntl.flock(descriptor, kind)
    except OSError as error:
        if error.errno not in UNLOCKABLE:
            raise


def is_at(descriptor: int, path: str | os.PathLike[str]) -> bool:
    """Return whether an open file or directory is still the one at a path. Raises OSError."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
