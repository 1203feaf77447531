"""A batch of interleaved samples: a table whose rows are items, and where it came from."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute

from touchfs.core.errors import ArgumentTypeError, MissingExtraError
from touchfs.core.extras import install_hint
from touchfs.interleaved.items.columns import column_values
from touchfs.interleaved.items.schema import INTERLEAVED_SCHEMA, REQUIRED_COLUMNS
from touchfs.interleaved.layout.source_ref import SourceRef, parse_source_ref

if TYPE_CHECKING:
    import pandas

log = logging.getLogger(__name__)
_REF_TYPES = {
    "path": pa.string(),
    "member": pa.string(),
    "byte_offset": pa.int64(),
    "byte_size": pa.int64(),
    "frame_index": pa.int64(),
}


@dataclass(frozen=True, slots=True, eq=False)
class InterleavedBatch:
    """Rows of interleaved samples, as an Arrow table or a pandas DataFrame.

    `source_files` names the files that the rows were read from, as they were opened; if a file gave several batches,
    `::split_00000` and so on follows. `storage_options` maps a location (a prefix of paths) to fsspec's options for it.
    `reencoded_frames` counts frames of TIFF files that `materialize` could not copy, and encoded again without loss.
    Raises ArgumentTypeError for data of another type.
    """

    data: pa.Table | pandas.DataFrame = field(default_factory=INTERLEAVED_SCHEMA.empty_table)
    dataset_name: str = ""
    source_files: tuple[str, ...] = ()
    task_id: str = ""
    storage_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    reencoded_frames: int = 0

    _table: pa.Table = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_table", _as_table(self.data))

    @property
    def table(self) -> pa.Table:
        """The rows as an Arrow table. An index of pandas is left out."""
        return self._table

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a DataFrame, whose columns have Arrow's types. Raises MissingExtraError."""
        if not isinstance(self.data, pa.Table):
            return self.data
        try:
            import pandas
        except ImportError as error:
            raise MissingExtraError(f"DataFrames need pandas: {install_hint('pandas')}") from error
        return self.data.to_pandas(types_mapper=pandas.ArrowDtype)

    def replaced(self, data: pa.Table | pandas.DataFrame) -> InterleavedBatch:
        """Return a batch of other rows, from the same files."""
        return replace(self, data=data)

    @property
    def num_items(self) -> int:
        """Number of samples: of different values of `sample_id`."""
        count: int = pyarrow.compute.count_distinct(self.table.column("sample_id")).as_py()
        return count

    def count(self, modality: str | None = None) -> int:
        """Number of rows, of one modality if it is given."""
        if modality is None:
            return len(self.data)
        count: int | None = pyarrow.compute.sum(pyarrow.compute.equal(self.table["modality"], modality)).as_py()
        return count or 0

    def validate(self) -> bool:
        """Return False if there are no samples or a column that is required is missing; a warning says which."""
        missing = [name for name in REQUIRED_COLUMNS if name not in self.table.column_names]
        if missing:
            log.warning("batch %s has no column %s", self.task_id, ", ".join(missing))
        elif self.num_items == 0:
            log.warning("batch %s has no samples", self.task_id)
        else:
            return True
        return False

    def source_refs(self) -> list[SourceRef]:
        """The locators of all rows. Raises FormatError if a value of `source_ref` is not a locator."""
        return [parse_source_ref(text) for text in column_values(self.table, "source_ref")]

    def with_parsed_source_ref_columns(self, prefix: str = "_src_") -> pandas.DataFrame:
        """The rows as a DataFrame with the columns path, member, byte_offset, byte_size and frame_index of the
        locators. A column that already has such a name is replaced.
        """
        table, refs = self.table, self.source_refs()
        for name, kind in _REF_TYPES.items():
            values = pa.array([getattr(ref, name) for ref in refs], kind)
            column = prefix + name
            if column in table.column_names:
                table = table.drop_columns([column])
            table = table.append_column(column, values)
        return self.replaced(table).to_pandas()


def _as_table(data: object) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    # There is no DataFrame where nobody imported pandas.
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(data, pandas.DataFrame):
        raise ArgumentTypeError(f"a batch holds an Arrow table or a DataFrame, not {type(data).__name__}")
    try:
        return pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata(None)
    except pa.ArrowException as error:
        raise ArgumentTypeError(f"a column of the DataFrame has values of several types: {error}") from error
