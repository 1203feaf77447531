"""Files and directories that appear whole or not at all, whatever kills the process or the machine.

Everything is made under a temporary name beside its place, flushed to the disk, renamed into place, and then the
directory that holds it is flushed. So a reader sees the old or the new, never a part; what a killed process leaves
behind begins with `.touchfs-tmp-` and may be deleted by anyone.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from touchfs.errors import SourceError, UnwritableError, UsageError

TEMPORARY_PREFIX = ".touchfs-tmp-"
# Of a directory that is about to take another one's place (`touchfs.bulk.swapped`): only who swaps may delete it.
SWAP_PREFIX = f"{TEMPORARY_PREFIX}swap-"
# Where nothing can be written, whatever is deleted. A directory that is in the way is one that we may not replace.
_REFUSED = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EIO}
)


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A new file to write to, which takes the place of any old one at the end, unless an exception comes first.

    A symbolic link stays, and the file it leads to is replaced. What is no file, as `/dev/stdout`, is refused.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file() and not path.is_dir():
        raise SourceError("cannot be written: is no regular file", path=str(path))
    with replacement(path, 0o666) as file:
        yield file


@contextmanager
def replacement(path: Path, mode: int) -> Iterator[BinaryIO]:
    """A new file of this mode, as far as the umask allows, that takes the place of whatever is at the path at the end.

    A symbolic link is replaced too. Raises UnwritableError where we have no permission, else SourceError.
    """
    temporary = _beside(path)
    try:
        with open(temporary, "xb", opener=lambda path, flags: os.open(path, flags | os.O_CLOEXEC, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync(path.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise unwritable(error, f"cannot be written: {error.strerror or error}", path) from error
        raise


@contextmanager
def atomic_directory(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A directory to fill, which becomes `path` at the end, unless an exception comes first. `path` must be new."""
    path = Path(path)
    if os.path.lexists(path):
        raise UsageError("already exists: remove it, or choose another path", path=str(path))
    temporary = _beside(path)
    try:
        temporary.mkdir()
        yield temporary
        for directory, _, names in os.walk(temporary):
            for name in names:
                _sync(Path(directory, name))
            _sync(Path(directory))
        os.rename(temporary, path)
        _sync(path.parent)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError):
            raise unwritable(error, f"cannot be written: {error.strerror or error}", path) from error
        raise


def _beside(path: Path) -> Path:
    # 64 random bits rather than the process id, which is not unique over the machines that share a file system.
    return path.parent / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unwritable(error: OSError, problem: str, path: str | os.PathLike[str]) -> SourceError:
    """Our error for one of writing: UnwritableError where nothing can be written."""
    kind = UnwritableError if error.errno in _REFUSED else SourceError
    return kind(problem, path=os.fspath(path))
