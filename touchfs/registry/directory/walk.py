"""Directories at any depth below one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from touchfs.core.errors import FormatError, NotFoundError, SourceError
from touchfs.core.location import Location
from touchfs.registry.directory.left_out import LeftOutFiles
from touchfs.source.store import Store, StoredEntry

# Deeper directories, and more of them, are a mistake: a link into the whole disk, or pages that a server makes up.
DEPTH_MAX, DIRECTORIES_MAX = 32, 100_000


def walk(
    directory: str, store: Store, seen: set[str], left_out: LeftOutFiles, depth: int = 0
) -> Iterator[tuple[str, Sequence[StoredEntry], list[str]]]:
    """Yield a directory and all below it that may have shards: its path, its entries, and the paths of the directories
    that follow, which the caller may shorten. None is entered twice: the real paths of those that were are in `seen`.
    """
    real = Location.of(directory).resolved
    # A link beside what it leads to is a shard of its own, unless it leads to where we come from.
    if real in seen and (depth != 1 or real == Location.of(os.path.dirname(directory)).resolved):
        left_out.add(directory, "another link to a directory that is here")
        return
    if depth > DEPTH_MAX:
        left_out.add(directory, f"over {DEPTH_MAX} directories deep: name it")
        return
    if len(seen) == DIRECTORIES_MAX:
        raise FormatError(f"has over {DIRECTORIES_MAX:,} directories: name one of them", path=directory)
    seen.add(real)
    try:
        entries = store.list(directory)
    except (NotFoundError, SourceError) as error:
        left_out.add(directory, error.message)
        return
    below = subdirectories(directory, entries)
    yield directory, entries, below
    for path in below:
        yield from walk(path, store, seen, left_out, depth + 1)


def subdirectories(directory: str, entries: Iterable[StoredEntry]) -> list[str]:
    """The paths of the directories in one with these entries, sorted, but hidden ones."""
    return sorted(os.path.join(directory, each.name) for each in entries if each.name[0] != "." and each.is_dir())
