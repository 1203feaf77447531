"""The bytes of a file that a user gives as bytes or as a path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from touchfs.errors import map_os_errors


def file_bytes(value: Any) -> bytes | None:
    """The bytes of a file that is given as bytes or as a path; None for any other value.

    Raises NotFoundError and SourceError for a path.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str | Path):
        with map_os_errors(str(value)):
            return Path(value).read_bytes()
    return None
