"""The metadata of a cache, a class for each of the three layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

VERSION = 1
ARROW_SHARDS, LANCE_ROWS, LANCE_VIDEO_FRAMES = "arrow-shards", "lance-rows", "lance-video-frames"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Metadata:
    layout: ClassVar[str]
    num_rows: int
    schema_fingerprint: str
    lineage: Any = None
    features: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedMetadata(_Metadata):
    """Metadata of a cache of Arrow shards.

    `compression` is None, "zstd" or "lz4"; `shard_size_target_bytes` is None for a single shard.
    """

    layout: ClassVar[str] = ARROW_SHARDS
    shard_filenames: tuple[str, ...]
    shard_row_counts: tuple[int, ...]
    compression: str | None = None
    shard_size_target_bytes: int | float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LanceMetadata(_Metadata):
    """Metadata of a Lance dataset whose rows are the examples."""

    layout: ClassVar[str] = LANCE_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoRecord:
    """A video of a dataset of frames: its frames are the rows from `start_row` on, of `height` × `width` pixels.

    `id` is the position in the cache, and the rows' `video_id`. The original tool writes the ordinal of the example
    instead, which has gaps where videos were skipped.
    """

    id: int
    key: str | int | float | bool | None
    path: str
    checksum: str | None
    frames: int
    height: int
    width: int
    start_row: int
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoFramesMetadata(_Metadata):
    """Metadata of a Lance dataset of frames. `num_rows` counts frames, `n_skipped` videos that do not decode."""

    layout: ClassVar[str] = LANCE_VIDEO_FRAMES
    n_skipped: int
    encoding: str
    quality: int
    resize: int | None
    video_column: str
    videos: tuple[VideoRecord, ...]


CacheMetadata = ShardedMetadata | LanceMetadata | VideoFramesMetadata
