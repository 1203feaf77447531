"""The directory of an index: in the user's cache, or beside the data."""

from __future__ import annotations

import os

import platformdirs

from touchfs.core.errors import UsageError
from touchfs.core.location import Location
from touchfs.posix.atomic import write_error
from touchfs.posix.trust import INDEX_DIRECTORY, check_trusted_directory, make_directory, make_private
from touchfs.registry.directory.members import directory_of


def index_directory() -> str:
    """The directory for all catalogs that are not beside their data."""
    return os.path.join(platformdirs.user_cache_dir("touchfs"), "index")


def index_place(source: Location, *, in_place: bool = False) -> str:
    """The directory for the catalogs of a source."""
    if not in_place:
        return index_directory()
    if source.is_url:
        raise UsageError(
            "--in-place is for data of this machine: an index that `touchfs index --in-place` has written beside a URL "
            "is found without it",
            path=source.path,
        )
    return os.path.join(directory_of(source.absolute), INDEX_DIRECTORY)


def check_place(place: str, source: str) -> None:
    """Raise UntrustedError or UnwritableError if an index of the source in this directory could not be trusted."""
    try:
        check_trusted_directory(place, source)
        if os.path.basename(place) != INDEX_DIRECTORY:
            make_private(place)
    except (FileNotFoundError, NotADirectoryError):
        return  # created on demand
    except OSError as error:
        raise write_error(error, f"cannot be looked into: {error.strerror}", place) from error


def make_place(place: str) -> None:
    """Create the directory if it does not exist. Raises UnwritableError or SourceError."""
    try:
        make_directory(place)
    except OSError as error:
        problem = f"no index can be written: {error.strerror}; $XDG_CACHE_HOME or --in-place name another place"
        raise write_error(error, problem, place) from error
