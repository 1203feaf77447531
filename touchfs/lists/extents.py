"""`extents.parquet`: where the bytes of all files are that are plain ranges of stored files, a row for each.

    path            absolute path of the stored file, or its URL
    offset, length  the range
    shard, key      the names of the shard and of the sample
    field           the extension of the file, such as `jpg`
    crc32c          the checksum that `touchfs verify --write` has written, else null

Rows are in the order of the dataset. The file is made once, and kept in the scratch store until the dataset, its place
or its checksums change: the Parquet file, and a CRC-32 (zlib's) of it.
"""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.columns import as_array
from touchfs.catalog.table import NO_SAMPLE
from touchfs.core.errors import FormatError, map_os_errors
from touchfs.core.extent import Buffer, Content, Extent
from touchfs.core.extras import load_pyarrow
from touchfs.core.location import Location
from touchfs.core.names import hex_digest
from touchfs.core.progress import Progress
from touchfs.dataset import Dataset
from touchfs.dataset.open_shard import OpenShard
from touchfs.dataset.sample_file import plain_range_of
from touchfs.dataset.shard import Shard
from touchfs.lists.kinds import lists_name
from touchfs.posix.trust import open_trusted_unique
from touchfs.source.mapped import map_file
from touchfs.source.scratch.source import ScratchSource
from touchfs.source.scratch.store import Scratch

VERSION = 1
# Returns the checksums of the rows of a shard; None if there are none.
Checksums: TypeAlias = Callable[[Shard], NDArray[np.integer[Any]] | None]
COLUMNS = ("path", "offset", "length", "shard", "key", "field", "crc32c")
_ROWS = 1 << 16
_PIECE = 1 << 20
_CRC_SIZE = 4


def pieces_of(content: Content) -> Iterator[Buffer]:
    yield from (content.read(offset, _PIECE) for offset in range(0, content.size, _PIECE))


def open_extents(dataset: Dataset, checksums: Checksums, progress: Progress = lambda done, total: None) -> Content:
    """The file as a content; it is made if the scratch store has none. Raises MissingExtraError without pyarrow, the
    errors of shards, and SourceError if the scratch store cannot be used. `progress` gets the number of samples.
    """
    scratch, name = Scratch.configured(), _name(dataset, checksums)
    for _ in range(2):
        file = scratch.make(name, _pieces(dataset, checksums, scratch.directory, progress))
        with map_os_errors(file.path), open(open_trusted_unique(file.path), "rb") as opened:
            data = map_file(opened.fileno())
        end = len(data) - _CRC_SIZE
        if end >= 0 and zlib.crc32(data[:end]).to_bytes(_CRC_SIZE, "little") == data[end:]:
            return Extent(ScratchSource(file), 0, end)
        with map_os_errors(file.path):  # it is made again
            scratch.remove([file.path])
    raise FormatError("damaged as soon as it was made: is the disk in order?", path=file.path)


def _name(dataset: Dataset, checksums: Checksums) -> str:
    known = (checksums(shard) for shard in dataset.shards)
    facts = [
        *(VERSION, lists_name(dataset), Location.of(dataset.source).absolute.shown),
        *(shard.path for shard in dataset.shards),
        *(None if each is None else zlib.crc32(each.tobytes()) for each in known),
    ]
    return hex_digest(json.dumps(facts).encode())


def _pieces(dataset: Dataset, checksums: Checksums, directory: str, progress: Progress) -> Iterator[Buffer]:
    with tempfile.TemporaryFile(dir=directory) as file:
        _write(file, dataset, checksums, progress)
        file.seek(0)
        checksum = 0
        while piece := file.read(_PIECE):
            checksum = zlib.crc32(piece, checksum)
            yield piece
        yield checksum.to_bytes(_CRC_SIZE, "little")


def _write(file: IO[bytes], dataset: Dataset, checksums: Checksums, progress: Progress) -> None:
    pa = load_pyarrow()
    import pyarrow.parquet as pq

    types = [pa.string(), pa.int64(), pa.int64(), pa.string(), pa.string(), pa.string(), pa.uint32()]
    schema = pa.schema([pa.field(*each) for each in zip(COLUMNS, types, strict=True)])
    done = 0
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        progress(0, dataset.samples)
        for shard in dataset.shards:
            rows = _rows(dataset, shard, checksums(shard))
            while some := list(islice(rows, _ROWS)):
                columns = zip(*some, strict=True)
                writer.write_batch(pa.record_batch([*map(pa.array, columns, types)], schema=schema))
            done += shard.samples
            progress(done, dataset.samples)


def _rows(dataset: Dataset, shard: Shard, checksums: NDArray[np.integer[Any]] | None) -> Iterator[tuple[Any, ...]]:
    with closing(OpenShard(dataset, shard)) as opened:
        table = opened.tables["shards"]
        ordinals, name = as_array(table.ordinal), _text(shard.name)
        for row in as_array(table.order).tolist():
            if ordinals[row] == NO_SAMPLE:
                continue
            if (place := plain_range_of(opened.content(table, row))) is None:
                continue
            if _text(place.path) != place.path:
                raise FormatError("its path is not UTF-8, so extents.parquet cannot name it", path=place.path)
            crc32c = None if checksums is None else int(checksums[row])
            yield *place, name, _text(table.key(row)), _text(table.extension(row)), crc32c


def _text(name: str) -> str:
    """A name as Parquet can have it: bytes that are not UTF-8 become question marks."""
    return name.encode(errors="replace").decode()
