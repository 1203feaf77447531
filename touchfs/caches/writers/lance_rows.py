"""Writer of a cache of Lance rows: a generator of examples becomes a Lance dataset."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from touchfs.caches.writers.encode import record_batches
from touchfs.caches.writers.lance_file import CountedBatches, check_column_names, write_lance
from touchfs.caches.writers.meta import LanceCacheMeta, check_lineage
from touchfs.caches.writers.publish import publish
from touchfs.core.errors import ArgumentValueError
from touchfs.features import Features, FeatureType, Video, features_fingerprint
from touchfs.format.cache_metadata.layouts import LanceMetadata

if TYPE_CHECKING:
    pass


def write_lance_cache(
    generator: Iterable[tuple[Any, Mapping[str, Any]]],
    features: Mapping[str, FeatureType],
    cache_dir: str | os.PathLike[str],
    *,
    batch_size: int = 1000,
    num_encode_workers: int = 0,
    lineage: Mapping[str, Any] | None = None,
) -> LanceCacheMeta:
    """Write the examples of a generator, pairs of a key and a dict, as a cache, which appears as a whole.

    The directory is a Lance dataset with `_metadata.json` in it. No column is encoded as blobs. An empty generator
    makes a cache without rows.

    Args:
        batch_size: number of examples that are passed to Lance at a time. One batch is in memory.
        num_encode_workers: number of threads that encode examples; 0 for none.
        lineage: what the examples were made of, as JSON; stored in the metadata.

    Raises ArgumentValueError, ArgumentTypeError, UsageError if `cache_dir` is a directory but not a cache, SourceError,
    MissingExtraError without pylance, and what the generator raises. Then nothing is left behind, and an old cache
    stays.
    """
    features = Features.of(features)
    if any(isinstance(feature, Video) and feature.storage == "frames" for feature in features.values()):
        raise ArgumentValueError("Video(storage='frames') has a layout of its own: use write_lance_video_frames_cache")
    check_column_names(features)
    check_lineage(lineage)
    schema = features.to_arrow_schema()
    with publish(cache_dir) as building:
        batches = CountedBatches(
            record_batches(
                generator,
                features,
                batch_size=batch_size,
                num_encode_workers=num_encode_workers,
                cache_dir=building.path,
            )
        )
        write_lance(batches, schema, building.path)
        metadata = LanceMetadata(
            num_rows=batches.rows,
            schema_fingerprint=features_fingerprint(features),
            lineage=lineage,
            features=features.to_json(),
        )
        building.commit(metadata)
    return LanceCacheMeta.of(Path(cache_dir), metadata)
