"""Decide whether to trust files that touchfs itself wrote: catalogs, keys, dataset files, scratch files, states, logs.

They may be where others can write too: beside the data, or in a shared directory. So touchfs never opens them through a
symbolic link, and trusts only a regular file that nobody can have written except

    root, and we: our user, or the owner that new files of ours get in that directory (NFS and FAT name another one)
    users named by TOUCHFS_TRUST, which is `--trust`
    in `.touchfs-index/`, beside the data: the owner of the data, who could change the data as well

The same rule applies to the directory of the file, unless it is sticky, as /tmp is: there nobody can replace a file
that we trust. The directory may be a link if a trusted user owns the link. Directories above are not checked: a user
who can rename them can only show us files that a trusted user made.

Files that we create are private (0600 in directories of 0700); in `.touchfs-index/` the umask decides.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

from touchfs.core.errors import UntrustedError, UsageError
from touchfs.posix.atomic import TEMPORARY_PREFIX, replacement
from touchfs.posix.links import resolve

INDEX_DIRECTORY = ".touchfs-index"
TRUST_VARIABLE = "TOUCHFS_TRUST"
# A planted pipe cannot block us, and a planted terminal does not become ours.
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def parse_users(names: Iterable[str]) -> str:
    """Return the value of TOUCHFS_TRUST for users given by name or number. Raises UsageError for an unknown name."""
    numbers = []
    for name in names:
        try:
            numbers.append(int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid)
        except KeyError:
            raise UsageError(f"there is no user {name!r}") from None
    return ",".join(map(str, numbers))


def open_trusted(path: str, data: str | None = None, flags: int = os.O_RDONLY) -> int:
    """Open a file that touchfs wrote and return its descriptor. `data` is the shard or dataset that the file describes:
    in `.touchfs-index/` its owner is trusted.

    Raises UntrustedError if the file is not trusted, and OSError.
    """
    directory, name = os.path.split(path)
    holder = _open_directory(directory or ".", data)
    try:
        descriptor = os.open(name, flags | _SAFELY, dir_fd=holder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UntrustedError("is a symbolic link", path=path) from None
        if error.errno in (errno.ENXIO, errno.EISDIR):
            raise UntrustedError("is not a regular file", path=path) from None
        raise
    finally:
        os.close(holder)
    try:
        _check_file(path, os.fstat(descriptor), data)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_trusted_unique(path: str, flags: int = os.O_RDONLY) -> int:
    """Like `open_trusted`, for a file whose content cannot be verified: it must also have no other hard link."""
    descriptor = open_trusted(path, None, flags)
    if os.fstat(descriptor).st_nlink > 1:
        os.close(descriptor)
        raise UntrustedError("is a hard link to another file", path=path)
    return descriptor


def check_trusted_file(path: str, data: str | None = None) -> os.stat_result:
    """Return the status of a file that touchfs wrote, without checking its directory. Raises as `open_trusted`."""
    found = os.lstat(path)
    _check_file(path, found, data)
    return found


def open_for_update(path: str, flags: int) -> int:
    """Open a file of ours for writing, creating it if missing. A hard link is refused: it would change another file.

    An untrusted file is removed and created again. Raises UntrustedError if it cannot be removed, and OSError.
    """
    while True:
        with suppress(FileExistsError):
            holder = _open_directory(os.path.dirname(path) or ".", None)
            try:
                flags_new = flags | _SAFELY | os.O_CREAT | os.O_EXCL
                return os.open(os.path.basename(path), flags_new, 0o600, dir_fd=holder)
            finally:
                os.close(holder)
        with suppress(FileNotFoundError):
            try:
                return open_trusted_unique(path, flags)
            except UntrustedError as error:
                try:
                    os.unlink(path)
                except FileNotFoundError:
                    raise
                except OSError:
                    raise error from None


def open_named(path: str, flags: int) -> int:
    """Open a file that somebody has named for writing, creating it if missing: a regular file, or a device.

    Raises UntrustedError if a link on the way is another user's, or for a pipe, and OSError.
    """
    target, owners = resolve(path)
    directory = os.path.dirname(target)
    for owner in owners:
        if not _is_trusted(owner, directory, None, directory):
            raise UntrustedError(f"is reached by a link of {_name(owner)}", path=path)
    holder = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if os.readlink(f"/proc/self/fd/{holder}") != directory:  # a link changed since `resolve`
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
        descriptor = os.open(os.path.basename(target), flags | os.O_CREAT | _SAFELY, 0o666, dir_fd=holder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UntrustedError("is a symbolic link", path=path) from None
        if error.errno == errno.ENXIO:
            raise UntrustedError("is not a regular file", path=path) from None
        raise
    finally:
        os.close(holder)
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode)):
        os.close(descriptor)
        raise UntrustedError("is not a regular file", path=path)
    return descriptor


def check_trusted_directory(path: str, data: str | None = None) -> None:
    """Check that files in a directory can be trusted. Raises UntrustedError if not, and OSError if it is missing."""
    os.close(_open_directory(path, data))


def make_directory(path: str) -> None:
    """Create a directory for files of ours. An existing one keeps its mode. Raises OSError."""
    shared = _is_index_in_place(path)
    os.makedirs(path, 0o755 if shared else 0o700, exist_ok=True)


def make_private(path: str) -> None:
    """Make a directory of ours private (mode 0700) if we own it and others have access."""
    found = os.lstat(path)
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077:
        os.chmod(path, 0o700)


@contextmanager
def atomic_own_file(path: str) -> Iterator[BinaryIO]:
    """Open a new file of ours for writing that replaces whatever is at the path on success; a link itself is replaced,
    not its target. Raises as `replacement`.
    """
    shared = _is_index_in_place(os.path.dirname(path))
    with replacement(Path(path), 0o644 if shared else 0o600) as file:
        if not shared:
            os.fchmod(file.fileno(), 0o600)
        yield file


def _is_index_in_place(directory: str) -> bool:
    return os.path.basename(directory) == INDEX_DIRECTORY


def _open_directory(path: str, data: str | None) -> int:
    """Return a path-only descriptor (O_PATH) of a trusted directory."""
    link = os.lstat(path)
    if stat.S_ISLNK(link.st_mode) and not _is_trusted(link.st_uid, path, data, os.path.dirname(path) or "."):
        raise UntrustedError(f"is a symbolic link of {_name(link.st_uid)}", path=path)
    descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not _is_trusted(found.st_uid, path, data, path):
            raise UntrustedError(f"belongs to {_name(found.st_uid)}", path=path)
        if _others_write(found) and not found.st_mode & stat.S_ISVTX:
            raise UntrustedError("others may write to this directory", path=path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_file(path: str, found: os.stat_result, data: str | None) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = "is a symbolic link" if stat.S_ISLNK(found.st_mode) else "is not a regular file"
        raise UntrustedError(kind, path=path)
    directory = os.path.dirname(path) or "."
    if not _is_trusted(found.st_uid, directory, data, directory):
        raise UntrustedError(f"belongs to {_name(found.st_uid)}", path=path)
    if _others_write(found):
        raise UntrustedError("others may write to this file", path=path)


def _is_trusted(user: int, index: str, data: str | None, directory: str) -> bool:
    """Return whether files that this user wrote in `directory` are trusted. `index` may be a `.touchfs-index/`, whose
    files the owner of `data` may write.
    """
    if user in (0, os.geteuid()) or str(user) in os.environ.get(TRUST_VARIABLE, "").split(","):
        return True
    if data is not None and _is_index_in_place(index):
        with suppress(OSError):
            if os.stat(data).st_uid == user:
                return True
    return user == _user_in(directory)


def _user_in(directory: str) -> int | None:
    """Return the owner that a new file of ours gets in a directory; None if we cannot create one."""
    path = os.path.join(directory, TEMPORARY_PREFIX + os.urandom(8).hex())
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY, 0o600)
    except OSError:
        return None
    try:
        return os.fstat(descriptor).st_uid
    finally:
        os.close(descriptor)
        with suppress(OSError):
            os.unlink(path)


def _others_write(found: os.stat_result) -> bool:
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_group_of_one(found.st_uid, found.st_gid)


@cache
def _is_group_of_one(user: int, group: int) -> bool:
    """Return whether a group is a user private group: many systems make one per user and files group-writable."""
    try:
        person, members = pwd.getpwuid(user), grp.getgrgid(group)
    except KeyError:
        return False
    alone = not set(members.gr_mem) - {person.pw_name}
    return group != 0 and person.pw_gid == group and members.gr_name == person.pw_name and alone


def _name(user: int) -> str:
    with suppress(KeyError):
        return pwd.getpwuid(user).pw_name
    return f"user {user}"
