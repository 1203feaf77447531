"""The directory that an index is in: the user's cache, or beside the data."""

from __future__ import annotations

import os

import platformdirs

from touchfs.posix.atomic import write_error
from touchfs.posix.trust import INDEX_DIRECTORY, check_trusted_directory, make_directory, make_private


def index_directory() -> str:
    """The directory for all catalogs that are not kept beside their data."""
    return os.path.join(platformdirs.user_cache_dir("touchfs"), "index")


def index_place(source: str, *, in_place: bool = False) -> str:
    """The directory for a source's catalogs."""
    if not in_place:
        return index_directory()
    source = os.path.abspath(source)
    return os.path.join(source if os.path.isdir(source) else os.path.dirname(source), INDEX_DIRECTORY)


def check_place(place: str, source: str) -> None:
    """Raises UntrustedError or UnwritableError where the index of a source in a directory could not be believed."""
    try:
        check_trusted_directory(place, source)
        if os.path.basename(place) != INDEX_DIRECTORY:
            make_private(place)
    except (FileNotFoundError, NotADirectoryError):
        return  # it is made when it is needed
    except OSError as error:
        raise write_error(error, f"cannot be looked into: {error.strerror}", place) from error


def make_place(place: str) -> None:
    """Make the directory if it is not there. Raises UnwritableError or SourceError."""
    try:
        make_directory(place)
    except OSError as error:
        told = f"no index can be written: {error.strerror}; $XDG_CACHE_HOME or --in-place name another place"
        raise write_error(error, told, place) from error
