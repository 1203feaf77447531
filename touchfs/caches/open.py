"""Open a cache as a storage backend: the one that its layout needs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from touchfs.caches.cache_directory import hold_cache, read_metadata
from touchfs.caches.metadata import check_features, read_lance, read_sharded
from touchfs.caches.writers.meta import LanceCacheMeta, ShardedCacheMeta
from touchfs.core.errors import CacheFormatError, MissingFileError, TouchfsError, map_os_errors
from touchfs.core.extras import load_pyarrow
from touchfs.features import Features, FeatureType
from touchfs.format.cache_metadata.layouts import ARROW_SHARDS, LANCE_ROWS, LANCE_VIDEO_FRAMES
from touchfs.format.cache_metadata.parse import parse_member
from touchfs.posix.published import HeldDirectory, HeldPath

if TYPE_CHECKING:
    import pyarrow

    from touchfs.caches.backends.protocol import StorageBackend


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOpenResult:
    """An open cache: its rows, their number, the layout, and its metadata.

    `metadata` is a ShardedCacheMeta, a LanceCacheMeta, or for frames of videos what their backend has.
    """

    backend: StorageBackend
    num_rows: int
    layout: str
    metadata: Any


def open_cache(
    cache_dir: str | os.PathLike[str],
    features: Mapping[str, FeatureType] | None,
    *,
    backend_kwargs: Mapping[str, Any] | None = None,
) -> CacheOpenResult:
    """Open a cache that was made of these features; None takes a cache of any.

    Nothing is read but the metadata, so that the backend can be forked and pickled. It goes on with this cache if
    another one takes its place. `backend_kwargs` are options of the backend: none of Arrow shards, where they are
    ignored; `batch_readahead` of Lance rows; and all of LanceVideoFramesBackend, whose rows are windows.

    Raises MissingFileError without metadata, CacheFormatError, ArgumentTypeError if `features` is not a Features, and
    MissingExtraError.
    """
    expected = None if features is None else Features.of(features)
    options = dict(backend_kwargs or {})
    while True:
        directory = hold_cache(cache_dir)
        layout = parse_member(read_metadata(directory), "layout", directory.place)
        if layout == ARROW_SHARDS:
            return _open_shards(directory, expected)
        if layout not in (LANCE_ROWS, LANCE_VIDEO_FRAMES):
            raise CacheFormatError(f"Unknown cache layout {layout!r} in {directory.place}")
        try:
            opened = (_open_rows if layout == LANCE_ROWS else _open_windows)(directory, expected, options)
        except TouchfsError:
            if directory.is_current:
                raise
        else:
            # A backend of Lance finds its directory by the path, where another one may be by now.
            if directory.is_current:
                return opened


def _open_shards(directory: HeldDirectory, features: Features | None) -> CacheOpenResult:
    from touchfs.caches.backends.arrow_shards import ArrowBackend

    metadata = read_sharded(directory)
    if features is not None:
        check_features(metadata, features)
    backend = ArrowBackend(
        shard_paths=[HeldPath(directory, name) for name in metadata.shard_filenames],
        shard_row_counts=metadata.shard_row_counts,
        schema=None if features is None else features.to_arrow_schema(),
    )
    meta = ShardedCacheMeta.of(Path(directory.place), metadata)
    return CacheOpenResult(backend=backend, num_rows=meta.num_rows, layout=ARROW_SHARDS, metadata=meta)


def _open_rows(directory: HeldDirectory, features: Features | None, options: dict[str, Any]) -> CacheOpenResult:
    from touchfs.caches.backends.lance_rows import LanceBackend

    meta = _lance_meta(directory, features)
    own = {name: options[name] for name in ("batch_readahead",) if name in options}
    backend = LanceBackend(uri=directory.place, **own)
    if backend.num_rows != meta.num_rows:
        found = f"Metadata claims {meta.num_rows} rows but the Lance dataset has {backend.num_rows}"
        raise CacheFormatError(f"{found}: {directory.place}. Rebuild the cache.")
    return CacheOpenResult(backend=backend, num_rows=meta.num_rows, layout=LANCE_ROWS, metadata=meta)


def _open_windows(directory: HeldDirectory, features: Features | None, options: dict[str, Any]) -> CacheOpenResult:
    from touchfs.caches.backends.lance_video_frames import LanceVideoFramesBackend

    _lance_meta(directory, features)
    backend = LanceVideoFramesBackend(uri=directory.place, **options)
    return CacheOpenResult(
        backend=backend, num_rows=backend.num_rows, layout=LANCE_VIDEO_FRAMES, metadata=backend.metadata
    )


def _lance_meta(directory: HeldDirectory, features: Features | None) -> LanceCacheMeta:
    metadata = read_lance(directory)
    if features is not None:
        check_features(metadata, features)
    return LanceCacheMeta.of(Path(directory.place), metadata)


def read_shard(shard_path: str | os.PathLike[str]) -> pyarrow.Table:
    """Map a shard, and return its table. Raises MissingFileError, CacheFormatError for a damaged file, SourceError."""
    pa = load_pyarrow()
    path = os.fspath(shard_path)
    with map_os_errors(path):
        if not os.path.isfile(path):
            raise MissingFileError(f"Missing shard file: {path}")
        try:
            table = pa.ipc.open_file(pa.memory_map(path, "r")).read_all()
            # Offsets and texts, but no other data: pyarrow would crash at damaged ones.
            table.validate(full=True)
            return table
        except pa.ArrowException as error:
            raise CacheFormatError(f"Not an Arrow file, or one that is damaged: {path}: {error}") from error
