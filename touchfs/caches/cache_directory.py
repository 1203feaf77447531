"""The directory of a cache, and the text of the metadata in it.

A reader holds the directory (`touchfs.posix.published`), so all that it reads is of one cache, even if another one
takes its place meanwhile.
"""

from __future__ import annotations

import os

from touchfs.core.errors import CacheFormatError, MissingFileError, map_os_errors
from touchfs.format.cache_metadata import METADATA_FILE
from touchfs.posix.beneath import open_beneath
from touchfs.posix.published import HeldDirectory

# A video takes some 200 bytes.
_METADATA_MAX = 1 << 30


def hold_cache(path: str | os.PathLike[str]) -> HeldDirectory:
    """Hold the directory of a cache. Raises MissingFileError and SourceError."""
    with map_os_errors(os.fspath(path)):
        try:
            return HeldDirectory(path)
        except (FileNotFoundError, NotADirectoryError):
            raise _no_metadata(os.fspath(path)) from None


def read_metadata(directory: HeldDirectory) -> bytes:
    """Return the text of a cache's metadata.

    Raises MissingFileError, CacheFormatError for more than a gibibyte, and SourceError if a link leads out.
    """
    with map_os_errors(os.path.join(directory.place, METADATA_FILE)):
        try:
            descriptor = open_beneath(directory.path, METADATA_FILE, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise _no_metadata(directory.place) from None
        with open(descriptor, "rb") as file:
            size = os.fstat(descriptor).st_size
            if size > _METADATA_MAX:
                raise CacheFormatError(f"metadata of {size:,} bytes", path=directory.place)
            return file.read(_METADATA_MAX)


def _no_metadata(place: str) -> MissingFileError:
    return MissingFileError(
        f"No metadata file at {os.path.join(place, METADATA_FILE)}: touchfs.open opens what is no cache"
    )
