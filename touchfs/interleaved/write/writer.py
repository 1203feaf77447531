"""The base of writers of interleaved samples: their parameters, the names of files, and batches made ready to write."""

from __future__ import annotations

import hashlib
import logging
import os
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute

from touchfs.core.errors import ArgumentTypeError, ArgumentValueError, MaterializeError, TouchfsError
from touchfs.core.progress import advance
from touchfs.interleaved.items.batch import InterleavedBatch
from touchfs.interleaved.items.materialize import materialized_parts
from touchfs.interleaved.items.policy import MaterializePolicy, apply_policy, check_policy
from touchfs.interleaved.items.schema import REQUIRED_COLUMNS, align_interleaved_table, resolve_schema
from touchfs.interleaved.layout.columns import IMAGE
from touchfs.interleaved.write.output import open_output, prepare_output
from touchfs.limits import LIMITS, Limits
from touchfs.tables.parquet.write_settings import ROW_GROUP_BYTES

log = logging.getLogger(__name__)

_NAME_DIGITS = 12


class TableFile(Protocol):
    """A file that is being written from tables."""

    def append(self, table: pa.Table) -> None:
        """Append rows, whose images have their bytes. A sample is in one table only."""
        ...


class InterleavedShard:
    """A file that takes any number of batches.

    `path` is where it appears when it is complete. It has `samples` and `rows` so far. `reencoded_frames` of them are
    frames of TIFFs that could not be copied, so they were decoded and compressed again without loss.
    """

    def __init__(self, writer: InterleavedWriter, file: TableFile, path: str) -> None:
        self._writer = writer
        self._file = file
        self.path = path
        self.samples = 0
        self.rows = 0
        self.reencoded_frames = 0

    def append(self, batch: InterleavedBatch) -> None:
        """Append the rows of a batch. No sample may be in two batches.

        Raises RuntimeError for the policy `error`, ArgumentValueError for rows that cannot be written, and SourceError.
        """
        before = batch.reencoded_frames
        self.reencoded_frames += before
        for part in self._writer.prepare(batch):
            self._file.append(part.table)
            advance(part.table.nbytes)
            self.rows += part.count()
            self.samples += part.num_items
            self.reencoded_frames += part.reencoded_frames - before


