"""DATASET:PATH, a dataset and a path in its tree as one text: `train/:shards/a`, `s3://bucket/train:shards/a`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from touchfs.core.errors import UsageError
from touchfs.core.location import Location
from touchfs.core.urls import InArchive, parse_in_archive
from touchfs.format.braces import join_braces
from touchfs.registry.directory.members import find_members, has_wildcards, match_wildcards
from touchfs.source.data import find_type

# The directories of the root of a tree: in a URL nothing else is a path in the dataset.
ROOT_NAMES = (
    "shards",
    "segments",
    "by-key",
    "merged",
    "slices",
    "manifests",
    "columns",
    "by-label",
    "frames",
    "windows",
    "interleaved",
    "tokens",
)
_PATH = re.compile(rf"(.+?)(?::((?:{'|'.join(ROOT_NAMES)})(?:/.*)?)?)?", re.DOTALL)


def split_dataset_path(text: str) -> tuple[str, str]:
    """Split DATASET[:PATH]. PATH has no slash at its start or end, and is "" if there is none.

    DATASET may contain colons: the longest one that exists is taken. A prefix of shard files exists if its index does,
    and a name with braces if a member does. Nobody is asked whether a URL, or a name in an archive, exists: there, and
    if no DATASET exists, PATH begins with the name of a directory of the root. A chain of URLs ends with its archive.
    """
    name, path = _split(text) if ":" in text else (text, "")
    return name, "/".join(filter(None, path.split("/")))


def join_datasets(paths: Sequence[str | os.PathLike[str]]) -> str:
    """The dataset of these, in this order: the name with braces that stands for them. Raises UsageError."""
    if not paths:
        raise UsageError("no dataset is named: the list is empty")
    places = [Location.parse(path) for path in paths]
    if len(paths) == 1:
        return os.fspath(paths[0])
    if len({place.path.split("/")[2] if place.is_url else "" for place in places}) > 1:
        raise UsageError(f"{len(paths)} names, which are not all in one store: write them into a data.list, one a line")
    if any(place.is_url or os.path.isabs(place.path) for place in places):
        names = [place.absolute.path for place in places]
    else:
        names = [os.path.normpath(place.path) for place in places]
    if (joined := join_braces(names)) is None:
        raise UsageError(
            f"{len(paths)} names, of which some have commas or braces: write them into a data.list, one a line"
        )
    return joined


def _split(text: str) -> tuple[str, str]:
    if (place := parse_in_archive(text)) is not None and not os.path.lexists(text):
        if text.startswith("zip+"):  # the form that ends with the name
            name, path = _split_unasked(place.name)
            return InArchive(place.archive, name).path, path
        archive, path = _split(place.archive)
        return InArchive(archive, place.name).chain, path
    if Location.parse(text).is_url:
        return _split_unasked(text)
    parts = text.split(":")
    for count in range(len(parts), 0, -1):
        name = ":".join(parts[:count])
        if _exists(name):
            return name, ":".join(parts[count:])
    return _split_unasked(text)


def _split_unasked(text: str) -> tuple[str, str]:
    match = _PATH.fullmatch(text)
    return (text, "") if match is None else (match[1], match[2] or "")


def _exists(path: str) -> bool:
    return any(
        find_type(name) is not None
        or find_type(name + ".idx") is not None
        or (has_wildcards(location := Location.of(name)) and match_wildcards(location) != [])
        for name in find_members(Location.of(path)) or [path]
    )
