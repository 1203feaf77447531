"""Files of a user that hold secrets."""

from __future__ import annotations

import os
import stat

from touchfs.errors import UsageError


def read_private(path: str, most: int) -> bytes:
    """The first `most` bytes of a file that only its owner can read. Raises UsageError if others can, and OSError."""
    with open(path, "rb") as file:
        if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
            raise UsageError("others may read it, and it may hold secrets: `chmod 600` it", path=path)
        return file.read(most)
