"""The shards that a name with braces stands for, such as `s3://bucket/train-{000..099}.tar`."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase

from touchfs.core.errors import NoAnswerError, NotFoundError, SourceError, UsageError
from touchfs.core.location import Location
from touchfs.format.braces import BracePattern, parse_braces
from touchfs.source.data import DATA, find_type
from touchfs.source.store import FileType, Store

# From this many paths in a directory of another store, one listing is quicker than asking for each.
_LISTED_MIN = 16
_WILDCARDS = re.compile(r"[*?]|\[.+\]", re.DOTALL)
# Directories below each other that `**` stands for: links may lead round in circles.
_WILDCARDS_DEPTH = 16


def find_members(location: Location, store: Store = DATA) -> BracePattern | None:
    """The names that a path with braces stands for; None if it has none, or is itself the name of a file.

    Raises UsageError for too many names and for braces in the host or bucket of a URL, and NoAnswerError.
    """
    pattern = parse_braces(location.path)
    if pattern is None or _exists(location.path, store):
        return None
    if location.is_url and not Location.of(os.path.dirname(pattern.prefix)).is_url:
        raise UsageError("braces must come after the host or bucket: a data.list can name several", path=location.path)
    return pattern


def _exists(path: str, store: Store) -> bool:
    try:
        store.stat(path)
    except NoAnswerError:
        raise  # a store that does not answer must not be asked for a million members
    except (NotFoundError, SourceError):
        return False
    return True


def has_wildcards(location: Location) -> bool:
    """True if a path has `*`, `?` or `[…]`, which nothing but names of files may have: the host of a URL is not one."""
    return _WILDCARDS.search(split_wildcards(location)[1]) is not None


def match_wildcards(location: Location, store: Store = DATA) -> list[str]:
    """The paths that match one with wildcards, sorted. `**` stands for directories at any depth, or none.

    As in a shell, hidden names match only what begins with a dot. Raises SourceError.
    """
    root, rest = split_wildcards(location)
    found = [root]
    for part in rest.split("/"):
        if part == "**":
            found = [each for directory in found for each in _below(directory, store)]
        elif _WILDCARDS.search(part):
            found = [each for directory in found for each in _matching(directory, part, store)]
        else:
            found = [each for directory in found if find_type(each := os.path.join(directory, part), store) is not None]
    return sorted(dict.fromkeys(found))


def split_wildcards(location: Location) -> tuple[str, str]:
    """A path in two: what has no wildcards, which is a directory or the start of a URL, and the rest."""
    path = location.path
    start = path.index("/", path.index("://") + 3) if location.is_url and path.count("/") > 2 else 0
    if location.is_url and not start:
        return path, ""
    first = _WILDCARDS.search(path, start)
    end = len(path) if first is None else path.rfind("/", 0, first.start()) + 1
    return path[:end], path[end:]


def _matching(directory: str, part: str, store: Store) -> Iterator[str]:
    for entry in store.list(directory or ".") if find_type(directory or ".", store) is FileType.DIRECTORY else ():
        if fnmatchcase(entry.name, part) and (part[0] == "." or entry.name[0] != "."):
            yield os.path.join(directory, entry.name)


def _below(directory: str, store: Store, depth: int = 0) -> Iterator[str]:
    yield directory
    for path in _matching(directory, "*", store) if depth < _WILDCARDS_DEPTH else ():
        if find_type(path, store) is FileType.DIRECTORY:
            yield from _below(path, store, depth + 1)


def directory_of(source: Location, store: Store = DATA) -> str:
    """The directory of a source: itself, or what the source is in; of a name with braces, what all members are in."""
    if (pattern := find_members(source, store)) is not None:
        return os.path.dirname(pattern.prefix)
    kind = find_type(source.path, store)
    if kind is None and has_wildcards(source):
        return split_wildcards(source)[0].rstrip("/")
    return source.path if kind is FileType.DIRECTORY else os.path.dirname(source.path)


def shared_directories(paths: Iterable[str]) -> list[str]:
    """Return the directories that contain many of the paths. One listing of each gives a `Look` all of its paths.

    Directories of web servers are left out: their listings do not tell enough.
    """
    locations = map(Location.of, paths)
    counts = Counter(os.path.dirname(each.path) for each in locations if each.is_url and not each.speaks_http)
    return [directory for directory, count in counts.items() if count >= _LISTED_MIN]


def list_directories(paths: Iterable[str], store: Store, silent: Collection[str] = ()) -> None:
    """List the directories of many paths each, except silent ones, so that a `Look` asks for none of these paths."""
    for directory in shared_directories(paths):
        if directory not in silent:
            with suppress(NotFoundError, SourceError):
                store.list(directory)
