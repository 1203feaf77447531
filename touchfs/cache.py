"""Caches: a generator of examples becomes Arrow shards or a Lance dataset, and is opened again as a backend.

    from touchfs.cache import ClassLabel, Features, Image, open_cache, write_sharded_arrow_cache

    features = Features({"image": Image(), "label": ClassLabel(names=["cat", "dog"])})
    write_sharded_arrow_cache(examples, features, "pets")
    pets = open_cache("pets", features)
    pets.backend.get_row(0)

See `docs/caches.md`.
"""

from touchfs.caches.metadata import (
    detect_cache_format,
    detect_cache_layout,
    read_lance_cache_meta,
    read_sharded_cache_meta,
    validate_sharded_cache,
)
from touchfs.caches.open import CacheOpenResult, open_cache, read_shard
from touchfs.caches.writers.arrow import DEFAULT_SHARD_SIZE_BYTES, write_sharded_arrow_cache
from touchfs.caches.writers.encode import encode_example
from touchfs.caches.writers.lance_rows import write_lance_cache
from touchfs.caches.writers.meta import LanceCacheMeta, ShardedCacheMeta
from touchfs.caches.writers.publish import build_once
from touchfs.caches.writers.video_frames import write_lance_video_frames_cache
from touchfs.features import (
    Array3D,
    Array4D,
    ClassLabel,
    Features,
    FeatureType,
    File,
    Image,
    Sequence,
    Value,
    Video,
    VideoRef,
    cache_fingerprint,
)

__all__ = [
    "DEFAULT_SHARD_SIZE_BYTES",
    "Array3D",
    "Array4D",
    "CacheOpenResult",
    "ClassLabel",
    "FeatureType",
    "Features",
    "File",
    "Image",
    "LanceCacheMeta",
    "Sequence",
    "ShardedCacheMeta",
    "Value",
    "Video",
    "VideoRef",
    "build_once",
    "cache_fingerprint",
    "detect_cache_format",
    "detect_cache_layout",
    "encode_example",
    "open_cache",
    "read_lance_cache_meta",
    "read_shard",
    "read_sharded_cache_meta",
    "validate_sharded_cache",
    "write_lance_cache",
    "write_lance_video_frames_cache",
    "write_sharded_arrow_cache",
]
