"""Read all files of a shard once, in the order of its samples, which is mostly that of the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from touchfs.catalog.table import DIRECTORY
from touchfs.core.errors import TouchfsError
from touchfs.dataset import Dataset
from touchfs.dataset.open_shard import OpenShard
from touchfs.dataset.shard import Shard
from touchfs.limits import Limits
from touchfs.verify.crc32c import PIECE, checksum_of, extender

VIEW = "shards"


class FileRead(NamedTuple):
    """A file that was read: its row in the table of the view, its path from the root of the tree, its size in bytes
    and its checksum. `problem` says why it could not be read, "" if it could.
    """

    row: int
    path: str
    size: int
    checksum: int
    problem: str


def open_alone(shard: Shard, limits: Limits) -> OpenShard:
    """A shard, opened as the only one of a dataset. Raises the errors of sources and FormatError."""
    return OpenShard(Dataset.of(shard.path, [shard], "not opened", limits), shard)


def read_files(opened: OpenShard, read: Callable[[int], None], *, with_checksums: bool) -> Iterator[FileRead]:
    """Every file of an open shard. `read` gets the number of bytes of each piece. Raises MissingExtraError."""
    if with_checksums:
        extender()
    table = opened.tables[VIEW]
    prefix = f"{opened.shard.path_in(VIEW)}/"
    for row in map(int, table.order):
        if table.kind[row] == DIRECTORY:
            continue
        path = prefix + table.path(row).decode("utf-8", "surrogateescape")
        size = checksum = 0
        problem = ""
        try:
            content = opened.content(table, row)
            size = content.size
            if with_checksums:
                checksum = checksum_of(content, read)
            else:
                for offset in range(0, size, PIECE):
                    read(len(content.read(offset, PIECE)))
        except TouchfsError as error:
            place = "" if error.offset is None else f" (at byte {error.offset} of {error.path or opened.shard.path})"
            problem = error.message + place
        yield FileRead(row, path, size, checksum, problem)
