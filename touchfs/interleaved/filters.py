"""Filters of interleaved samples: functions from a batch to a batch, for pipelines and for `LazyMapper`.

Each is a frozen dataclass, so it can be sent to workers, and its `repr` is a part of the plan of an unfinished job.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from touchfs.interleaved.items.batch import InterleavedBatch
from touchfs.interleaved.items.image_sizes import image_sizes
from touchfs.select.expression import parse_where
from touchfs.select.ids.names import open_file
from touchfs.select.rows import has_modality, in_sample_with, matching_rows


@dataclass(frozen=True, slots=True)
class InterleavedFilter:
    """Keeps the items that the expression `where` matches, as `touchfs.select.rows` says.

    Sizes of images are those in the headers of their bytes, which are looked up where `source_ref` says unless they
    are in the batch. `locations` are further places that may be read, as for `materialize`. Raises UsageError for an
    expression that cannot be parsed, and what is wrong with its lists of ids.
    """

    where: str
    locations: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        parse_where(self.where, open_file)

    def __call__(self, batch: InterleavedBatch) -> InterleavedBatch:
        where = parse_where(self.where, open_file)
        kept = matching_rows(batch.table, where, lambda rows: image_sizes(batch, rows, self.locations))
        return batch.replaced(batch.table.filter(kept))


@dataclass(frozen=True, slots=True)
class DropInvalidRows:
    """Drops rows of an unknown modality, metadata whose position is not -1, and content at a position below 0."""

    def __call__(self, batch: InterleavedBatch) -> InterleavedBatch:
        import pyarrow as pa
        import pyarrow.compute as pc

        position, modality = batch.table.column("position"), batch.table.column("modality")
        is_content = pc.and_(pc.is_in(modality, pa.array(["text", "image"])), pc.greater_equal(position, 0))
        is_metadata = pc.and_(pc.equal(modality, "metadata"), pc.equal(position, -1))
        return batch.replaced(batch.table.filter(pc.or_kleene(is_content, is_metadata)))


@dataclass(frozen=True, slots=True)
class DropOrphanMetadata:
    """Drops the metadata rows of samples that have no other row."""

    def __call__(self, batch: InterleavedBatch) -> InterleavedBatch:
        is_content = ~has_modality(batch.table, "metadata")
        return batch.replaced(batch.table.filter(is_content | in_sample_with(batch.table, is_content)))


@dataclass(frozen=True, slots=True)
class RecomputePositions:
    """Numbers the positions of each sample's content from 0 without gaps, in their order.

    Rows that share a position still do. Rows keep their places in the table, and metadata its position.
    """

    def __call__(self, batch: InterleavedBatch) -> InterleavedBatch:
        import pyarrow as pa

        table = batch.table
        codes = table.column("sample_id").combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
        positions = table.column("position").to_numpy().astype(np.int32)
        rows = np.flatnonzero(~has_modality(table, "metadata"))
        rows = rows[np.lexsort((positions[rows], codes[rows]))]
        begins = np.diff(codes[rows], prepend=-1) != 0
        steps = np.cumsum(np.where(begins, 0, np.diff(positions[rows], prepend=0) != 0))
        positions[rows] = steps - np.maximum.accumulate(np.where(begins, steps, 0))
        number = table.column_names.index("position")
        column = pa.array(positions, pa.int32())
        return batch.replaced(table.set_column(number, table.schema.field(number), column))
