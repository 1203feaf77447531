"""Directories that are replaced as a whole while others read them.

A reader holds a directory: it opens it and locks it, shared. It goes on with that descriptor, whatever comes to lie at
the path. The new directory takes the path in one step, and the old one is removed once nobody holds it. The kernel
drops the locks of a process that ends.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from touchfs.posix.atomic import UNLOCKABLE, is_at, lock_if_possible, sync, sync_tree
from touchfs.posix.exchange import CannotExchangeError, exchange

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# End of the name of a directory that is to be replaced, where two paths cannot be swapped.
SET_ASIDE = "~"


def hold_directory(path: str | os.PathLike[str]) -> int:
    """Return a descriptor of the directory that is at a path now, which nobody removes until it is closed.

    Raises OSError.
    """
    while True:
        descriptor = os.open(path, _DIRECTORY)
        try:
            # Waits only while an old directory is being removed, which is not at the path any more.
            lock_if_possible(descriptor, fcntl.LOCK_SH)
            if is_at(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


class HeldDirectory:
    """The directory that was at `place` when this was made, held until this object is gone.

    In another process, to which it is pickled, it is the same directory. Raises OSError.
    """

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self.place = os.fspath(place)
        self._descriptor = hold_directory(place)
        weakref.finalize(self, os.close, self._descriptor)

    @property
    def path(self) -> str:
        """A path that leads to this directory, whatever lies at its place; without /proc the place."""
        path = f"/proc/self/fd/{self._descriptor}"
        return path if os.path.isdir(path) else self.place

    @property
    def is_current(self) -> bool:
        """True if the directory is still the one at its place. Raises OSError."""
        return is_at(self._descriptor, self.place)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        return _hold_moved, (os.path.realpath(self.path), self.place)


def _hold_moved(path: str, place: str) -> HeldDirectory:
    directory = HeldDirectory(path)
    directory.place = place
    return directory


class HeldPath(os.PathLike[str]):
    """A file in a held directory. `str` of it is the path at the directory's place, for messages."""

    __slots__ = ("_directory", "_name")

    def __init__(self, directory: HeldDirectory, name: str) -> None:
        self._directory = directory
        self._name = name

    def __fspath__(self) -> str:
        return os.path.join(self._directory.path, self._name)

    def __str__(self) -> str:
        return os.path.join(self._directory.place, self._name)

    __repr__ = __str__


def publish_directory(new: Path, path: Path) -> None:
    """Move a complete directory to `path`, where it replaces another one. Its data are on the disk before.

    Where the file system can swap two paths, there is a directory at the path at every moment. Elsewhere the old one is
    set aside for a moment. It gets the name of the new one, and is removed at once if nobody holds it. Raises OSError
    and SourceError.
    """
    sync_tree(new)
    if not path.is_dir():
        os.rename(new, path)
        sync(path.parent)
        return
    try:
        exchange(os.fspath(new), os.fspath(path))
    except CannotExchangeError:
        old = new.with_name(new.name + SET_ASIDE)
        os.rename(path, old)
        os.rename(new, path)
        os.rename(old, new)
    sync(path.parent)
    remove_unheld(new)


def remove_unheld(path: Path) -> None:
    """Remove a directory and all that is in it, unless somebody holds it. What cannot be removed stays."""
    try:
        descriptor = os.open(path, _DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
    except OSError as error:
        if error.errno not in UNLOCKABLE:  # without locks, somebody may hold it
            raise
    finally:
        os.close(descriptor)
