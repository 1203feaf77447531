"""Files of our own: whose they are, and whether we believe them.

Catalogs, keys, dataset files, scratch files, states and logs may lie where others write too: beside the data, or in a
directory that many share. So none is opened through a link, and each is believed only if it is a file of its own,
which nobody can have written but

    root, and us: our user, or the one that files get which we make in that directory (NFS and FAT name others)
    users named by TOUCHFS_TRUST, which is `--trust`
    in `.touchfs-index/`, beside the data: the owner of the data, who could as well change these

The same holds for the directory that it is in, unless that is sticky, as /tmp is: there nobody can put another file
under the name of one that we believe. A directory may be a link, if that is one of theirs. What is above the directory
is not looked at: who can rename it can show us only what one of them made.

What we make is for us alone (0600 in directories of 0700), and in `.touchfs-index/` for all whom the umask allows.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

from touchfs.errors import UntrustedError, UsageError
from touchfs.posix.atomic import TEMPORARY_PREFIX, replacement

INDEX_DIRECTORY = ".touchfs-index"
TRUST_VARIABLE = "TOUCHFS_TRUST"
# Nothing that is planted makes us wait (a pipe), or becomes our terminal.
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def parse_users(names: Iterable[str]) -> str:
    """The value of TOUCHFS_TRUST for users, given by name or number. Raises UsageError for one that there is not."""
    numbers = []
    for name in names:
        try:
            numbers.append(int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid)
        except KeyError:
            raise UsageError(f"there is no user {name!r}") from None
    return ",".join(map(str, numbers))


def open_own(path: str, data: str | None = None, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a file of ours. `data` is the shard or source that it is about, for `.touchfs-index/`.

    Raises UntrustedError for what is not believed, and OSError.
    """
    directory, name = os.path.split(path)
    holder = _open_directory(directory or ".", data)
    try:
        descriptor = os.open(name, flags | _SAFELY, dir_fd=holder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UntrustedError("is a symbolic link", path=path) from None
        if error.errno in (errno.ENXIO, errno.EISDIR):
            raise UntrustedError("is no regular file", path=path) from None
        raise
    finally:
        os.close(holder)
    try:
        _check_file(path, os.fstat(descriptor), data)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_alone(path: str, flags: int = os.O_RDONLY) -> int:
    """The same for a file whose bytes do not show that it is what it is called: it must have no other name."""
    descriptor = open_own(path, None, flags)
    if os.fstat(descriptor).st_nlink > 1:
        os.close(descriptor)
        raise UntrustedError("is a hard link to another file", path=path)
    return descriptor


def check_file(path: str, data: str | None = None) -> os.stat_result:
    """The status of a file of ours, without opening it; its directory is not looked at. Raises as `open_own`."""
    found = os.lstat(path)
    _check_file(path, found, data)
    return found


def open_to_change(path: str, flags: int) -> int:
    """A file of ours to write into, made if it is not there. It has no other name, or that file would change, too.

    What is not believed is removed and made anew. Raises UntrustedError where that cannot be done, and OSError.
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
                return open_alone(path, flags)
            except UntrustedError as error:
                try:
                    os.unlink(path)
                except FileNotFoundError:
                    raise
                except OSError:
                    raise error from None


def check_directory(path: str, data: str | None = None) -> None:
    """Whether files in a directory can be believed. Raises UntrustedError, and OSError where there is none."""
    os.close(_open_directory(path, data))


def make_directory(path: str) -> None:
    """A directory for files of ours. One that is there keeps its mode. Raises OSError."""
    shared = _is_index_in_place(path)
    os.makedirs(path, 0o755 if shared else 0o700, exist_ok=True)


def tighten(path: str) -> None:
    """Let nobody else look into a directory that is ours by its name."""
    found = os.lstat(path)
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077:
        os.chmod(path, 0o700)


@contextmanager
def own_file(path: str) -> Iterator[BinaryIO]:
    """A new file of ours to write to, which takes the place of whatever is there at the end: of a link, not of what it
    leads to. Raises as `atomic_file`.
    """
    shared = _is_index_in_place(os.path.dirname(path))
    with replacement(Path(path), 0o644 if shared else 0o600) as file:
        if not shared:
            os.fchmod(file.fileno(), 0o600)
        yield file


def _is_index_in_place(directory: str) -> bool:
    return os.path.basename(directory) == INDEX_DIRECTORY


def _open_directory(path: str, data: str | None) -> int:
    """A descriptor of a directory, with which only names can be looked up."""
    link = os.lstat(path)
    if stat.S_ISLNK(link.st_mode) and not _is_believed(link.st_uid, path, data, os.path.dirname(path) or "."):
        raise UntrustedError(f"is a symbolic link of {_name(link.st_uid)}", path=path)
    descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not _is_believed(found.st_uid, path, data, path):
            raise UntrustedError(f"belongs to {_name(found.st_uid)}", path=path)
        if _others_write(found) and not found.st_mode & stat.S_ISVTX:
            raise UntrustedError("others may write to this directory", path=path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_file(path: str, found: os.stat_result, data: str | None) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = "is a symbolic link" if stat.S_ISLNK(found.st_mode) else "is no regular file"
        raise UntrustedError(kind, path=path)
    directory = os.path.dirname(path) or "."
    if not _is_believed(found.st_uid, directory, data, directory):
        raise UntrustedError(f"belongs to {_name(found.st_uid)}", path=path)
    if _others_write(found):
        raise UntrustedError("others may write to this file", path=path)


def _is_believed(user: int, index: str, data: str | None, directory: str) -> bool:
    """Whether we believe what a user wrote in a directory; `index` may be one in place, of `data`."""
    if user in (0, os.geteuid()) or str(user) in os.environ.get(TRUST_VARIABLE, "").split(","):
        return True
    if data is not None and _is_index_in_place(index):
        with suppress(OSError):
            if os.stat(data).st_uid == user:
                return True
    return user == _user_in(directory)


def _user_in(directory: str) -> int | None:
    """Whose a file is that we make in a directory; None where we can make none."""
    path = os.path.join(directory, TEMPORARY_PREFIX + secrets.token_hex(8))
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
    """Whether a group is the one that many systems make for each user, who then has files that it may write to."""
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
