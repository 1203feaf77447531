"""Swap two files or directories atomically: Linux's `renameat2` with RENAME_EXCHANGE, which Python does not offer.

Both paths exist at every moment. Two renames would leave a moment in which one path is missing.
"""

from __future__ import annotations

import ctypes
import errno
import os

from touchfs.core.errors import SourceError

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
# The manual names EINVAL; kernels and FUSE daemons older than the call return the others.
_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})


class CannotExchangeError(SourceError):
    """The system or the file system has no such operation."""


def exchange(first: str, second: str) -> None:
    """Swap two paths of one file system. The swap is durable once their directories are flushed.

    Raises SourceError; CannotExchangeError if no two paths of this file system could be swapped.
    """
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        problem = "the system's C library cannot swap two paths: it has no renameat2"
        raise CannotExchangeError(problem, path=first) from None
    renameat2.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    if renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0:
        return
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        problem = "this file system cannot swap two paths (RENAME_EXCHANGE): use one that can, as ext4, XFS and Btrfs"
        raise CannotExchangeError(problem, path=first)
    raise SourceError(f"cannot be swapped with {os.path.basename(second)}: {os.strerror(number)}", path=first)
