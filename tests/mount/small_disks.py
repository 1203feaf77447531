"""File systems of 1 MiB, to be filled."""

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

# Only root mounts other file systems.
AS_ROOT = [] if os.geteuid() == 0 else ["sudo", "-n"]


@contextmanager
def small_disk(path: Path, options: str = "size=1m") -> Iterator[Path]:
    path.mkdir()
    subprocess.run([*AS_ROOT, "mount", "-t", "tmpfs", "-o", options, "tmpfs", path], check=True)
    try:
        yield path
    finally:
        subprocess.run([*AS_ROOT, "umount", "-l", path], check=True)


def fill(disk: Path, free: int = 0) -> None:
    """All that is left of it, but for some bytes."""
    with open(disk / "filling", "ab", 0) as file:
        with suppress(OSError):
            while True:
                file.write(bytes(4096))
        file.truncate(max(file.tell() - free, 0))


def refused(function: Callable[..., object], *arguments: Any) -> str:
    """The name of the errno that it ends with."""
    with pytest.raises(OSError) as caught:
        function(*arguments)
    return errno.errorcode[caught.value.errno or 0]
