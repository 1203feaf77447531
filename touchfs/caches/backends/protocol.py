"""The interface of a storage backend: rows by number, in any storage.

Rows are numbered from 0. Tables, record batches and schemas are pyarrow's; a row is a dict of plain Python values.
A backend opens nothing before it is asked for rows, so that it can be forked and pickled, and its pickle has places
and counts instead of data. It decodes no values: that is the reader's work.

Some backends have also a `fingerprint`, a string that differs if their rows differ; `rows.BackendRows` uses it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from abc import ABCMeta as _ProtocolMeta

    import pyarrow
else:
    _ProtocolMeta = type(Protocol)

Indices: TypeAlias = Sequence[int] | NDArray[np.integer[Any]]


_MEMBERS = (
    *("num_rows", "num_shards", "is_file_backed", "schema", "table", "prefer_batched_take"),
    *("get_row", "take", "slice", "iter_batches", "__getstate__", "__setstate__"),
)


class _Structural(_ProtocolMeta):
    """Looks members up without evaluating them: `isinstance` of Python 3.11 would load the whole `table`."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is not StorageBackend:
            return super().__instancecheck__(instance)
        return all(inspect.getattr_static(instance, name, None) is not None for name in _MEMBERS)


@runtime_checkable
class StorageBackend(Protocol, metaclass=_Structural):
    """Rows by number. Indices are from 0 on; a negative one, or one past the end, raises IndexError."""

    prefer_batched_take: bool
    """True if `take` is faster than `get_row` for many rows in any order."""

    @property
    def num_rows(self) -> int:
        """Return the number of rows."""
        ...

    @property
    def num_shards(self) -> int:
        """Return the number of shards, which can be read independently; 0 for a table in memory."""
        ...

    @property
    def is_file_backed(self) -> bool:
        """Return True if the rows are in files."""
        ...

    @property
    def schema(self) -> pyarrow.Schema:
        """Return the schema of tables and batches."""
        ...

    @property
    def table(self) -> pyarrow.Table:
        """Return all rows. This may load all data: `take`, `slice` and `iter_batches` do not."""
        ...

    def get_row(self, idx: int) -> dict[str, Any]:
        """Return a row as Python values by column. Raises IndexError."""
        ...

    def take(self, indices: Indices) -> pyarrow.Table:
        """Return the rows at `indices`, in this order; an index may repeat. Raises IndexError."""
        ...

    def slice(self, start: int, length: int) -> pyarrow.Table:
        """Return the rows `[start, start + length)` that exist; none if `length` is not positive."""
        ...

    def iter_batches(
        self, shard_indices: list[int] | None = None, shuffle: bool = False, seed: int | None = None
    ) -> Iterator[pyarrow.RecordBatch]:
        """Yield the record batches of all shards, or of those given, in this order; only one shard is open at a time.

        `shuffle` shuffles the order of the shards by `seed`, or by a seed that is drawn if it is None.
        """
        ...

    def __getstate__(self) -> Any:
        """Return what is pickled: places and counts, no open files."""
        ...

    def __setstate__(self, state: Any) -> None: ...
