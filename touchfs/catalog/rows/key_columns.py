"""Make the columns of a catalog for a table whose rows have keys: from arrays, without an object for each file.

In nearly all such tables the files are named by the keys as they are: the keys differ, have one component, need no
quoting and are short. Their names are joined and sorted as Arrow arrays. In all other tables names depend on each other
(`touchfs.core.names.assign`), and `key_columns` returns None.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.columns import TableColumns
from touchfs.catalog.derived import ROWS_MAX
from touchfs.catalog.rows.byte_arrays import (
    are_equally_long,
    binary_column,
    byte_array,
    concatenate,
    count_less,
    ends_in,
    has_match,
    join,
    longest,
    pieces,
    sorted_places,
    take,
    where,
)
from touchfs.catalog.rows.row_columns import FileArrays
from touchfs.catalog.rows.row_keys import RowKeys
from touchfs.catalog.table import DIRECTORY, IN_PATH, NO_SAMPLE, STORED, UNKEYED
from touchfs.core.control_characters import CONTROL
from touchfs.core.errors import FormatError
from touchfs.core.names import NAME_MAX, REPORT, REPORT_EXTENSION, REPORT_STEM, shown_extension
from touchfs.form.ordinals import ORDINAL_SIZE, pack_ordinals
from touchfs.format.arrow.mapped_columns import BinaryColumn

if TYPE_CHECKING:
    import pyarrow

# Keys that `names.quote` or `names.plain_path` may change, and all with `%`, which they sometimes quote.
_UNUSUAL = rf"[{CONTROL}/%]|^\.$|^\.\.$|^\.touchfs$"


class NamedKind(Protocol):
    """A kind of files: what follows the key in their names."""

    @property
    def ending(self) -> bytes:
        """The extension with its dot, or a slash and a name in the directory of the row."""
        ...

    @property
    def extension(self) -> str:
        """The ending without its dot or slash."""
        ...

    @property
    def by_ordinal(self) -> bool:
        """True if the detail of a file is the ordinal of its row."""
        ...


def key_columns(
    files: FileArrays,
    keys: RowKeys,
    kinds: Sequence[NamedKind],
    *,
    is_nested: bool,
    report: tuple[int, bytes] | None = None,
) -> TableColumns | None:
    """The columns of the view of a table, or None if some names are not keys. `kinds` begins with kind 1.

    A `report` is the kind and the content of ERROR.txt. The columns equal those that `TableBuilder` makes. Raises
    FormatError for too many files.
    """
    shown = byte_array(keys.shown)
    if not _are_names(shown, kinds, is_nested=is_nested, has_report=report is not None):
        return None
    places = sorted_places(shown)
    if places is None:
        return None
    rank = _inverse(places)
    is_file = files.kind > 0
    ordinal, kind = np.nonzero(is_file)[0], files.kind[is_file]
    endings = [b"", *(each.ending for each in kinds)]
    is_repeated = np.zeros(len(kind), np.bool_)
    if is_nested:
        rows: _KeyedRows | None = _lay_out_nested(shown, rank, ordinal, [ending[1:] for ending in endings], kind)
    else:
        # The extension is not repeated if the key already ends in it.
        is_repeated = _ends_so(shown, ordinal, kind, endings)
        rows = _lay_out_flat(shown, rank, ordinal, endings, np.where(is_repeated, 0, kind))
    if rows is not None and report is not None:
        rows = rows.with_report(len(kind))
    if rows is None:
        return None
    if len(rows.row) > ROWS_MAX:
        raise FormatError(f"{len(rows.row)} files in one shard; at most {ROWS_MAX} fit")
    by_row, reports = _inverse(rows.row), [] if report is None else [report]

    def numbers(of_files: NDArray[Any], of_report: int = 0, of_directories: Any = 0) -> NDArray[np.int64]:
        others = [of_report] * len(reports), np.broadcast_to(of_directories, len(rows.first))
        return np.concatenate((of_files, *others)).astype(np.int64)[by_row]

    def texts(of_files: pyarrow.Array, of_report: bytes = b"") -> BinaryColumn:
        others = [of_report] * len(reports) + [b""] * len(rows.first)
        return binary_column(take(concatenate(of_files, byte_array(others)), by_row))

    has_key = np.asarray(keys.array.is_valid())[ordinal]
    zeros = np.broadcast_to(np.int64(0), len(by_row))
    nothing = BinaryColumn(np.broadcast_to(np.int64(0), len(by_row) + 1), memoryview(b""))
    number, content = report or (0, b"")
    return {
        "name": binary_column(take(rows.names, by_row)),
        "parent": rows.parent[by_row],
        "kind": numbers(kind, number, DIRECTORY),
        "ordinal": numbers(ordinal, NO_SAMPLE, NO_SAMPLE),
        "part": zeros,
        "offset": numbers(files.offset[is_file], 0, rows.first),
        "length": numbers(files.length[is_file], 0, rows.children),
        "size": numbers(files.size[is_file], len(content)),
        "frames": numbers(files.frames[is_file]),
        "suffix": numbers(np.array([*map(len, endings)])[kind], len(f".{REPORT_EXTENSION}")),
        "keyed": numbers(np.where(has_key, np.where(is_repeated, STORED, IN_PATH), UNKEYED)),
        "order": rows.row,
        "key": texts(where(is_repeated, take(shown, ordinal))) if is_repeated.any() else nothing,
        "inline": texts(_details(files, is_file, kinds), content),
    }


class _KeyedRows(NamedTuple):
    """The files, then ERROR.txt if there is one, then the directories: for each its name, its row and its parent's row.

    `first` and `children` are for each directory: the row of its first child, and the number of children. That of the
    view's directory, which is the first one, is 0. `level` has the names in that directory.
    """

    names: pyarrow.Array
    row: NDArray[np.int64]
    parent: NDArray[np.int64]
    first: NDArray[np.int64]
    children: NDArray[np.int64]
    level: pyarrow.Array

    def with_report(self, files: int) -> _KeyedRows | None:
        """The rows with ERROR.txt in the view's directory. None if a name there is the same."""
        name = REPORT.encode()
        before = count_less(self.level, name)
        if before is None:
            return None
        place = 1 + before
        return self._replace(
            names=concatenate(self.names[:files], byte_array([name]), self.names[files:]),
            row=np.insert(self.row + (self.row >= place), files, place),
            parent=np.insert(self.parent + (self.parent >= place), files, 0),
            first=self.first + (np.arange(len(self.first)) > 0),
        )


