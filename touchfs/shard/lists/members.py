"""The shards that a name with braces stands for, such as `s3://bucket/train-{000..099}.tar`."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress

from touchfs.errors import NotFoundError, SourceError, SourceTimeoutError, UsageError
from touchfs.format.braces import BracePattern, parse_braces
from touchfs.posix.paths import is_url, joinable, shown
from touchfs.source.data import DATA, find_type
from touchfs.source.store import FileType, Store

# From this many members in a directory of another store, one listing is quicker than asking for each.
_LISTED_MIN = 16


def find_members(path: str, store: Store = DATA) -> BracePattern | None:
    """The names that a path with braces stands for; None if it has none, or is itself the name of a file.

    Raises UsageError for too many names and for braces in the host or bucket of a URL, and SourceTimeoutError.
    """
    path = joinable(path)
    pattern = parse_braces(path)
    if pattern is None or _exists(path, store):
        return None
    if is_url(path) and not is_url(os.path.dirname(pattern.prefix)):
        raise UsageError("braces must come after the host or bucket: a data.list can name several", path=shown(path))
    return pattern


def _exists(path: str, store: Store) -> bool:
    try:
        store.stat(path)
    except SourceTimeoutError:
        raise  # a store that does not answer must not be asked for a million members
    except (NotFoundError, SourceError):
        return False
    return True


def directory_of(source: str, store: Store = DATA) -> str:
    """The directory of a source: itself, or what the source is in; of a name with braces, what all members are in."""
    if (pattern := find_members(source, store)) is not None:
        return os.path.dirname(pattern.prefix)
    source = joinable(source)
    is_directory = find_type(source, store) is FileType.DIRECTORY
    return source if is_directory else os.path.dirname(source)


def list_directories(pattern: BracePattern, store: Store) -> None:
    """List the directories of many members in other stores, so that a `Look` knows which of them exist."""
    if not is_url(pattern.prefix):
        return
    for directory, count in Counter(map(os.path.dirname, pattern)).items():
        if count >= _LISTED_MIN:
            with suppress(NotFoundError, SourceError):
                store.list(directory)
