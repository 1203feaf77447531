"""Open a file below a directory, and never one outside, whatever the path and the links on it are.

Linux from 5.6 on refuses each step that leaves the directory (`openat2` with RESOLVE_BENEATH), so nothing can be
exchanged between a check and the open. Links that stay below are followed, except where links are guarded
(`touchfs.posix.links`). Elsewhere each component is opened without following any link, and `..` is refused.

Source: openat2(2), include/uapi/linux/openat2.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from functools import cache

from touchfs.posix.links import is_guarding, open_data

_OPENAT2 = 437  # on all architectures that Python names
# flags, mode, resolve
_How = ctypes.c_uint64 * 3
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
# The kernel gives up if something is renamed meanwhile, as it cannot know then where `..` leads.
_ATTEMPTS = 100
_LEFT = frozenset({errno.EXDEV, errno.ELOOP})


def open_beneath(root: str, path: str, flags: int) -> int:
    """Open a regular file by its path relative to the directory `root`, and return its descriptor.

    Raises OSError, with EXDEV if the path leads out of the root.
    """
    if "\0" in path:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    directory = open_data(root, _DIRECTORY)
    try:
        # Without waiting at a pipe, which is no regular file.
        open_it = _by_kernel if _has_openat2() else _by_component
        descriptor = open_it(directory, os.fsencode(path), flags | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in _LEFT:
            raise OSError(errno.EXDEV, f"leads out of {root}, or through a link that is not followed", path) from error
        raise
    finally:
        os.close(directory)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is not a regular file", path)
    return descriptor


@cache
def _has_openat2() -> bool:
    """True if the kernel has the call, and no filter of a container forbids it."""
    try:
        os.close(_openat2(None, b"/", _DIRECTORY, _NO_MAGICLINKS))
    except OSError:
        return False
    return True


def _by_kernel(directory: int, path: bytes, flags: int) -> int:
    resolve = _BENEATH | _NO_MAGICLINKS | (_NO_SYMLINKS if is_guarding() else 0)
    for _ in range(_ATTEMPTS):
        try:
            return _openat2(directory, path, flags, resolve)
        except BlockingIOError:
            continue
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), os.fsdecode(path))


def _openat2(directory: int | None, path: bytes, flags: int, resolve: int) -> int:
    how = _How(flags, 0, resolve)
    at = ctypes.c_int(-1 if directory is None else directory)
    libc = ctypes.CDLL(None, use_errno=True)
    found: int = libc.syscall(
        ctypes.c_long(_OPENAT2), at, ctypes.c_char_p(path), ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how))
    )
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fsdecode(path))
    return found


def _by_component(directory: int, path: bytes, flags: int) -> int:
    *above, name = path.split(b"/")
    if path.startswith(b"/") or b".." in (*above, name):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), os.fsdecode(path))
    at = os.dup(directory)
    try:
        for each in above:
            if each not in (b"", b"."):
                inside = os.open(each, _DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                os.close(at)
                at = inside
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=at)
    finally:
        os.close(at)
