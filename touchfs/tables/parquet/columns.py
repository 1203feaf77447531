"""The columns of an open Parquet file: values of their leaves, joined again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from touchfs.core.errors import FormatError
from touchfs.limits import Limits, too_large
from touchfs.tables.parquet.join_leaves import join_leaves, storage_of
from touchfs.tables.parquet.layout.footer import ParquetFooter
from touchfs.tables.parquet.layout.schema import ParquetLeaf
from touchfs.tables.values.field_paths import Path, without
from touchfs.tables.values.pyarrow_errors import pyarrow_errors
from touchfs.tables.values.value_sizes import PYTHON_COPIES, total_size

if TYPE_CHECKING:
    import pyarrow


class LeafReader(Protocol):
    """Reads values of leaves, of the types in a schema."""

    @property
    def schema(self) -> pyarrow.Schema:
        """The Arrow schema of the file."""
        ...

    def read(self, leaf: ParquetLeaf, group: int, first: int, count: int) -> pyarrow.Array:
        """The values of a leaf in rows of a row group, at least one, in the lists and structs that it is in."""
        ...


class ParquetColumns:
    """Reads columns. Raises as `LeafValues`, also for rows of columns that do not fit in memory together."""

    def __init__(self, footer: ParquetFooter, values: LeafReader, limits: Limits) -> None:
        self._tree = footer.schema
        self._values = values
        self._limit = limits.decoded

    def read(
        self, group: int, first: int, count: int, numbers: Sequence[int], left_out: Collection[Path] = ()
    ) -> tuple[list[str], list[pyarrow.Array]]:
        """The names and values of columns in rows of a row group, without the cells at some paths.

        Columns that are left out as a whole are missing.
        """
        out = {leaf for path in left_out for leaf in self._tree.leaves_at(path)}
        names, arrays, left = [], [], self._limit
        for number in numbers:
            leaves = [leaf for leaf in self._tree.leaves_at((number,)) if leaf not in out]
            if leaves:
                names.append(self._values.schema.field(number).name)
                try:
                    arrays.append(self._column(number, leaves, group, first, count, left_out, left))
                except FormatError as error:
                    raise FormatError(f"column {names[-1]!r}: {error.message}", offset=error.offset) from error
                left -= arrays[-1].nbytes
        return names, arrays

    def check(self, arrays: Sequence[pyarrow.Array], copies: int = PYTHON_COPIES) -> None:
        """Raise FormatError for values of which so many copies do not fit in memory."""
        if copies * sum(map(total_size, arrays)) > self._limit:
            raise self._too_large()

    def _column(
        self,
        number: int,
        leaves: Sequence[int],
        group: int,
        first: int,
        count: int,
        left_out: Collection[Path],
        most: int,
    ) -> pyarrow.Array:
        """A column of these leaves, of at most so many bytes."""
        import pyarrow

        kind, all_leaves = self._values.schema.field(number).type, self._tree.leaves_at((number,))
        if not count:
            return without(pyarrow.array([], kind), (number,), frozenset(left_out))
        parts: dict[int, pyarrow.Array] = {}
        for leaf in leaves:
            parts[leaf - all_leaves.start] = self._values.read(self._tree.leaves[leaf], group, first, count)
            if sum(part.nbytes for part in parts.values()) > most:
                raise self._too_large()
        with pyarrow_errors("values of a Parquet file"):
            values = join_leaves(kind, parts)
            if len(leaves) < len(all_leaves) or values.type == kind:
                return values
            if isinstance(kind, pyarrow.BaseExtensionType):
                return pyarrow.ExtensionArray.from_storage(kind, values)
            stored = storage_of(kind)  # that of extension types in lists and structs stays
            return values if values.type == stored else values.cast(stored)

    def _too_large(self) -> FormatError:
        return FormatError(f"rows of this file are not read: {too_large(self._limit)}")
