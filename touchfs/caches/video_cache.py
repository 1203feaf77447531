"""A cache of the frames of videos: its metadata, and the Lance dataset that has a row for each frame."""

from __future__ import annotations

import os

from touchfs.caches.cache_directory import hold_cache, read_metadata
from touchfs.core.errors import CacheFormatError
from touchfs.format.cache_metadata import METADATA_FILE
from touchfs.format.cache_metadata.layouts import VideoFramesMetadata
from touchfs.format.cache_metadata.parse import parse_metadata
from touchfs.tables.lance.dataset import LanceTable

_ENCODING = "webp"
# A WebP has no more pixels a side.
_SIDE_MAX = 16383


def open_video_cache(path: str) -> tuple[VideoFramesMetadata, LanceTable]:
    """Return the metadata, and the dataset at the version that they describe. Nothing of Lance runs.

    Both are of the directory that is at the path now, whatever takes its place. Raises MissingFileError without
    metadata, and CacheFormatError for others than of videos with frames in WebP.
    """
    directory = hold_cache(path)
    text = read_metadata(directory)
    table = LanceTable(directory)
    return _checked(text, path, table.read_manifest().rows), table


def _checked(text: bytes, path: str, rows: int) -> VideoFramesMetadata:
    metadata = parse_metadata(text, path)
    if not isinstance(metadata, VideoFramesMetadata):
        raise CacheFormatError(f"a cache of {metadata.layout}, not of frames of videos", path=path)
    if not metadata.videos:
        raise CacheFormatError(f"no videos recorded in {os.path.join(path, METADATA_FILE)}")
    if metadata.encoding != _ENCODING:
        raise CacheFormatError(f"frames in {metadata.encoding!r:.80}, not in {_ENCODING}", path=path)
    if metadata.num_rows != rows:
        raise CacheFormatError(f"it has {rows} frames, and its metadata say {metadata.num_rows}: rebuild it", path=path)
    for video in metadata.videos:
        if not (0 < video.width <= _SIDE_MAX and 0 < video.height <= _SIDE_MAX):
            raise CacheFormatError(f"video {video.id} has frames of {video.width} × {video.height} pixels", path=path)
    return metadata
