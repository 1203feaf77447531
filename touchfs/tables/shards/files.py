"""The files of a shard that is an Arrow file: itself, and `_metadata.json` beside it if it is a shard of a cache; and
the columns of Arrow and Parquet files.
"""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

from touchfs.core.errors import NotFoundError, TouchfsError
from touchfs.core.extent import Memory, drive
from touchfs.core.location import beside
from touchfs.format.cache_metadata import METADATA_FILE
from touchfs.shard.single import open_source
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Files, Fingerprint
from touchfs.source.store import FileType, Store

if TYPE_CHECKING:
    from touchfs.format.arrow.schema import IpcSchema
    from touchfs.format.cache_metadata.layouts import ShardedMetadata

# Arrow IPC: the file format and the stream format. Feather of version 2 is the file format.
ARROW_SUFFIXES = (".arrow", ".feather", ".ipc")
# Larger than that of a hundred thousand shards.
_METADATA_MAX = 1 << 26


def fingerprints(path: str, store: Store = DATA) -> dict[str, Fingerprint]:
    """The fingerprints of the files of the shard at a path, by name. Raises NotFoundError or SourceError."""
    files = {os.path.basename(path): store.stat(path).fingerprint}
    try:
        metadata = store.stat(beside(path, METADATA_FILE))
    except NotFoundError:
        return files
    return {**files, METADATA_FILE: metadata.fingerprint} if metadata.type is FileType.FILE else files


def read_metadata(path: str, files: Files) -> ShardedMetadata | None:
    """The metadata of the cache that a shard is of; None if it is of none. Raises FormatError if it is damaged."""
    if METADATA_FILE not in files:
        return None
    place, name = os.path.split(path)
    file = open_source(path, METADATA_FILE, files)
    try:
        text = file.read(0, min(file.size, _METADATA_MAX))
    finally:
        file.close()
    metadata = _parse(text, place)
    return metadata if metadata is not None and name in metadata.shard_filenames else None


def listed_shards(directory: str) -> list[str] | None:
    """The paths of the shards of the cache in a directory, also of those that are missing; None if it is no cache, or a
    damaged one, whose shards say what is wrong.
    """
    try:
        with closing(DATA.open(os.path.join(directory, METADATA_FILE))) as file:
            file.open()  # unlike a stream, it does not wait at a pipe
            metadata = _parse(file.read(0, min(file.size, _METADATA_MAX)), directory)
    except (TouchfsError, OSError):
        return None
    return None if metadata is None else [os.path.join(directory, name) for name in metadata.shard_filenames]


def _parse(text: bytes, place: str) -> ShardedMetadata | None:
    """The metadata of a cache; None if the file is of another tool, or of a cache of another layout."""
    from touchfs.format.cache_metadata.layouts import ARROW_SHARDS  # only caches need it
    from touchfs.format.cache_metadata.parse import parse_member, parse_sharded

    try:
        if parse_member(text, "layout", place) != ARROW_SHARDS:
            return None
    except TouchfsError:
        return None
    return parse_sharded(text, place)


def column_types(path: str, files: Files) -> dict[str, str]:
    """The types of the columns of an Arrow file by their names, from its footer or its first message."""
    from touchfs.format.arrow.file import parse_arrow

    name = os.path.basename(path)
    with closing(open_source(path, name, files)) as file:
        return _spelled(drive(parse_arrow(files[name].size), file).schema)


def parquet_column_types(path: str, files: Files) -> dict[str, str]:
    """The types of the columns of a Parquet file by their names, from its footer."""
    from touchfs.limits import LIMITS
    from touchfs.tables.parquet.open_file import open_parquet

    with closing(open_source(path, os.path.basename(path), files)) as file:
        return _spelled(open_parquet(file, LIMITS).ipc_schema)


def lance_column_types(path: str, files: Files) -> dict[str, str]:
    """The types of the columns of a Lance dataset by their names. Lance runs in a process of its own."""
    from touchfs.format.arrow.file import parse_arrow
    from touchfs.tables.lance.apart import LanceApart
    from touchfs.tables.lance.dataset import LanceTable
    from touchfs.tables.shards.lance_files import manifest_of

    manifest, version = manifest_of(path, files)
    with closing(LanceApart(LanceTable(path, version, files[manifest]))) as lance:
        _, message, _ = lance.call("describe")
    return _spelled(drive(parse_arrow(len(message)), Memory(message)).schema)


def _spelled(schema: IpcSchema) -> dict[str, str]:
    from touchfs.tables.rows.columns import column_names, spell_type

    return {name: spell_type(field) for name, field in zip(column_names(schema), schema.fields, strict=True)}
