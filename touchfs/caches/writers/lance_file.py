"""Record batches become a Lance dataset, as they come.

Lance asks for batches in a thread of its own, and turns their errors into texts. So it runs in a thread beside, and the
caller's generator in the caller's.
"""

from __future__ import annotations

import queue
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from touchfs.caches.writers.publish import map_write_errors
from touchfs.core.errors import ArgumentValueError
from touchfs.core.extras import load_lance, load_pyarrow
from touchfs.posix.threads import start_call

if TYPE_CHECKING:
    import pyarrow

# Bytes that Lance gathers for a page of a column. Its own 8 MiB are as good as no limit where batches come fast: memory
# had 330 of 800 MB, and so it has 130.
_PAGE = 1 << 20
# How often to look whether Lance still takes batches.
_SECONDS = 0.1


class _StoppedError(Exception):
    """The caller has no more batches for Lance, and wants no dataset."""


def check_column_names(names: Iterable[str]) -> None:
    """Raise ArgumentValueError for a name that Lance does not allow for a column: one with a dot."""
    for name in names:
        if "." in name:
            raise ArgumentValueError(f"Lance allows no dot in the name of a column: rename {name!r}")


def column_names(extensions: Sequence[str], taken: Iterable[str]) -> dict[str, str]:
    """The name of a Lance column for each extension: `seg_json` for `seg.json`, with a number if another one has it.

    An extension without a dot is its own name. No column gets a name of `taken`.
    """
    used = {*taken, *(extension for extension in extensions if "." not in extension)}
    names = {}
    for extension in extensions:
        name = extension
        if "." in extension:
            name = plain = extension.replace(".", "_")
            number = 2
            while name in used:
                name = f"{plain}_{number}"
                number += 1
            used.add(name)
        names[extension] = name
    return names


def write_lance(batches: Iterable[pyarrow.RecordBatch], schema: pyarrow.Schema, directory: Path) -> None:
    """Write a Lance dataset into a directory. Raises what `batches` raises, SourceError and MissingExtraError."""
    lance, pa = load_lance(), load_pyarrow()
    given: queue.Queue[pyarrow.RecordBatch | _StoppedError | None] = queue.Queue(1)

    def stream() -> Iterator[pyarrow.RecordBatch]:
        while (batch := given.get()) is not None:
            if isinstance(batch, _StoppedError):
                raise batch
            yield batch

    def write() -> None:
        lance.write_dataset(
            pa.RecordBatchReader.from_batches(schema, stream()),
            str(directory),
            mode="create",
            data_cache_bytes=_PAGE * len(schema),
        )

    def give(batch: pyarrow.RecordBatch | _StoppedError | None) -> bool:
        """Return False if Lance failed, and takes no more."""
        while not written.done():
            try:
                given.put(batch, timeout=_SECONDS)
            except queue.Full:
                continue
            return True
        return False

    written = start_call(write, name="lance-file")
    try:
        all(map(give, batches))
    except BaseException:
        give(_StoppedError())
        written.exception()  # until Lance writes no more
        raise
    give(None)
    with map_write_errors(directory):
        written.result()


class CountedBatches:
    """Record batches, and the number of their rows so far."""

    def __init__(self, batches: Iterator[pyarrow.RecordBatch]) -> None:
        self.rows = 0
        self._batches = batches

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        return self

    def __next__(self) -> pyarrow.RecordBatch:
        batch = next(self._batches)
        self.rows += batch.num_rows
        return batch