class InterleavedWriter(ABC):
    """Writes batches of interleaved samples to files of the directory `path`, a path or a URL of fsspec.

    `write_kwargs`          options of the format, and `storage_options` of fsspec for `path`
    `materialize_on_write`  fetch the bytes of images that have none
    `mode`                  what to do if the directory exists: see `prepare_output`
    `on_materialize_error`  error, warn, drop_row or drop_sample: see `apply_policy`
    `schema`                the exact columns of the files; `schema_overrides` changes types of the canonical ones
    `locations`             paths and URLs that locators may lead to, besides the files that the batch was read from
    `limits`                of the memory that an image may take

    The directory is made here. Raises ArgumentValueError for wrong values, and what `prepare_output` raises.
    """

    suffix: str

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        write_kwargs: Mapping[str, Any] | None = None,
        materialize_on_write: bool = True,
        mode: str = "ignore",
        on_materialize_error: MaterializePolicy = "error",
        schema: pa.Schema | None = None,
        schema_overrides: Mapping[str, pa.DataType] | None = None,
        locations: Sequence[str] = (),
        limits: Limits = LIMITS,
    ) -> None:
        self.path = os.fspath(path)
        self.schema = resolve_schema(schema, schema_overrides)
        self.locations = tuple(locations)
        self.limits = limits
        self.materialize_on_write = materialize_on_write
        self.on_materialize_error = on_materialize_error
        self.options = dict(write_kwargs or {})
        self._storage_options = self.options.pop("storage_options", None) or {}
        # pandas has this option; files of ours have no index.
        self.options.pop("index", None)
        check_policy(on_materialize_error)
        self._check_options()
        prepare_output(open_output(self.path, self._storage_options), self.path, mode)

    def write(self, batch: InterleavedBatch) -> str:
        """Write a batch to a file of its own, and return the path. Raises what `InterleavedShard.append` raises."""
        with self.writing(batch.source_files, batch.task_id) as shard:
            shard.append(batch)
        return shard.path

    def writing(
        self, source_files: Collection[str] = (), task_id: str = ""
    ) -> AbstractContextManager[InterleavedShard]:
        """Write a file of any number of batches, which appears when the block ends; an exception discards it.

        The file is named after `source_files`, which the batches were read from, and `task_id`, so a second run
        replaces it.
        """
        return self.named(file_name(source_files, task_id))

    @contextmanager
    def named(self, stem: str) -> Iterator[InterleavedShard]:
        """Like `writing`, for a file with another name, `stem` and the suffix."""
        name = stem + self.suffix
        shown = f"{self.path.rstrip('/')}/{name}"
        with open_output(self.path, self._storage_options).new_file(name) as path:
            try:
                with self._open(path) as file:
                    yield InterleavedShard(self, file, shown)
            except TouchfsError as error:
                if error.path == os.fspath(path):  # the temporary one
                    error.path = shown
                raise

    def describe(self) -> dict[str, Any]:
        """Return the parameters that determine what is written, as JSON."""
        return {
            "kind": type(self).__name__,
            "write_kwargs": repr(sorted(self.options.items())),
            "materialize_on_write": self.materialize_on_write,
            "on_materialize_error": self.on_materialize_error,
            "schema": None if self.schema is None else self.schema.to_string(),
            "locations": list(self.locations),
            "limits": repr(self.limits),
        }

    def prepare(self, batch: InterleavedBatch) -> Iterator[InterleavedBatch]:
        """Yield the rows of a batch as they are written: with bytes, without what the policy drops, in the schema.

        If images have to be fetched, this is done in parts of whole samples of about `ROW_GROUP_BYTES`. Raises
        ArgumentValueError for rows that the format cannot store.
        """
        table = batch.table
        self._check_rows(table)
        must_fetch = self.materialize_on_write and _lacks_bytes(table)
        parts = self._materialized(batch) if must_fetch else [batch]
        for part in parts:
            try:
                table = apply_policy(part.table, self.on_materialize_error)
            except MaterializeError as error:
                if len(part.source_files) == 1:
                    error.at(part.source_files[0])
                raise
            try:
                yield part.replaced(align_interleaved_table(table, self.schema))
            except pa.ArrowInvalid as error:
                problem = f"values do not fit the schema: {error}: give other types by schema= or schema_overrides="
                raise ArgumentTypeError(problem, path=self.path) from error

    def _materialized(self, batch: InterleavedBatch) -> Iterator[InterleavedBatch]:
        return materialized_parts(batch, ROW_GROUP_BYTES, self.locations, max_decoded=self.limits.decoded)

    @abstractmethod
    def _check_options(self) -> None:
        """Raise ArgumentValueError for options that the format does not have."""

    def _check_rows(self, table: pa.Table) -> None:
        """Raise ArgumentValueError for rows that the format cannot store."""
        for name in REQUIRED_COLUMNS:
            if name not in table.column_names:
                raise ArgumentValueError(f"the batch has no column {name!r}", path=self.path)
            if table[name].null_count:
                raise ArgumentValueError(f"the column {name!r} contains null values", path=self.path)
        if repeated := [name for name, count in Counter(table.column_names).items() if count > 1]:
            raise ArgumentValueError(f"the batch has several columns {repeated[0]!r}", path=self.path)

    @abstractmethod
    def _open(self, path: Path) -> AbstractContextManager[TableFile]:
        """Return a context manager that creates the file at the path, and completes it at its end."""


def _lacks_bytes(table: pa.Table) -> bool:
    compute = pyarrow.compute
    lacks = compute.equal(table["modality"], IMAGE)
    if "binary_content" in table.column_names:
        lacks = compute.and_(lacks, table["binary_content"].is_null())
    found: bool | None = compute.any(lacks).as_py()
    return bool(found)


def file_name(source_files: Collection[str], task_id: str = "") -> str:
    """Return the name of an output file without suffix: the same for the same input files, in any order.

    It is that of NeMo Curator: 12 digits of the SHA-256 of the names. Without names it is random.
    """
    if not source_files:
        log.warning("the batch does not say which files it was read from: its file gets a random name")
        return uuid.uuid4().hex
    text = "|".join(sorted(source_files)) + "|" + task_id
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_NAME_DIGITS]
