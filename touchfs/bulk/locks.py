"""Locks of jobs on their output. The kernel drops them with their process, so a killed job leaves none.

No process may clean up while another still writes, which may be a worker whose parent was killed. So every writer holds
a lock shared, and a process that cleans up holds it exclusively.
"""

from __future__ import annotations

import errno
import fcntl
import time

from touchfs.core.errors import UsageError

# A worker notices quickly that its parent was killed.
_PATIENCE_SECONDS = 3.0
_UNLOCKABLE = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK})


def lock(descriptor: int, kind: int, path: str, job: str) -> None:
    """Lock a file or directory with flock, LOCK_EX or LOCK_SH.

    Raises UsageError that names `path` and the job if another process keeps it locked, and OSError.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise UsageError(f"another `{job}` is at work here: wait for it", path=path) from error
            time.sleep(0.02)
        except OSError as error:
            if error.errno in _UNLOCKABLE:  # a file system without locks: there, do not run two jobs at once
                return
            raise
