"""Shards whose file system does not answer (`registry.silent`): what is looked at before, and what stands for them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from contextlib import suppress

from touchfs.core.errors import TouchfsError
from touchfs.indexing.catalogs import make_notice
from touchfs.indexing.preparing import SILENT_SUFFIX, Notice
from touchfs.registry.directory.left_out import LeftOutFiles
from touchfs.registry.find import directory_kind, walk
from touchfs.source.store import FileType, Store

# How long a mount waits by default.
PATIENCE_SECONDS = 10.0


def look_below(path: str, store: Store) -> None:
    """Look at a path, and if it is a directory, at all entries in it and below it that may be shards."""
    if store.stat(path).type is FileType.DIRECTORY:
        for directory, entries, below in walk(path, store, set(), LeftOutFiles()):
            for entry in entries:
                with suppress(TouchfsError):
                    store.stat(os.path.join(directory, entry.name))
            if directory_kind(directory, entries) is not None:
                below.clear()


def shards_of_silent(paths: Iterable[str], silent: Collection[str], known: Iterable[str]) -> tuple[list[str], set[str]]:
    """The paths of shards, and the set of those that were not accessed.

    Each silent path is replaced by the `known` shards at it or below it.
    """
    found: list[str] = []
    unseen: set[str] = set()
    for path in paths:
        if path in silent:
            at_path = [each for each in known if each == path or each.startswith(path + "/")] or [path]
            found += at_path
            unseen.update(at_path)
        else:
            found.append(path)
    return found, unseen


def silent_notice(path: str, place: str) -> Notice:
    """Write a catalog for a silent shard about which nothing is known, at `place` plus a suffix.

    It shows the reason.
    """
    text = (
        f"This shard cannot be served.\n\n{path} does not answer: is its file system or its store "
        "there? When it is again, `touchfs reload`, or mount again.\n"
    )
    return Notice(place + SILENT_SUFFIX, make_notice(place + SILENT_SUFFIX, text, {}))
