"""Damage that no fingerprint shows: a byte of a file changes, and its size and times do not."""

import os
from pathlib import Path


def flip_byte(path: Path, offset: int) -> None:
    """Change one bit of the byte at an offset."""
    before = path.stat()
    with open(path, "r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
