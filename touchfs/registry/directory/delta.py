"""The data files of a Delta table, from its log (https://github.com/delta-io/delta/blob/master/PROTOCOL.md).

`_delta_log/00000000000000000007.json` has the actions of version 7, one JSON object a line: `add` and `remove` of a
file, `protocol`, `metaData` and others. `00000000000000000005.checkpoint.parquet`, perhaps in parts, has the actions
that make up version 5. The table is the latest checkpoint and the versions after it, in order.

A path in an action is percent-encoded, and relative to the table or absolute. Whatever it says, only files of the table
are opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from touchfs.core.errors import FormatError, map_os_errors
from touchfs.core.extent.file_object import FileObject
from touchfs.core.extras import load_pyarrow
from touchfs.core.json_text import parse_json
from touchfs.core.location import Location
from touchfs.core.urls import climbs
from touchfs.source.data import DATA
from touchfs.source.store import Store
from touchfs.tables.values.pyarrow_errors import pyarrow_errors

LOG = "_delta_log"
# Features that change nothing of what a file means, and two whose use a table says: then it is refused.
_FEATURES = frozenset({"timestampNtz", "vacuumProtocolCheck", "columnMapping", "deletionVectors"})
_VERSION_MAX = 3
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
# An action is at most as long as this: statistics of a file with a thousand columns.
_LINE_MAX = 1 << 24
_ROWS = 4096
# Of a checkpoint: its other columns are statistics.
_COLUMNS = ["protocol", "metaData.configuration", "add.path", "add.deletionVector"]
_FILE_URL, _ELSEWHERE = re.compile(r"^file:(?://(?=/))?"), re.compile(r"/|[a-zA-Z][a-zA-Z0-9+.-]*:/")


@dataclass(slots=True)
class _DeltaTable:
    """The state of a table after some versions. `files` has the paths of its files, and if rows of them are deleted."""

    protocol: Mapping[str, Any] = field(default_factory=dict)
    configuration: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bool] = field(default_factory=dict)

    def take(self, actions: Iterable[Mapping[str, Any]]) -> None:
        """Apply the actions of a version, which have no order: a file may be removed, and added with fewer rows."""
        added = dict[str, bool]()
        removed = list[str]()
        for action in actions:
            self.protocol = action.get("protocol") or self.protocol
            if (metadata := action.get("metaData")) is not None:
                self.configuration = dict(metadata.get("configuration") or {})
            if (add := action.get("add")) is not None:
                added[add["path"]] = add.get("deletionVector") is not None
            if (remove := action.get("remove")) is not None:
                removed.append(remove["path"])
        for path in removed:
            self.files.pop(path, None)
        self.files |= added

    def unread(self) -> str:
        """What the table needs that we do not read; "" if nothing."""
        if (version := self.protocol.get("minReaderVersion", 1)) > _VERSION_MAX:
            return f"reader version {version}"
        if unknown := sorted(set(self.protocol.get("readerFeatures") or ()) - _FEATURES):
            return f"the reader feature {', '.join(unknown)}"
        if (mode := self.configuration.get("delta.columnMapping.mode") or "none") != "none":
            return f"columnMapping by {mode}"
        return "deletionVectors" if any(self.files.values()) else ""


def delta_files(directory: str, store: Store) -> list[str]:
    """The paths, relative to a Delta table, of its data files, in name order.

    Raises FormatError if the log is damaged, needs a feature that we do not know, or names a file elsewhere,
    MissingExtraError if a checkpoint needs pyarrow, and SourceError.
    """
    log = os.path.join(directory, LOG)
    names = {entry.name for entry in store.list(log)}
    commits = {int(match[1]): match[0] for name in names if (match := _COMMIT.fullmatch(name))}
    start, checkpoint = _last_checkpoint(names)
    last = max(commits, default=start)
    versions = range(start + 1, last + 1)
    if last < 0 or len(versions) > len(commits) or not all(version in commits for version in versions):
        raise FormatError("is a Delta table whose log lacks versions", path=directory)
    table = _DeltaTable()
    try:
        table.take(action for name in checkpoint for action in _checkpoint_actions(os.path.join(log, name)))
        for version in versions:
            table.take(_commit_actions(os.path.join(log, commits[version])))
        unread = table.unread()
    except (FormatError, ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"is a Delta table whose log is damaged: {error}", path=directory) from error
    if unread:
        message = f"is a Delta table with {unread}, which touchfs does not read: export it as Parquet"
        raise FormatError(message, path=directory)
    return sorted(_within(path, directory) for path in table.files)


def _last_checkpoint(names: set[str]) -> tuple[int, list[str]]:
    """The version and the files of the latest checkpoint that is complete; -1 and none without one."""
    found: dict[tuple[int, int], list[str]] = {}
    for name in sorted(names):
        if (match := _CHECKPOINT.fullmatch(name)) is not None:
            found.setdefault((int(match[1]), int(match[3] or 1)), []).append(name)
    complete = {version: files for (version, parts), files in sorted(found.items()) if len(files) == parts}
    latest = max(complete, default=-1)
    return latest, complete.get(latest, [])


def _commit_actions(path: str) -> Iterator[Mapping[str, Any]]:
    with map_os_errors(path), DATA.stream(path) as file:
        while line := file.readline(_LINE_MAX + 1):
            if len(line) > _LINE_MAX:
                raise ValueError(f"a line has over {_LINE_MAX:,} bytes")
            if line.strip():
                yield parse_json(line)


def _checkpoint_actions(path: str) -> Iterator[Mapping[str, Any]]:
    load_pyarrow()
    from pyarrow.parquet import ParquetFile

    with closing(DATA.open(path)) as source, pyarrow_errors("its checkpoint"):
        source.open()
        for batch in ParquetFile(FileObject(source)).iter_batches(_ROWS, columns=_COLUMNS):
            yield from batch.to_pylist()


def _within(path: str, directory: str) -> str:
    """The path of a file relative to its table. Raises FormatError if it is not of the table."""
    name = unquote(path, errors="surrogateescape")
    location = Location.of(directory)
    root = os.path.join(location.absolute.path, "")
    place = (name if location.is_url else _FILE_URL.sub("", name)).removeprefix(root)
    if _ELSEWHERE.match(place) or "\0" in place or climbs(place) or not os.path.basename(place):
        raise FormatError(f"names {name[:200]!r}, which is not in the table", path=directory)
    if not location.is_url and not os.path.realpath(root + place).startswith(os.path.join(location.resolved, "")):
        raise FormatError(f"names {name[:200]!r}, and a link leads out of the table", path=directory)
    return place
