"""More files for the samples of a table: those of overlays, whose contents are in the catalog.

A file is named like the first one of its sample, with another ending. If that name is taken, the file is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.columns import NUMBERS
from touchfs.catalog.derived import ROWS_MAX
from touchfs.catalog.rows.byte_arrays import binary_column, byte_array, concatenate, join, take
from touchfs.catalog.table import DIRECTORY, IN_PATH, NO_SAMPLE, STORED, UNKEYED, Table
from touchfs.core.errors import FormatError
from touchfs.core.extras import load_pyarrow
from touchfs.core.names import NAME_MAX, quote, shorten
from touchfs.core.packed_bytes import PackedBytes
from touchfs.format.arrow.mapped_columns import BinaryColumn, Column

if TYPE_CHECKING:
    import pyarrow


class AddedFiles(NamedTuple):
    """A file for each of some samples, which have files and keys: of one kind, with one `ending`, as `.score.txt`.

    `offset` is what the column has. `inline` are the contents.
    """

    kind: int
    ending: bytes
    ordinal: NDArray[np.int64]
    offset: NDArray[np.int64]
    inline: pyarrow.Array


class _FileColumns(NamedTuple):
    """The columns of some files, numbers and texts."""

    numbers: dict[str, NDArray[Any]]
    texts: dict[str, pyarrow.Array]


def keys_of(table: Table, rows: NDArray[np.int64]) -> PackedBytes:
    """The raw keys of the samples that files of a table are of; nothing for those that have none."""
    keys, is_keyed = table.keys(rows), np.asarray(table.keyed)[rows] != UNKEYED
    return keys._replace(lengths=keys.lengths * is_keyed)


def with_files(table: Table, added: Sequence[AddedFiles]) -> tuple[dict[str, Column], list[int]]:
    """The columns of a table with more files, and how many files of each kind are left out, as their names are taken.

    Raises FormatError for a damaged table, and for too many files.
    """
    stored = table.columns()
    old = _FileColumns(
        {name: np.asarray(stored[name]) for name in NUMBERS if name != "order"},
        {name: _array(stored[name]) for name in ("name", "key", "inline")},
    )
    rows = [old, *(_rows_of(table, old, files) for files in added)]
    numbers = {name: np.concatenate([each.numbers[name] for each in rows]) for name in old.numbers}
    texts = {name: concatenate(*(each.texts[name] for each in rows)) for name in old.texts}
    place = _in_order(numbers["parent"], texts["name"])
    if len(place) > ROWS_MAX:
        raise FormatError(f"{len(place)} files in one shard; at most {ROWS_MAX} fit")
    row = np.full(len(numbers["parent"]), -1)
    row[place] = np.arange(len(place))
    columns: dict[str, Column] = {name: column[place] for name, column in numbers.items()}
    columns |= {name: binary_column(take(texts[name], place)) for name in texts}
    parent = row[numbers["parent"][place]]
    directory = np.flatnonzero(numbers["kind"][place] == DIRECTORY)
    first, end = (np.searchsorted(parent[1:], directory, side) + 1 for side in ("left", "right"))
    offset, length = (numbers[name][place].astype(np.int64) for name in ("offset", "length"))
    offset[directory], length[directory] = first, end - first
    length[0] = 0  # the table has its number of children
    columns |= {"parent": parent, "offset": offset, "length": length}
    columns["order"] = _order(table, row, numbers["ordinal"])
    firsts = np.cumsum([table.rows, *(len(files.ordinal) for files in added)])
    return columns, [int((row[start:end] < 0).sum()) for start, end in pairwise(firsts)]


def _rows_of(table: Table, old: _FileColumns, files: AddedFiles) -> _FileColumns:
    rows = table.first_files(files.ordinal)
    data, starts = table.names
    suffix, size = old.numbers["suffix"][rows].astype(np.int64), np.diff(starts)[rows]
    is_nested = suffix > size  # the directory of the sample is in the suffix, too
    stem = np.where(is_nested, 0, size - suffix)
    key, keyed = take(old.texts["key"], rows), old.numbers["keyed"][rows].copy()
    for i in np.flatnonzero(keyed == STORED).tolist():
        # A key that ends in the extension of the file: it is not repeated there.
        if table.name(int(rows[i])) == quote(table.key(int(rows[i])).rpartition("/")[2]):
            stem[i] = size[i]
    packed = PackedBytes(data, starts[rows], stem).compacted()
    stems = _from_buffers(np.append(packed.starts, len(packed.data)), packed.data)
    endings = take(byte_array([files.ending, files.ending[1:]]), is_nested.astype(np.int64))
    name = join(stems, endings)
    long = np.flatnonzero(stem + len(files.ending) > NAME_MAX)
    if len(long):
        names, keys = name.to_pylist(), key.to_pylist()
        for i in long.tolist():
            names[i] = shorten(names[i][: stem[i]], files.ending[int(is_nested[i]) :])
            if keyed[i] == IN_PATH:
                keys[i], keyed[i] = table.own_key(int(rows[i])), STORED
        name, key = byte_array(names), byte_array(keys)
    nothing = np.zeros(len(rows), np.int64)
    numbers = {
        "parent": old.numbers["parent"][rows],
        "kind": nothing + files.kind,
        "ordinal": files.ordinal.astype(np.int64),
        "part": nothing,
        "offset": files.offset,
        "length": nothing,
        "size": np.diff(_offsets(files.inline)),
        "frames": nothing,
        "suffix": nothing + len(files.ending),
        "keyed": keyed,
    }
    return _FileColumns(numbers, {"name": name, "key": key, "inline": files.inline})


def _in_order(parent: NDArray[Any], name: pyarrow.Array) -> NDArray[np.int64]:
    """The places of rows in the order of a table, but those whose name is taken by a row before them."""
    import pyarrow.compute as compute

    arrow = load_pyarrow()
    if parent.any():
        table = arrow.table({"parent": parent[1:].astype(np.int64), "name": name[1:]})
        order = compute.sort_indices(table, [("parent", "ascending"), ("name", "ascending")])
    else:
        order = compute.array_sort_indices(name[1:])
    place = np.asarray(order).astype(np.int64) + 1
    names, parents = take(name, place), parent[place]
    is_new = np.ones(len(place), bool)
    is_new[1:] = ~(np.asarray(compute.equal(names[1:], names[:-1])) & (parents[1:] == parents[:-1]))
    return np.append(0, place[is_new])


def _order(table: Table, row: NDArray[np.int64], ordinal: NDArray[Any]) -> NDArray[np.int64]:
    """The column `order`: each file that is added comes after all files that its sample had. Others are last."""
    old = np.asarray(table.columns()["order"]).astype(np.int64)
    places = np.concatenate((old[ordinal[old] != NO_SAMPLE], np.arange(table.rows, len(row))))
    places = places[np.argsort(ordinal[places], kind="stable")]
    rows: NDArray[np.int64] = row[np.concatenate((places, np.flatnonzero(ordinal == NO_SAMPLE)))]
    return rows[rows >= 0]


def _array(column: Column) -> pyarrow.Array:
    if not isinstance(column, BinaryColumn):
        raise FormatError("a text of the catalog has another type")
    offsets, data = column.offsets.astype(np.int64), np.frombuffer(column.data, np.uint8)
    if offsets[0] < 0 or offsets[-1] > len(data) or (np.diff(offsets) < 0).any():
        raise FormatError("a column of the catalog is damaged: index with --force")
    return _from_buffers(offsets, data)


def _from_buffers(offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> pyarrow.Array:
    arrow = load_pyarrow()
    buffers = [None, arrow.py_buffer(np.ascontiguousarray(offsets)), arrow.py_buffer(data)]
    return arrow.Array.from_buffers(arrow.large_binary(), len(offsets) - 1, buffers)


def _offsets(array: pyarrow.Array) -> NDArray[np.int64]:
    return np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, 8 * array.offset)
