"""Replace some files of a directory together, so that no reader sees a mix of new and old files, or none.

A new directory is made beside the old one, with the new files and hard links to all others. The two are exchanged in
one step, and the old one, which then has the temporary name, is deleted. A reader that opens several files through one
descriptor of the directory gets files of one version, or finds the directory deleted. (A reader that opens them by path
may see the exchange in between; that cannot be prevented.)
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from touchfs.bulk.locks import lock
from touchfs.bulk.unfinished import PLAN
from touchfs.core.errors import SourceError, UsageError
from touchfs.posix.atomic import SWAP_PREFIX, sync
from touchfs.posix.exchange import exchange
from touchfs.posix.trust import INDEX_DIRECTORY

_JOB = "touchfs meta put"


@contextmanager
def locked_parents(parents: Iterable[str]) -> Iterator[None]:
    """Lock directories against other jobs' exchanges in them, and remove what killed processes left there: first, and
    at the end of a block without an exception.

    Raises UsageError if another `touchfs meta put` or a `touchfs pack` is at work there, and SourceError.
    """
    locked = {}
    with ExitStack() as stack:
        for parent in parents:
            descriptor = locked[parent] = stack.enter_context(_locked(parent, fcntl.LOCK_EX))
            if PLAN in _clean(parent):  # it would take the new directory for a shard of its own
                raise UsageError("an unfinished `touchfs pack` is here: let it finish first", path=parent)
            # Workers lock it too. Not atomic: another job may lock it in between, and then this fails.
            lock(descriptor, fcntl.LOCK_SH, parent, _JOB)
        yield
        for parent, descriptor in locked.items():
            with suppress(UsageError):  # a worker that a cluster gave up may still write
                lock(descriptor, fcntl.LOCK_EX, parent, _JOB)
                _clean(parent)


def _clean(parent: str) -> list[str]:
    """Remove what exchanges left in a directory. Returns the names that were in it."""
    try:
        names = os.listdir(parent)
        for name in names:
            if name.startswith(SWAP_PREFIX):
                shutil.rmtree(os.path.join(parent, name))
    except OSError as error:
        raise SourceError(f"cannot be tidied: {error.strerror}", path=parent) from error
    return names


@contextmanager
def _locked(parent: str, kind: int) -> Iterator[int]:
    """Open a directory and lock it, `kind` as for flock, until the block ends."""
    try:
        descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise SourceError(f"cannot be locked: {error.strerror}", path=parent) from error
    try:
        lock(descriptor, kind, parent, _JOB)
        yield descriptor
    finally:
        os.close(descriptor)


def check_replaceable(directory: str, names: Collection[str]) -> None:
    """Raise SourceError or UsageError unless the named files in a directory can be replaced, as far as that is known
    without writing. The path of the directory contains no symbolic link.
    """
    for each in (directory, os.path.dirname(directory)):
        if not os.access(each, os.W_OK | os.X_OK):
            raise SourceError("cannot be written: no permission", path=each)
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name in names and entry.is_symlink():
                raise UsageError("is a symbolic link: put into the shard that it leads to", path=entry.path)
            # An index in place is the only subdirectory that a shard may have. It is moved.
            if entry.is_dir(follow_symlinks=False) and entry.name != INDEX_DIRECTORY:
                raise UsageError(f"holds a directory, {entry.name}, which cannot be linked: move it", path=directory)


@contextmanager
def replacing(directory: str, names: Collection[str]) -> Iterator[str]:
    """Yield a directory for the new versions of the named files. It replaces the old one when the block ends without
    an exception. The files must exist already; the new ones get their owners and modes. It may run in a worker of the
    process that called `locked_parents`.
    """
    parent = os.path.dirname(directory)
    with _locked(parent, fcntl.LOCK_SH), _replacing(parent, directory, names) as new:
        yield new


@contextmanager
def _replacing(parent: str, directory: str, names: Collection[str]) -> Iterator[str]:
    new = os.path.join(parent, SWAP_PREFIX + secrets.token_hex(8))
    try:
        os.mkdir(new, 0o700)
        try:
            _link_others(directory, new, names)
            yield new
            for name in names:
                _keep_status(os.path.join(directory, name), os.path.join(new, name))
                sync(Path(new, name))
            _keep_status(directory, new)
            sync(Path(new))
            exchange(directory, new)
            sync(Path(parent))
            _move_others(new, directory, names)
        finally:
            shutil.rmtree(new)
    except OSError as error:
        raise SourceError(f"cannot be replaced: {error.strerror or error}", path=directory) from error


def _link_others(old: str, new: str, names: Collection[str]) -> None:
    with os.scandir(old) as entries:
        for entry in entries:
            if entry.name not in names and entry.name != INDEX_DIRECTORY:
                os.link(entry.path, os.path.join(new, entry.name), follow_symlinks=False)


def _move_others(old: str, new: str, names: Collection[str]) -> None:
    """Move the index, and files created in the old directory meanwhile.

    Renaming a hard link to its twin does nothing.
    """
    for name in os.listdir(old):
        if name not in names:
            try:
                os.replace(os.path.join(old, name), os.path.join(new, name))
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # a new index was begun already
                    raise


def _keep_status(old: str, new: str) -> None:
    """Copy owner, mode and extended attributes, ACLs among them, but not the time."""
    before, after = os.stat(old), os.stat(new)
    if (before.st_uid, before.st_gid) != (after.st_uid, after.st_gid):
        try:
            os.chown(new, before.st_uid, before.st_gid)
        except PermissionError as error:
            problem = (
                f"its owner {before.st_uid} and group {before.st_gid} could not be kept: write as that user, or as root"
            )
            raise SourceError(problem, path=old) from error
    shutil.copystat(old, new)
    os.utime(new)
