"""A directory in memory for indexes that can be written nowhere else, for this process and its forks.

The process that made it removes it on exit. If that process is killed, the next one that needs such a directory removes
it: each directory is locked (flock) as long as any process uses it, and the kernel drops the lock with its last holder.

A mount makes the directory before it forks, because each of its processes may be the first to need it and may end
before the others.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress

from touchfs.core.errors import SourceError

_MEMORY = "/dev/shm"  # a file system in memory, on Linux
_PREFIX = "touchfs-index-"

_made: dict[str, tuple[int, int | None]] = {}  # at most one directory: the process that made it, and its lock


def index_in_memory() -> str:
    """The path of the directory, which is made on the first call. Raises SourceError if that fails."""
    if not _made:
        place = _MEMORY
        try:
            if not os.access(_MEMORY, os.W_OK | os.X_OK):
                place = tempfile.gettempdir()  # raises OSError if no directory is writable
            _remove_leftovers(place)
            path, lock = _make(place)
        except OSError as error:
            raise SourceError(f"no index can be kept in memory: {error.strerror}", path=place) from error
        _made[path] = os.getpid(), lock
        atexit.register(discard)
    return next(iter(_made))


def shared_index() -> str | None:
    """The path of the directory, or None if it was not made."""
    return next(iter(_made), None)


def share_index(path: str) -> None:
    """Use the directory of another process, which lives longer than this one and removes it."""
    _made.setdefault(path, (0, None))


def _make(place: str) -> tuple[str, int]:
    """Make a directory and lock it. Until it is locked, another process may take it for a leftover and remove it."""
    while True:
        path = tempfile.mkdtemp(prefix=_PREFIX, dir=place)
        with suppress(FileNotFoundError):
            if (lock := _lock(path)) is not None:
                if os.path.isdir(path):
                    return path, lock
                os.close(lock)


def discard() -> None:
    """Remove the directory if this process made it.

    Also runs at exit, but a daemon ends without running exit handlers.
    """
    for path, (pid, lock) in list(_made.items()):
        if pid == os.getpid():
            shutil.rmtree(path, ignore_errors=True)
            _made.clear()
            if lock is not None:
                os.close(lock)


def _remove_leftovers(place: str) -> None:
    with os.scandir(place) as entries:
        for entry in entries:
            if not entry.name.startswith(_PREFIX):
                continue
            with suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                is_ours = found.st_uid == os.geteuid() and stat.S_ISDIR(found.st_mode)
                if is_ours and (lock := _lock(entry.path)) is not None:
                    shutil.rmtree(entry.path, ignore_errors=True)
                    os.close(lock)


def _lock(path: str) -> int | None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return descriptor
