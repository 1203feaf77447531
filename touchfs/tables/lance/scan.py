"""A Lance dataset as indexing reads it: rows in order, where blobs are, which cells are null, how large they are."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.format.magic import MAGIC_SIZE
from touchfs.tables.lance.dataset import LanceTable
from touchfs.tables.lance.errors import lance_errors
from touchfs.tables.values.field_paths import Path

if TYPE_CHECKING:
    import pyarrow

# Rows whose cells of any size are read at once
LARGE_ROWS = 64
INLINE, PACKED, DEDICATED, EXTERNAL = range(4)
# In descriptors of file versions 2.0, the only mark of null: an empty blob is at 0.
_NULL_POSITION = 1


class BlobRanges(NamedTuple):
    """The byte ranges of the blobs of some rows: indexes into `files`, which are names relative to the dataset, offsets
    and sizes. The index of null is `NULL`, and that of a blob that is elsewhere `REFUSED`.
    """

    files: list[str]
    file: NDArray[np.int64]
    offset: NDArray[np.int64]
    size: NDArray[np.int64]


NULL, REFUSED = -1, -2
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


class CellHeads(NamedTuple):
    """The sizes of some cells (`NULL`: null) and their first `MAGIC_SIZE` bytes."""

    size: NDArray[np.int64]
    heads: list[bytes]


class LanceScan:
    """A version of a dataset. Methods raise as those of `LanceTable`. `first` and `count` are rows."""

    def __init__(self, table: LanceTable) -> None:
        self._table = table

    def describe(self) -> tuple[int, bytes, frozenset[int]]:
        """The number of rows, the schema as an Arrow stream without batches, and the numbers of columns of blobs, which
        are bytes in the schema.
        """
        self.check_files()  # says what is missing if Lance is, and pyarrow comes with it
        import pyarrow

        blobs = frozenset(number for number, field in enumerate(self._table.schema) if is_blob_column(field))
        fields = [
            pyarrow.field(field.name, pyarrow.large_binary(), field.nullable) if number in blobs else field
            for number, field in enumerate(self._table.schema)
        ]
        schema = pyarrow.schema(fields, self._table.schema.metadata)
        return self._table.rows, schema.serialize().to_pybytes() + _END_OF_STREAM, blobs

    def values(self, path: Path, first: int, count: int) -> list[Any]:
        """The values of a column, or of a child of one."""
        values: list[Any] = self._cells(path, first, count)[0].to_pylist()
        return values

    def sizes(self, path: Path, first: int, count: int) -> NDArray[np.int64] | None:
        """The sizes of cells, `NULL` for null; or None if no cell is null, where that is known without reading them."""
        fragments = range(self._fragment_of(first), self._fragment_of(first + count - 1) + 1)
        if not self._table.schema.field(path[0]).nullable or not any(self._may_be_null(n, path) for n in fragments):
            return None
        return self.heads(path, first, count).size

    def has_nulls(self, column: int) -> bool:
        """True if any value of a column is null. Reads the column where its pages do not say that none is."""
        field = self._table.schema.field(column)
        if not field.nullable or not any(self._may_be_null(n, (column,)) for n in range(len(self._fragments))):
            return False
        return any(batch.null_count for batch in self._batches(field.name, 0, self._table.rows))

    def heads(self, path: Path, first: int, count: int) -> CellHeads:
        """The sizes of cells, and how they begin. Reads them."""
        from touchfs.tables.values.cell_bytes import bytes_of

        name = column_name(self._table.schema, path, self._table.path)
        sizes: list[int] = []
        heads: list[bytes] = []
        for cells in self._batches(name, first, count):
            valid = cells.is_valid().to_pylist()
            for data, is_valid in zip(bytes_of(cells, self._table.path), valid, strict=True):
                sizes.append(len(data) if is_valid else NULL)
                heads.append(data[:MAGIC_SIZE])
        self._check_count(len(sizes), count)
        return CellHeads(np.array(sizes, np.int64), heads)

    def blobs(self, column: int, first: int, count: int) -> BlobRanges:
        """The byte ranges of the blobs of a column."""
        name = self._table.schema.field(column).name
        files: dict[str, int] = {}
        found = np.zeros((3, count), np.int64)
        for i, described in enumerate(self._read(name, first, count).to_pylist()):
            found[:, i] = self._blob(column, first + i, described, files)
        return BlobRanges(list(files), *found)

    def _blob(self, column: int, row: int, described: dict[str, Any] | None, files: dict[str, int]) -> Any:
        if described is None or (
            "kind" not in described and described["size"] == 0 and described["position"] == _NULL_POSITION
        ):
            return NULL, 0, 0
        file = self._data_file(self._fragment_of(row), column)
        kind = described.get("kind", INLINE)
        if file is None or kind not in (INLINE, PACKED, DEDICATED):
            return REFUSED, 0, 0
        name = f"data/{file}"
        if kind != INLINE:
            reversed_id = int(f"{described['blob_id']:032b}"[::-1], 2)
            name = f"{name.removesuffix('.lance')}/{reversed_id:032b}.blob"
        return files.setdefault(name, len(files)), described["position"], described["size"]

    def _cells(self, path: Path, first: int, count: int) -> tuple[pyarrow.Array, NDArray[np.bool_]]:
        """The cells at a path, and whether they are valid. A scan gives a child as a column of its own."""
        cells = self._read(column_name(self._table.schema, path, self._table.path), first, count)
        return cells, np.array(cells.is_valid().to_pylist(), np.bool_)

    def _read(self, column: str, first: int, count: int) -> pyarrow.Array:
        with lance_errors(self._table.path):
            read = self._table.dataset.to_table(columns=[column], offset=first, limit=count)
        self._check_count(read.num_rows, count)
        column_read = read.column(0)
        if column_read.num_chunks == 1:
            return column_read.chunk(0)
        return column_read.combine_chunks()

    def _batches(self, column: str, first: int, count: int) -> Iterator[pyarrow.Array]:
        """A column, or a child of one, a few rows at a time: the cells of all rows may not fit in memory."""
        with lance_errors(self._table.path):
            batches = self._table.dataset.to_batches(
                columns=[column], offset=first, limit=count, batch_size=LARGE_ROWS, batch_readahead=1
            )
            for batch in batches:
                yield batch.column(0)

    def _check_count(self, found: int, count: int) -> None:
        if found != count:
            raise FormatError(f"Lance gives {found} rows of {count}", path=self._table.path)

    @cached_property
    def _fragments(self) -> list[Any]:
        with lance_errors(self._table.path):
            return list(self._table.dataset.get_fragments())

    @cached_property
    def _ends(self) -> list[int]:
        with lance_errors(self._table.path):
            return list(accumulate(fragment.count_rows() for fragment in self._fragments))

    def _fragment_of(self, row: int) -> int:
        return min(bisect_right(self._ends, row), len(self._ends) - 1)

    def check_files(self) -> None:
        """Raise FormatError if a data file is not in the dataset."""
        for fragment in self._fragments:
            for file in fragment.data_files():
                if "/" in file.path or file.path in ("", ".", "..") or getattr(file, "base_id", None) is not None:
                    message = f"names a data file that is not in it, {file.path[:80]!r}: not read"
                    raise FormatError(message, path=self._table.path)

    def _data_file(self, fragment: int, column: int) -> str | None:
        number = self._field_ids((column,))[0]
        for file in self._fragments[fragment].data_files():
            if number in file.fields:
                name: str = file.path
                return name
        return None

    def _field_ids(self, path: Path) -> list[int]:
        """Lance's numbers of a column, and of what is below it on a path."""
        ids, fields = [], self._table.dataset.lance_schema.fields()
        for number in path:
            field = fields[number]
            ids.append(field.id())
            fields = field.children()
        return ids

    def _may_be_null(self, fragment: int, path: Path) -> bool:
        """False if the pages of a column say that no cell of a fragment is null: file version 2.1 and later do."""
        from lance.file import LanceFileReader

        wanted, dataset = self._field_ids(path)[-1], self._table.dataset
        with lance_errors(self._table.path):
            for file in self._fragments[fragment].data_files():
                if wanted in file.fields and file.file_major_version == 2 and file.file_minor_version >= 1:
                    place = file.column_indices[file.fields.index(wanted)]
                    reader = LanceFileReader(f"{dataset.uri}/data/{file.path}", dataset.latest_storage_options())
                    pages = reader.metadata().columns[place].pages
                    return not all(set(_LAYERS.findall(page.encoding)) == {"AllValidItem"} for page in pages)
        return True


# How a page says what its layers of nullability are.
_LAYERS = re.compile(r"\bRepdef(\w+)")


def column_name(schema: pyarrow.Schema, path: Path, place: str) -> str:
    """The name by which Lance knows the column at a path. Raises FormatError."""
    try:
        field = schema.field(path[0])
        names = [field.name]
        for number in path[1:]:
            field = field.type.field(number)
            names.append(field.name)
    except (IndexError, AttributeError) as error:
        raise FormatError("has no such column: index with --force", path=place) from error
    return ".".join(names)


def is_blob_column(field: pyarrow.Field) -> bool:
    """True if the values of a column are stored as blobs, so that Lance gives descriptors for them."""
    metadata = field.metadata or {}
    return metadata.get(b"lance-encoding:blob") == b"true" or str(field.type).startswith("extension<lance.blob")
