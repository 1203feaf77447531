"""Symbolic links in data, when root serves them to others: each is followed only where its owner could read the target.

Root can read everything. So a user who may write to the data could show `/etc/shadow` to all by a link to it, if root
mounts these with `--allow-other`. From `guard` on, for this process and all that it starts, what is reached through
links is opened with the rights of their owners, of each of them in turn; links of root are root's own choice. The
rights are this thread's alone (setfsuid(2)), so nothing else that runs here notices.
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
_LINKS_MAX = 40  # as the kernel follows
# glibc's setgroups is for all threads of a process; the system call is for one.
_SETGROUPS = {"x86_64": 116, "aarch64": 159, "riscv64": 159}.get(platform.machine())
_ROOT = 0
_UNKNOWN_GROUP = 65534


def guard() -> None:
    """From now on, look whose links are followed."""
    os.environ[_VARIABLE] = "1"


def open_data(path: str, flags: int) -> int:
    """A descriptor of a file of the data. Raises OSError."""
    if _VARIABLE not in os.environ:
        return os.open(path, flags)
    target, owners = _resolve(path)
    descriptor = os.open(target, flags | os.O_NOFOLLOW) if not owners else -1
    for owner in owners:
        if descriptor >= 0:
            os.close(descriptor)
        with _rights_of(owner, path):
            descriptor = os.open(target, flags | os.O_NOFOLLOW)
    if os.readlink(f"/proc/self/fd/{descriptor}") != target:  # somebody changed links meanwhile
        os.close(descriptor)
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
    return descriptor


def check_links(path: str) -> None:
    """Whether `open_data` would open a file or directory for reading. Raises OSError."""
    if _VARIABLE in os.environ and _resolve(path)[1]:
        os.close(open_data(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK))


def _resolve(path: str) -> tuple[str, list[int]]:
    """Where a path leads to, and the owners of the links on the way, without root."""
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
        found = os.lstat(step := os.path.join(at, name))
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
    """This thread opens files as a user meanwhile. Raises OSError where we cannot, and for what the user may not."""
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
