"""The rows of tables as record batches, and those of Arrow files. `lance_batches` has those of Lance datasets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Protocol

from touchfs.errors import FormatError
from touchfs.limits import Limits
from touchfs.posix.extras import load_pyarrow
from touchfs.progress import Progress
from touchfs.shard.single import open_source
from touchfs.shard.tables.files import fingerprints, read_metadata
from touchfs.source.store import StoredFile
from touchfs.tables.arrow_file import ArrowFile, open_arrow

if TYPE_CHECKING:
    import pyarrow


class BatchSource(Protocol):
    """A table that is read in batches."""

    @property
    def schema(self) -> pyarrow.Schema:
        """The schema, with its metadata."""
        ...

    @property
    def directory(self) -> str:
        """The directory that has the videos of the table, if there are any."""
        ...

    @property
    def description(self) -> dict[str, Any]:
        """`schema_fingerprint` and `features` of the cache that the table is; without one, "" and nothing."""
        ...

    def batches(self, progress: Progress) -> Iterator[pyarrow.RecordBatch]:
        """All rows. `progress` gets what is done and the total. Raises FormatError, and the errors of files."""
        ...


class ArrowBatches:
    """Arrow files, in order. Raises FormatError for files with different columns."""

    def __init__(self, shards: Sequence[str], limits: Limits) -> None:
        self._files = [(path, fingerprints(path)) for path in shards]
        self._limits = limits
        self.directory = os.path.dirname(shards[0])
        with closing(self._open(0)) as first:
            self.schema = open_arrow(first, limits).schema

    @property
    def description(self) -> dict[str, Any]:
        """See `BatchSource.description`."""
        metadata = read_metadata(*self._files[0])
        if metadata is None:
            return {"schema_fingerprint": ""}
        return {"schema_fingerprint": metadata.schema_fingerprint, "features": metadata.features}

    def batches(self, progress: Progress) -> Iterator[pyarrow.RecordBatch]:
        """See `BatchSource.batches`. The progress is in bytes."""
        sizes = [files[os.path.basename(path)].size for path, files in self._files]
        before = 0
        for number, (path, _) in enumerate(self._files):
            with closing(self._open(number)) as file:
                table = open_arrow(file, self._limits)
                if not table.schema.equals(self.schema):
                    first, _ = self._files[0]
                    raise FormatError(f"its columns are not those of {first}: convert the two one by one", path=path)
                for batch in range(table.batches):
                    yield self._batch(table, batch)
                    progress(before + sizes[number] * (batch + 1) // table.batches, sum(sizes))
            before += sizes[number]

    def _batch(self, table: ArrowFile, number: int) -> pyarrow.RecordBatch:
        return load_pyarrow().RecordBatch.from_arrays(table.read_batch(number).columns, schema=self.schema)

    def _open(self, number: int) -> StoredFile:
        path, files = self._files[number]
        return open_source(path, os.path.basename(path), files)


def of_size(batches: Iterator[pyarrow.RecordBatch], rows: int) -> Iterator[pyarrow.RecordBatch]:
    """The same rows in batches of `rows` rows, the last one smaller."""
    pa = load_pyarrow()
    waiting: list[pyarrow.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        if count >= rows:
            whole = pa.concat_batches(waiting)
            full = count - count % rows
            yield from (whole.slice(start, rows) for start in range(0, full, rows))
            waiting, count = [whole.slice(full)], count - full
    if count:
        yield pa.concat_batches(waiting)
