"""The checksums of a shard: a file beside its catalog, with a CRC32C for each row of the table `shards`.

It is an Arrow file of one column, `crc32c`, of unsigned integers of 32 bits; those of directories are 0. The metadata
key `touchfs` holds a version, and the identity of the shard's files: the checksums of a shard that has changed are not
used. Those of one that was moved are: they get a second name with its catalog (`touchfs.indexing.moved_indexes`).
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, TouchfsError, map_os_errors
from touchfs.core.names import hex_digest
from touchfs.dataset import Dataset
from touchfs.dataset.shard import Shard
from touchfs.format.arrow.sealed import build_sealed, parse_sealed
from touchfs.indexing.moved_indexes import checksums_of
from touchfs.posix.trust import atomic_own_file, open_trusted
from touchfs.source.mapped import map_file

_VERSION = 2
_COLUMN = {"crc32c": np.dtype("<u4")}


def checksums_path(shard: Shard) -> str:
    return checksums_of(shard.catalog)


def _identity(shard: Shard) -> str:
    """A hash that changes when a file of the shard does, or what its catalog shows of it. No path is in it."""
    listed = [f"{name}\0{fingerprint.hashed}" for name, fingerprint in sorted(shard.files.items())]
    return hex_digest("\0".join([*listed, str(shard.unmeasured)]).encode(errors="surrogateescape"))


def load_checksums(shard: Shard) -> NDArray[np.integer[Any]] | None:
    """The checksum of each row, of shape (rows,); None if there are none of this version of the shard.

    Raises FormatError for a damaged file, UntrustedError or SourceError.
    """
    path = checksums_path(shard)
    if not os.path.lexists(path):
        return None
    with map_os_errors(path), open(open_trusted(path, shard.path), "rb") as file:
        data = map_file(file.fileno())
    try:
        parsed = parse_sealed(data)
        facts = json.loads(parsed.metadata["touchfs"])
        if facts["version"] != _VERSION or facts["identity"] != _identity(shard):
            return None
        (batch,) = parsed.batches
        column = batch.columns["crc32c"]
        if not isinstance(column, np.ndarray) or column.dtype != _COLUMN["crc32c"]:
            raise ValueError("the column has another type")
    except (FormatError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise FormatError("damaged: `touchfs verify --write` writes the checksums again", path=path) from error
    return column


def has_checksums(shard: Shard) -> bool:
    """True if there are checksums of this version of the shard. Damaged ones count: with them no file can be opened."""
    try:
        return load_checksums(shard) is not None
    except TouchfsError:
        return True


def without_checksums(dataset: Dataset) -> list[str]:
    """The names of the shards that have no checksums, or only those of another version of them."""
    return [shard.name for shard in dataset.shards if not has_checksums(shard)]


def save_checksums(shard: Shard, checksums: NDArray[np.uint32]) -> None:
    """Write the checksums of a shard. Raises UnwritableError or SourceError."""
    path, facts = checksums_path(shard), {"version": _VERSION, "identity": _identity(shard)}
    with atomic_own_file(path) as file:
        for piece in build_sealed(_COLUMN, [{"crc32c": checksums}], {"touchfs": json.dumps(facts)}):
            file.write(piece)
