"""The names of the recordings of a shard in `slices/`: the directories of `shards/`, and in them `<key>.wav`.

`.wav` replaces the extension of the recording in `shards/`: `a/b.flac` is `a/b.wav`. Two recordings can get one name,
as `b.flac` and that of a sample with the key `b.wav`; or a recording and a directory. Then the second in name order is
`b%~2.wav`, and so on: no quoted key has `%~` before a number of this length. A recording without an extension is not
shown, nor one whose name has no room for `.wav`.
"""

from __future__ import annotations

import re
from bisect import bisect_left

from touchfs.catalog.table import DIRECTORY, Table
from touchfs.core.errors import FormatError
from touchfs.core.names import NAME_MAX
from touchfs.dataset.open_shard import OpenShard
from touchfs.dataset.recordings.shard_recordings import may_be_recording, recording_row

WAV, DOT = b".wav", b"."
_NUMBERED = re.compile(rb"(.+)%~([1-9][0-9]{0,9})", re.DOTALL)


def is_recording(shard: OpenShard, row: int) -> bool:
    """True if the file at a row of the table `shards` is the recording of its sample."""
    table = shard.tables["shards"]
    if table.kind[row] == DIRECTORY or not table.suffix[row] or not may_be_recording(shard, table, row):
        return False
    return recording_row(shard, table.ordinal[row]) == row


def find_row(shard: OpenShard, directory: int, name: bytes) -> int | None:
    """The row of the directory or recording of this name in a directory, or None."""
    table = shard.tables["shards"]
    row = table.find(directory, name)
    if row is not None and table.kind[row] == DIRECTORY:
        return row
    if not name.endswith(WAV) or len(name) == len(WAV):
        return None
    stem, number = name[: -len(WAV)], 1
    if (numbered := _NUMBERED.fullmatch(stem)) is not None and int(numbered[2]) > 1:
        stem, number = numbered[1], int(numbered[2])
    children = table.children(directory)
    rows = _namesakes(shard, stem, children, children.start + bisect_left(children, stem + DOT, key=table.name))
    return rows[number - 1] if number <= len(rows) else None


def name_of(shard: OpenShard, row: int) -> bytes | None:
    """The name of the file at a row of the table `shards`, or None if it is not shown."""
    if not is_recording(shard, row):
        return None
    table = shard.tables["shards"]
    name, directory, rows = table.name(row), table.parent[row], []
    stem, first = _stem(table, row, name), row
    if directory < row:
        children = table.children(directory)
        while first > children.start and table.name(first - 1) >= stem + DOT:
            first -= 1
        rows = _namesakes(shard, stem, children, first)
    if row not in rows:
        raise FormatError("its catalog is damaged: index with --force", path=table.path_of_catalog)
    number = rows.index(row) + 1
    name = stem + (b"%%~%d" % number if number > 1 else b"") + WAV
    return name if len(name) <= NAME_MAX else None


def path_of(shard: OpenShard, row: int) -> bytes:
    """The path of a directory or recording below its shard."""
    table = shard.tables["shards"]
    if not row or table.kind[row] == DIRECTORY:
        return table.path(row)
    directory = table.path(table.parent[row])
    return b"/".join(filter(None, (directory, name_of(shard, row) or table.name(row))))


def _stem(table: Table, row: int, name: bytes) -> bytes:
    size = table.suffix[row]
    if size > len(name):  # the suffix of a table's file in the directory of its row begins with the slash before it
        size = len(name) - name.rfind(DOT)
    return name[: len(name) - size]


def _namesakes(shard: OpenShard, stem: bytes, children: range, first: int) -> list[int]:
    """The rows in a directory that claim the name `stem`.wav: first a directory of that name, then recordings.

    `first` is the first of the directory's `children` whose name is not before `stem` with a dot.
    """
    table = shard.tables["shards"]
    rows: list[int] = []
    for row in range(first, children.stop):
        name = table.name(row)
        if not name.startswith(stem + DOT):
            break
        if table.kind[row] == DIRECTORY and name == stem + WAV:
            rows.insert(0, row)
        elif _stem(table, row, name) == stem and is_recording(shard, row):
            rows.append(row)
    return rows
