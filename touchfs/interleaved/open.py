"""Opening interleaved samples of either kind by a path: the names of the files say which it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from touchfs.core.errors import NotFoundError, UsageError
from touchfs.interleaved.items.pipeline import ItemWriter
from touchfs.interleaved.read.files import ItemFiles
from touchfs.interleaved.read.parquet import PARQUET_EXTENSIONS, InterleavedParquetReader
from touchfs.interleaved.read.reader import PartitionReader
from touchfs.interleaved.read.webdataset import WEBDATASET_EXTENSIONS, InterleavedWebdatasetReader
from touchfs.interleaved.write import InterleavedParquetWriter, InterleavedWebdatasetWriter

WDS, PARQUET = "wds", "parquet"
_SUFFIXES = {WDS: WEBDATASET_EXTENSIONS, PARQUET: PARQUET_EXTENSIONS}
_READERS: dict[str, Callable[..., PartitionReader]] = {
    WDS: InterleavedWebdatasetReader,
    PARQUET: InterleavedParquetReader,
}
_WRITERS: dict[str, Callable[..., ItemWriter]] = {
    WDS: InterleavedWebdatasetWriter,
    PARQUET: InterleavedParquetWriter,
}


def kind_of(path: str) -> str:
    """Return the kind of the shards at a path, which is a file, a directory or a pattern: `wds` or `parquet`.

    Raises NotFoundError if there are none, and UsageError if there are both.
    """
    found = ItemFiles(path, sum(_SUFFIXES.values(), ())).partitions()
    names = [name.lower() for partition in found for name in partition.files]
    kinds = [kind for kind, suffixes in _SUFFIXES.items() if any(name.endswith(suffixes) for name in names)]
    if not kinds:
        expected = ", ".join(sum(_SUFFIXES.values(), ()))
        raise NotFoundError(f"no interleaved samples here: expected one of {expected}", path=path)
    if len(kinds) > 1:
        raise UsageError("has tars and Parquet files: name those of one kind by a pattern", path=path)
    return kinds[0]


def open_interleaved(path: str, **parameters: Any) -> PartitionReader:
    """Return a reader of the samples at a path: of tars, or of Parquet files. `parameters` are those of its class."""
    return _READERS[kind_of(path)](path, **parameters)


def open_writer(kind: str, output: str, **parameters: Any) -> ItemWriter:
    """Return a writer of shards of a kind, `wds` or `parquet`. `parameters` are those of its class."""
    return _WRITERS[kind](output, **parameters)
