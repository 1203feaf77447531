"""The description of a written cache: writers return it, and `touchfs.cache` reads it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from touchfs.core.errors import ArgumentTypeError
from touchfs.format.cache_metadata.layouts import LanceMetadata, ShardedMetadata, VideoFramesMetadata


@dataclass(frozen=True, slots=True)
class ShardedCacheMeta:
    """A cache of Arrow shards. `compression` is None, "zstd" or "lz4"."""

    cache_dir: Path
    num_rows: int
    num_shards: int
    shard_filenames: list[str]
    shard_row_counts: list[int]
    schema_fingerprint: str
    compression: str | None = None

    @property
    def shard_paths(self) -> list[Path]:
        """The paths of the shards, in order."""
        return [self.cache_dir / name for name in self.shard_filenames]

    @classmethod
    def of(cls, cache_dir: Path, metadata: ShardedMetadata) -> ShardedCacheMeta:
        """Return what the metadata of a cache says."""
        return cls(
            cache_dir,
            metadata.num_rows,
            len(metadata.shard_filenames),
            list(metadata.shard_filenames),
            list(metadata.shard_row_counts),
            metadata.schema_fingerprint,
            metadata.compression,
        )


@dataclass(frozen=True, slots=True)
class LanceCacheMeta:
    """A cache that is a Lance dataset. Its rows are examples, or frames of videos."""

    cache_dir: Path
    num_rows: int
    schema_fingerprint: str

    @classmethod
    def of(cls, cache_dir: Path, metadata: LanceMetadata | VideoFramesMetadata) -> LanceCacheMeta:
        """Return what the metadata of a cache says."""
        return cls(cache_dir, metadata.num_rows, metadata.schema_fingerprint)


def check_lineage(lineage: Mapping[str, Any] | None) -> None:
    """Raise ArgumentTypeError unless a lineage is JSON, before a cache is written for it."""
    try:
        json.dumps(lineage)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentTypeError(f"lineage must be JSON: {error}") from error