def _lay_out_flat(
    shown: pyarrow.Array, rank: NDArray[np.int64], ordinal: NDArray[Any], endings: Sequence[bytes], ending: NDArray[Any]
) -> _KeyedRows | None:
    """Files beside each other, sorted by name. None if two have the same name."""
    names = join(take(shown, ordinal), take(byte_array(endings), ending))
    order: NDArray[np.int64] | None
    if are_equally_long(shown):  # no key begins another one, so names sort as keys do
        place = rank[ordinal] * len(endings) + _ranks(endings)[ending]
        order = np.argsort(place, kind="stable")
        if (np.diff(place[order]) == 0).any():
            return None
    else:
        order = sorted_places(names)
        if order is None:
            return None
    row = np.append(_inverse(order) + 1, 0)
    return _KeyedRows(
        concatenate(names, byte_array([b""])), row, np.zeros_like(row), np.array([1]), np.array([0]), names
    )


def _lay_out_nested(
    shown: pyarrow.Array, rank: NDArray[np.int64], ordinal: NDArray[Any], names: Sequence[bytes], name: NDArray[Any]
) -> _KeyedRows:
    """Files in a directory of each row that has any: first these directories by name, then the files of each."""
    present, directory, count = np.unique(ordinal, return_inverse=True, return_counts=True)
    by_name = np.argsort(rank[present])
    row_of = _inverse(by_name) + 1
    after = 1 + len(present)
    order = np.lexsort((_ranks(names)[name], row_of[directory]))
    first = np.empty_like(row_of)
    first[by_name] = after + np.cumsum(count[by_name]) - count[by_name]
    level = take(shown, present)
    return _KeyedRows(
        concatenate(take(byte_array(names), name), byte_array([b""]), level),
        np.concatenate((_inverse(order) + after, [0], row_of)),
        np.concatenate((row_of[directory], np.zeros(after, np.int64))),
        np.append(1, first),
        np.append(0, count),
        level,
    )


def _are_names(shown: pyarrow.Array, kinds: Sequence[NamedKind], *, is_nested: bool, has_report: bool) -> bool:
    """True if names of files are these keys and the endings of the kinds, as far as no two are equal."""
    if not is_nested and any(os.fsencode(shown_extension(kind.extension)) != kind.ending[1:] for kind in kinds):
        return False
    room = NAME_MAX - (0 if is_nested else max((len(kind.ending) for kind in kinds), default=0))
    return longest(shown) <= room and not has_match(shown, f"{_UNUSUAL}|^{REPORT_STEM}$" if has_report else _UNUSUAL)


def _ends_so(
    shown: pyarrow.Array, ordinal: NDArray[Any], kind: NDArray[Any], endings: Sequence[bytes]
) -> NDArray[np.bool_]:
    """Find the files whose key ends in the extension of their kind and is longer: bool[files]."""
    found = np.zeros(len(kind), np.bool_)
    if has_match(shown, r"\."):
        order = np.argsort(kind, kind="stable")
        stops = np.searchsorted(kind[order], np.arange(1, len(endings) + 1))
        for number in range(1, len(endings)):
            places = order[stops[number - 1] : stops[number]]
            found[places] = ends_in(take(shown, ordinal[places]), endings[number])
    return found


def _details(files: FileArrays, is_file: NDArray[np.bool_], kinds: Sequence[NamedKind]) -> pyarrow.Array:
    ordinal, kind = np.nonzero(is_file)[0], files.kind[is_file]
    by_ordinal = np.array([False, *(each.by_ordinal for each in kinds)])[kind]
    packed = pieces(pack_ordinals(ordinal[by_ordinal]), ORDINAL_SIZE)
    nothing = [b""] * (len(kind) - len(packed))
    given = byte_array(nothing if files.detail is None else files.detail[is_file][~by_ordinal])
    place = np.where(by_ordinal, np.cumsum(by_ordinal) - 1, len(packed) + np.cumsum(~by_ordinal) - 1)
    return take(concatenate(packed, given), place)


def _ranks(texts: Sequence[bytes]) -> NDArray[np.int64]:
    ranks = {text: rank for rank, text in enumerate(sorted(set(texts)))}
    return np.array([ranks[text] for text in texts], np.int64)


def _inverse(order: NDArray[np.int64]) -> NDArray[np.int64]:
    inverse = np.empty(len(order), np.int64)
    inverse[order] = np.arange(len(order))
    return inverse
