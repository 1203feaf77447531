"""The state of a cache on disk: its layout, its row counts and its shards, checked without opening its data.

Whatever a cache names lies in its directory (`touchfs.caches.cache_directory`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from touchfs.caches.cache_directory import hold_cache, read_metadata
from touchfs.caches.writers.meta import LanceCacheMeta, ShardedCacheMeta
from touchfs.core.errors import CacheFormatError
from touchfs.features import ClassLabel, Features, FeatureType, features_fingerprint
from touchfs.format.arrow.metadata import MAGIC, TAIL
from touchfs.format.cache_metadata.layouts import LanceMetadata, ShardedMetadata, VideoFramesMetadata
from touchfs.format.cache_metadata.parse import parse_lance, parse_member, parse_sharded
from touchfs.posix.beneath import open_beneath
from touchfs.posix.published import HeldDirectory

_FLAGS = os.O_RDONLY | os.O_CLOEXEC


def detect_cache_layout(cache_dir: str | os.PathLike[str]) -> str:
    """Return the layout of a cache: "arrow-shards", "lance-rows", "lance-video-frames", or an unknown one.

    Raises MissingFileError without metadata, and CacheFormatError if it has none.
    """
    return parse_member(read_metadata(hold_cache(cache_dir)), "layout", os.fspath(cache_dir))


def detect_cache_format(cache_dir: str | os.PathLike[str]) -> str:
    """Return the format of a cache: "arrow" or "lance". Raises as `detect_cache_layout`."""
    return parse_member(read_metadata(hold_cache(cache_dir)), "format", os.fspath(cache_dir))


def read_sharded_cache_meta(cache_dir: str | os.PathLike[str]) -> ShardedCacheMeta:
    """Read the metadata of a cache of Arrow shards, and check that its shards are there and complete.

    Raises MissingFileError without metadata, and CacheFormatError.
    """
    return ShardedCacheMeta.of(Path(cache_dir), read_sharded(hold_cache(cache_dir)))


def validate_sharded_cache(cache_dir: str | os.PathLike[str], features: Mapping[str, FeatureType]) -> ShardedCacheMeta:
    """Like `read_sharded_cache_meta`, and raise CacheFormatError if the cache was made of other features.

    Raises ArgumentTypeError if `features` is not a Features.
    """
    metadata = read_sharded(hold_cache(cache_dir))
    check_features(metadata, Features.of(features))
    return ShardedCacheMeta.of(Path(cache_dir), metadata)


def read_lance_cache_meta(cache_dir: str | os.PathLike[str]) -> LanceCacheMeta:
    """Read the metadata of a cache that is a Lance dataset, of either layout. Lance itself is not started.

    Raises MissingFileError without metadata, and CacheFormatError.
    """
    return LanceCacheMeta.of(Path(cache_dir), read_lance(hold_cache(cache_dir)))


def read_sharded(directory: HeldDirectory) -> ShardedMetadata:
    """Return the metadata of a cache of Arrow shards, all of which are there. Raises as `read_sharded_cache_meta`."""
    metadata = parse_sharded(read_metadata(directory), directory.place)
    for name in metadata.shard_filenames:
        _check_shard(directory, name)
    return metadata


def read_lance(directory: HeldDirectory) -> LanceMetadata | VideoFramesMetadata:
    """Return the metadata of a cache that is a Lance dataset. Raises as `read_lance_cache_meta`."""
    return parse_lance(read_metadata(directory), directory.place)


def check_features(metadata: ShardedMetadata | LanceMetadata | VideoFramesMetadata, features: Features) -> None:
    """Raise CacheFormatError if a cache was made of other features. A cache without a fingerprint is not checked."""
    expected = features_fingerprint(features)
    if metadata.schema_fingerprint and metadata.schema_fingerprint != expected:
        raise CacheFormatError(
            f"Schema fingerprint mismatch: cache has {metadata.schema_fingerprint}, expected {expected}. "
            "Delete the cache and rebuild."
        )
    for name, form in (metadata.features or {}).items():
        feature = features.get(name)
        # Two sets of many names have the same fingerprint.
        if isinstance(feature, ClassLabel) and _names(form) not in (None, feature.names):
            raise CacheFormatError(
                f"Schema mismatch: cache has other names of the label {name!r}. Delete the cache and rebuild."
            )


def _names(form: Mapping[str, Any]) -> Any:
    return form.get("names") if isinstance(form, dict) else None


def _check_shard(directory: HeldDirectory, name: str) -> None:
    """Raise CacheFormatError unless a shard is a file of the cache that ends as an Arrow file does."""
    path = os.path.join(directory.place, name)
    try:
        descriptor = open_beneath(directory.path, name, _FLAGS)
    except FileNotFoundError:
        raise CacheFormatError(f"Missing shard file: {path}") from None
    except OSError as error:
        raise CacheFormatError(f"Missing shard file: {path}: {error.strerror}") from error
    try:
        size = os.fstat(descriptor).st_size
        end = os.pread(descriptor, len(MAGIC), max(size - len(MAGIC), 0))
    finally:
        os.close(descriptor)
    if end != MAGIC or size < TAIL.size:
        raise CacheFormatError(f"Not an Arrow file, or one that was cut short: {path}. Rebuild the cache.")
