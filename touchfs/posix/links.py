"""Follow symbolic links in data safely when root serves it to others: only if the link's owner can read the target.

Root can read everything. If root mounts data with `--allow-other`, a user who may write to the data could publish
`/etc/shadow` through a link. After `guard`, in this process and all its children, a file reached through links is
opened with the rights of each link's owner in turn; links that root owns are trusted. setfsuid(2) changes the rights of
this thread only, so other threads are not affected.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager

_VARIABLE = "TOUCHFS_GUARD_LINKS"
_LINKS_MAX = 40  # the kernel's limit
# glibc's setgroups changes all threads of a process; the system call changes one.
_SETGROUPS = {"x86_64": 116, "aarch64": 159, "riscv64": 159}.get(platform.machine())
_ROOT = 0
_UNKNOWN_GROUP = 65534


def guard() -> None:
    """Check the owners of links from now on, in this process and its children."""
    os.environ[_VARIABLE] = "1"


def is_guarding() -> bool:
    """True after `guard`, in this process or the one that started it."""
    return _VARIABLE in os.environ


def open_data(path: str, flags: int) -> int:
    """Open a data file and return its descriptor. Raises OSError, with EACCES if a link's owner may not read it."""
    if not is_guarding():
        return os.open(path, flags)
    target, owners = resolve(path)
    descriptor = os.open(target, flags | os.O_NOFOLLOW) if not owners else -1
    for owner in owners:
        if descriptor >= 0:
            os.close(descriptor)
        with _rights_of(owner, path):
            descriptor = os.open(target, flags | os.O_NOFOLLOW)
    try:
        if os.readlink(f"/proc/self/fd/{descriptor}") != target:  # a link changed since `resolve`
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
    except OSError:  # also without /proc
        os.close(descriptor)
        raise
    return descriptor


def check_links(path: str) -> None:
    """Check that `open_data` would open a file or directory for reading. Raises OSError otherwise."""
    if is_guarding() and resolve(path)[1]:
        os.close(open_data(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK))


def resolve(path: str) -> tuple[str, list[int]]:
    """Return the path without links, and the owners of the links on the way except root. Only what a path names at last
    may be missing. Raises OSError.
    """
    at, left = "/", os.path.abspath(path).split("/")[::-1]
    owners: dict[int, None] = {}
    links = 0
    while left:
        name = left.pop()
        if name in ("", "."):
            continue
        if name == "..":
            at = os.path.dirname(at)
            continue
        step = os.path.join(at, name)
        try:
            found = os.lstat(step)
        except FileNotFoundError:
            if left:
                raise
            return step, list(owners)
        if not stat.S_ISLNK(found.st_mode):
            at = step
            continue
        links += 1
        if links > _LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        if found.st_uid != _ROOT:
            owners[found.st_uid] = None
        leads_to = os.readlink(step)
        at = "/" if leads_to.startswith("/") else at
        left += leads_to.split("/")[::-1]
    return at, list(owners)


@contextmanager
def _rights_of(user: int, path: str) -> Iterator[None]:
    """Give this thread the file access rights of a user. An error of permission inside becomes EACCES for `path`."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.getgroups()
    try:
        person = pwd.getpwuid(user)
        name, group = person.pw_name, person.pw_gid
        groups = os.getgrouplist(name, group)
    except KeyError:
        name, group, groups = f"user {user}", _UNKNOWN_GROUP, []
    refused = OSError(errno.EACCES, f"is reached by a link of {name}, who may not read it", path)
    try:
        _set_groups(libc, groups)
        libc.setfsgid(group)
        libc.setfsuid(user)
        if libc.setfsuid(-1) != user:
            raise refused
        yield
    except PermissionError as error:
        raise refused from error
    finally:
        libc.setfsuid(os.geteuid())
        libc.setfsgid(os.getegid())
        _set_groups(libc, before)


def _set_groups(libc: ctypes.CDLL, groups: list[int]) -> None:
    if _SETGROUPS is None or libc.syscall(_SETGROUPS, len(groups), (ctypes.c_uint * len(groups))(*groups)) != 0:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
