"""Writer of a cache of Arrow shards: a generator of examples becomes IPC files in a directory."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from touchfs.caches.writers.encode import record_batches
from touchfs.caches.writers.meta import ShardedCacheMeta, check_lineage
from touchfs.caches.writers.publish import Building, map_write_errors, publish
from touchfs.caches.writers.shard_file import ShardFile, check_options, create_shard
from touchfs.core.errors import ArgumentValueError
from touchfs.features import Features, FeatureType, Video, features_fingerprint
from touchfs.format.cache_metadata.layouts import ShardedMetadata

if TYPE_CHECKING:
    import pyarrow

# All examples in one shard.
DEFAULT_SHARD_SIZE_BYTES = math.inf
SHARD_NAME = "shard-{:05d}.arrow"


def write_sharded_arrow_cache(
    generator: Iterable[tuple[Any, Mapping[str, Any]]],
    features: Mapping[str, FeatureType],
    cache_dir: str | os.PathLike[str],
    *,
    shard_size_bytes: float = DEFAULT_SHARD_SIZE_BYTES,
    batch_size: int = 1000,
    compression: str | None = None,
    num_encode_workers: int = 0,
    single_file: bool = False,
    lineage: Mapping[str, Any] | None = None,
    payload: str = "compressed",
) -> ShardedCacheMeta:
    """Write the examples of a generator, pairs of a key and a dict, as a cache, which appears as a whole.

    A shard is closed after the batch with which its batches have `shard_size_bytes` bytes in memory; in its file they
    may be more or fewer. With `single_file` there is one shard at most. An empty generator makes a cache of no shards.

    Args:
        batch_size: number of examples in a record batch. One batch is in memory.
        compression: codec of the buffers, "zstd" or "lz4"; None for none.
        num_encode_workers: number of threads that encode examples; 0 for none.
        lineage: what the examples were made of, as JSON; stored in the metadata.
        payload: "uncompressed" keeps columns of binary types (images, arrays, videos) as they are where the other
            columns are compressed, so that each of their cells is a range of the file.

    Raises ArgumentValueError, ArgumentTypeError, UsageError if `cache_dir` is a directory but not a cache, SourceError,
    MissingExtraError without pyarrow, and what the generator raises. Then nothing is left behind, and an old cache
    stays.
    """
    features = Features.of(features)
    if any(isinstance(feature, Video) and feature.storage == "frames" for feature in features.values()):
        raise ArgumentValueError(
            "Video(storage='frames') requires storage_format='lance': "
            "use write_lance_video_frames_cache, or `touchfs pack lance`"
        )
    check_options(compression, payload)
    check_lineage(lineage)
    target = math.inf if single_file else shard_size_bytes
    with publish(cache_dir) as building:
        shards = arrow_shards(building, features.to_arrow_schema(), target, compression, payload)
        try:
            for batch in record_batches(
                generator,
                features,
                batch_size=batch_size,
                num_encode_workers=num_encode_workers,
                cache_dir=building.path,
            ):
                shards.write(batch)
        finally:
            shards.close()
        metadata = ShardedMetadata(
            num_rows=sum(shards.row_counts),
            shard_filenames=tuple(shards.names),
            shard_row_counts=tuple(shards.row_counts),
            schema_fingerprint=features_fingerprint(features),
            compression=compression,
            shard_size_target_bytes=None if target == math.inf else target,
            lineage=lineage,
            features=features.to_json(),
        )
        building.commit(metadata)
    return ShardedCacheMeta.of(Path(cache_dir), metadata)


def arrow_shards(
    building: Building, schema: pyarrow.Schema, target: float, compression: str | None, payload: str
) -> Shards:
    """Arrow shards with a schema, which are written into a cache that is being built."""
    return Shards(building, SHARD_NAME, lambda path: create_shard(path, schema, compression, payload), target)


class Shards:
    """Writes the shards of a directory that is being built. One is open at most, and none is empty.

    `create` opens a new one at a path, whose name is `name` with a number. A shard is closed after the batch with which
    its batches have `target` bytes in memory.
    """

    def __init__(self, building: Building, name: str, create: Callable[[Path], ShardFile], target: float) -> None:
        self.names: list[str] = []
        self.row_counts: list[int] = []
        self._building = building
        self._name = name
        self._create = create
        self._target = target
        self._shard: ShardFile | None = None
        self._size = 0

    def write(self, batch: pyarrow.RecordBatch) -> None:
        """Append a batch to the open shard, or to a new one. Raises SourceError."""
        with map_write_errors(self._building.place):
            shard = self._shard or self._next()
            shard.write_batch(batch)
        self._size += batch.nbytes
        self.row_counts[-1] += batch.num_rows
        if self._size >= self._target:
            self.close()

    def close(self) -> None:
        """Close the open shard, if there is one."""
        shard, self._shard = self._shard, None
        if shard is not None:
            with map_write_errors(self._building.place):
                shard.close()

    def _next(self) -> ShardFile:
        name = self._name.format(len(self.names))
        self._shard = self._create(self._building.path / name)
        self._size = 0
        self.names.append(name)
        self.row_counts.append(0)
        return self._shard
