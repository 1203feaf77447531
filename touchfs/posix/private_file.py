"""Files of a user that hold secrets."""

from __future__ import annotations

import os
import stat
import time

from touchfs.core.errors import UsageError
from touchfs.posix.processes import is_readable

# For a program that writes the secret into a pipe.
_PIPE_SECONDS = 10.0


def read_private(path: str, most: int) -> bytes:
    """The first `most` bytes of a file or pipe that only its owner can read.

    Raises UsageError if others can, or if a pipe has no end in time, and OSError.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb", buffering=0) as file:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_IMODE(mode) & 0o077:
            raise UsageError("others may read it, and it may hold secrets: `chmod 600` it", path=path)
        data, deadline = b"", time.monotonic() + _PIPE_SECONDS
        while len(data) < most:
            if stat.S_ISFIFO(mode) and not is_readable(file.fileno(), max(0.0, deadline - time.monotonic())):
                raise UsageError(f"it is a pipe into which nobody has written within {_PIPE_SECONDS:g} s", path=path)
            more = file.read(most - len(data))
            if not more:
                break
            data += more
        return data
