"""The base of both readers of interleaved samples: files, partitions, batches of limited size, and cursors.

Without `max_batch_bytes`, a partition is one batch. With it, samples are read as they are needed, and a batch has as
many as fit; what is in memory is about one batch and one piece of a file.

Source: nemo_curator/stages/interleaved/io/ of NeMo Curator 1.4, whose parameters and texts of errors these are.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from touchfs.core.errors import ArgumentValueError, ColumnValueError, FormatError
from touchfs.interleaved.items.batch import InterleavedBatch
from touchfs.interleaved.items.pipeline import ItemReader
from touchfs.interleaved.items.schema import INTERLEAVED_SCHEMA, align_interleaved_table, resolve_schema
from touchfs.interleaved.read.cursor import BatchCursor, SamplePlace, parse_cursor
from touchfs.interleaved.read.divided import Divided, SamplePiece, divide
from touchfs.interleaved.read.files import ItemFiles, ItemPartition, dataset_name
from touchfs.interleaved.read.store_options import StoreOptions
from touchfs.limits import LIMITS, Limits

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class PartitionReader(ItemReader):
    """A reader of files that are divided into partitions.

        file_paths           a file, a directory with all below it, a glob, or a list of these (`ItemFiles`)
        files_per_partition  how many files are read together
        blocksize            or how many bytes of files, as a number or a text such as 128MB
        max_batch_bytes      the largest batch; None: a partition is one
        fields               the columns to read besides the reserved ones; None: all
        schema               the columns of all batches and their types
        schema_overrides     or types that differ from the canonical ones, and more columns
        read_kwargs          may have `storage_options`: those of fsspec for remote files, or for each location of some
        file_extensions      of the files in a directory
        limits               of the memory that data may take

    Raises ArgumentValueError, which is also a ValueError.
    """

    file_paths: str | Sequence[str]
    files_per_partition: int | None = None
    blocksize: int | str | None = None
    max_batch_bytes: int | None = field(default=None, kw_only=True)
    fields: tuple[str, ...] | None = field(default=None, kw_only=True)
    schema: pa.Schema | None = field(default=None, kw_only=True)
    schema_overrides: Mapping[str, pa.DataType] | None = field(default=None, kw_only=True)
    read_kwargs: Mapping[str, Any] = field(default_factory=dict, kw_only=True, repr=False)
    file_extensions: Sequence[str] = field(default=(), kw_only=True)
    limits: Limits = field(default=LIMITS, kw_only=True)
    _said: set[tuple[str, str]] = field(default_factory=set, init=False, repr=False)

    # Parameters that `describe` leaves out: where the files are, and secrets.
    _PLACES: ClassVar = frozenset(("file_paths", "read_kwargs"))

    def __post_init__(self) -> None:
        if self.max_batch_bytes is not None and self.max_batch_bytes <= 0:
            raise ArgumentValueError(f"max_batch_bytes must be > 0, got {self.max_batch_bytes}")
        _ = self.target, self.options  # what is wrong with parameters is said now

    def partitions(self) -> list[ItemPartition]:
        """Return the partitions. Raises NotFoundError for a path at which nothing is."""
        return self._files.partitions(self.options)

    def batches(self, partition: ItemPartition) -> Iterator[InterleavedBatch]:
        """Yield the batches of a partition: at least one, which may be empty. Raises as `steps`."""
        return (batch for batch, _ in self.steps(partition))

    def steps(self, partition: ItemPartition, cursor: Any = None) -> Iterator[tuple[InterleavedBatch, Any]]:
        """Yield the batches after a cursor, each with the cursor after it, which is JSON. None is before the first.

        Raises FormatError for a cursor that is not of this partition and for damaged data, and SourceError.
        """
        start = parse_cursor(cursor, len(partition.files))
        batch = start.batch
        for divided in divide(self._aligned(partition, start), self.max_batch_bytes):
            last = divided.places[-1]
            batch += 1
            after = BatchCursor(last.file, last.number, batch)
            yield self._batch(partition, divided, batch - 1), after.as_json()
        if cursor is None and batch == 0:
            after = BatchCursor(len(partition.files), 0, 1)
            yield self._named(partition, self._empty(partition), partition.files), after.as_json()

    def describe(self) -> dict[str, Any]:
        """Return the parameters as JSON, without the places of files."""
        names = [each.name for each in dataclass_fields(self) if each.init and each.name not in self._PLACES]
        return {"reader": type(self).__name__} | {name: _as_json(getattr(self, name)) for name in names}

    @cached_property
    def options(self) -> StoreOptions:
        """Options of fsspec for remote files."""
        return StoreOptions(self._files.all_paths(), self.read_kwargs.get("storage_options") or {})

    @cached_property
    def target(self) -> pa.Schema | None:
        """The schema of all batches, if it is given."""
        return resolve_schema(self.schema, self.schema_overrides)

    @abstractmethod
    def columns(self, partition: ItemPartition) -> list[str]:
        """Return the columns that the rows of a partition have, none if there are no rows. Raises as `steps`."""

    @abstractmethod
    def _samples(self, partition: ItemPartition, start: BatchCursor) -> Iterator[SamplePiece]:
        """Yield the samples from a place on, in tables of one schema. Their places are `SamplePlace`."""

    @abstractmethod
    def _empty(self, partition: ItemPartition) -> pa.Table:
        """Return the table of a partition without rows."""

    def _say_once(self, problem: str, names: Sequence[str]) -> None:
        """Warn of columns, but only of those that this reader has not warned of."""
        if new := [name for name in names if (problem, name) not in self._said]:
            self._said.update((problem, name) for name in new)
            log.warning("%s: %s", problem, ", ".join(new))

    @cached_property
    def _files(self) -> ItemFiles:
        endings = tuple(extension.lower() for extension in self.file_extensions)
        return ItemFiles(self.file_paths, endings, self.files_per_partition, self.blocksize)

    def _aligned(self, partition: ItemPartition, start: BatchCursor) -> Iterator[SamplePiece]:
        for samples in self._samples(partition, start):
            path = partition.files[samples.places[0].first_file]
            yield samples._replace(table=aligned(samples.table, self.target, path))

    def _batch(self, partition: ItemPartition, divided: Divided, number: int) -> InterleavedBatch:
        sources = partition.files
        if number or not divided.is_last:
            places: list[SamplePlace] = divided.places
            found = sorted({file for place in places for file in (place.first_file, place.file)})
            sources = tuple(f"{partition.files[file]}::split_{number:05d}" for file in found)
        return replace(self._named(partition, divided.table, sources), reencoded_frames=divided.reencoded)

    def _named(self, partition: ItemPartition, table: pa.Table, sources: tuple[str, ...]) -> InterleavedBatch:
        name = dataset_name(partition.files[0]) if partition.files else ""
        options = {path: found for path in partition.files if (found := self.options.of(path))}
        return InterleavedBatch(table, name, sources, storage_options=options)

    def _without_rows(self, names: Sequence[str]) -> pa.Table:
        """A table of the target, or of the reserved columns, with more columns of unknown types."""
        base = INTERLEAVED_SCHEMA if self.target is None else self.target
        more = [pa.field(name, pa.null()) for name in dict.fromkeys(names) if name not in base.names]
        return pa.schema([*base, *more]).empty_table()


def aligned(table: pa.Table, schema: pa.Schema | None, path: str) -> pa.Table:
    """Return the rows of a file in a schema, by default with the canonical types of reserved columns.

    Raises ColumnValueError, which is also a ValueError, where a value does not fit its column.
    """
    try:
        return align_interleaved_table(table, schema)
    except FormatError as error:
        raise error.at(path) from error.__cause__
    except (ValueError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise ColumnValueError(f"a value does not fit its column: {reason}", path=path) from error


def _as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _as_json(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [_as_json(each) for each in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
