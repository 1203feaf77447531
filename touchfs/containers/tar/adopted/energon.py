"""Tables of Megatron-Energon: `.nv-meta/index.sqlite` of a dataset names all files of its tars, with their places.

`.nv-meta/.info.json` lists the tars in the order of their numbers in the tables. The tables may come from anybody: no
code of their schema runs unchecked, and a query has its limits. Of this machine SQLite reads the pages that it needs.
Tables at a URL are read as a whole.

Source: Megatron-Energon's prepare.py and aggregator_pool.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from functools import lru_cache
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import quote

from touchfs.containers.tar.adopted.listed import ListedMember
from touchfs.containers.tar.layout.header import BLOCK
from touchfs.core.errors import FormatError, NotFoundError, TouchfsError
from touchfs.core.location import Location
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.store import FileType

META, SQLITE_NAME, INFO_NAME = ".nv-meta", "index.sqlite", ".info.json"
_INFO_SIZE_MAX = 2**25
# Tables at a URL: a few hundred thousand files.
_COPY_SIZE_MAX = 2**26
# How long we believe that a directory has tables, or none: shards come by the thousands.
_LOOK_SECONDS = 60
_QUERY_SECONDS, _QUERY_STEPS = 10.0, 10**5
_TEXT_MAX = 2**16
_TABLES = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE%' AND name IN (?, ?)"
_FILES = """
    SELECT samples.sample_key, part_name, content_byte_offset, content_byte_size
    FROM sample_parts JOIN samples USING (tar_file_id, sample_index)
    WHERE sample_parts.tar_file_id = ? LIMIT ?
"""


class _Tables(NamedTuple):
    """The tables of a dataset, and the numbers of its tars by their names, which are relative to the dataset."""

    path: str
    fingerprint: Fingerprint
    numbers: dict[str, int]


def tar_names(info: str) -> list[str]:
    """The names of Energon's tars, in the order of `tar_file_id`. Raises FormatError, and as reads of the file."""
    file = DATA.open(info)
    try:
        if file.size > _INFO_SIZE_MAX:
            raise ValueError("too large")
        return [str(name) for name in dict(json.loads(file.read(0, file.size))["shard_counts"])]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FormatError(f"not the list of Energon's shards: {error}", path=info) from error


def read(path: str, size: int) -> list[ListedMember]:
    """The members of the tar at `path` that tables in its directory, or in the one above, list.

    Raises NotFoundError if there are none, FormatError, and as reads of the tables.
    """
    path = Location.of(path).absolute.path
    directory = os.path.dirname(path)
    for root in (directory, os.path.dirname(directory)):
        tables = _tables_in(root, int(monotonic()) // _LOOK_SECONDS)
        if tables is not None and (number := tables.numbers.get(path[len(root) :].lstrip("/"))) is not None:
            return _read(tables, number, size)
    raise NotFoundError("has no tables of Energon", path=path)


@lru_cache(maxsize=16)
def _tables_in(root: str, now: int) -> _Tables | None:
    """The tables of the dataset in a directory, None if there are none. Asks again when `now` is another."""
    path = os.path.join(root, META, SQLITE_NAME)
    try:
        found = DATA.stat(path)
        names = tar_names(os.path.join(root, META, INFO_NAME)) if found.type is FileType.FILE else []
    except TouchfsError:
        return None
    return _Tables(path, found.fingerprint, {name: number for number, name in enumerate(names)})


def _read(tables: _Tables, number: int, size: int) -> list[ListedMember]:
    import sqlite3  # imported here only, as its import takes as long as numpy's

    is_url = Location.of(tables.path).is_url
    copy = _copy(tables, size) if is_url else b""
    # Immutable: SQLite needs no locks and no journal, as the directory may be read-only.
    place = ":memory:" if is_url else f"file:{quote(os.path.abspath(tables.path))}?mode=ro&immutable=1"
    deadline = monotonic() + _QUERY_SECONDS
    try:
        with closing(sqlite3.connect(place, uri=not is_url)) as store:
            if is_url:
                store.deserialize(copy)
            store.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _TEXT_MAX)
            store.set_progress_handler(lambda: monotonic() > deadline, _QUERY_STEPS)
            store.execute("PRAGMA trusted_schema = OFF")
            store.execute("PRAGMA cell_size_check = ON")
            if store.execute(_TABLES, ("samples", "sample_parts")).fetchone() != (2,):
                raise FormatError("not Energon's tables", path=tables.path)
            return list(_listed(store.execute(_FILES, (number, size // BLOCK))))
    except sqlite3.Error as error:
        raise FormatError(f"not Energon's tables: {error}", path=tables.path) from error


def _copy(tables: _Tables, size: int) -> bytes:
    with closing(DATA.open(tables.path, tables.fingerprint)) as file:
        if file.size > min(_COPY_SIZE_MAX, size // 4):
            raise FormatError(f"{file.size:,} bytes are too many to be read for one tar", path=tables.path)
        return file.read(0, file.size)


def _listed(rows: Iterator[tuple[Any, ...]]) -> Iterator[ListedMember]:
    for key, part, offset, length in rows:
        if not (isinstance(key, str) and isinstance(part, str) and type(offset) is int and type(length) is int):
            raise FormatError("its columns have other types than Energon's")
        yield ListedMember(f"{key}.{part}", offset, length)
