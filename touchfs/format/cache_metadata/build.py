"""Build the text of `_metadata.json`."""

from __future__ import annotations

import json
from typing import Any

from touchfs.format.cache_metadata.layouts import VERSION, CacheMetadata, ShardedMetadata, VideoFramesMetadata

# The members of an element of `videos`, and our names.
_VIDEO_MEMBERS = {name: name for name in ("id", "key", "path", "checksum")} | {
    "T": "frames",
    "H": "height",
    "W": "width",
    "start_row": "start_row",
    "metadata": "metadata",
}


def build_metadata(metadata: CacheMetadata) -> str:
    """Return the text of `_metadata.json`."""
    return json.dumps(metadata_members(metadata), indent=2)


def metadata_members(metadata: CacheMetadata) -> dict[str, Any]:
    """Return the members of `_metadata.json`, in their order."""
    members: dict[str, Any] = {
        "cache_format_version": VERSION,
        "format": "arrow" if isinstance(metadata, ShardedMetadata) else "lance",
        "layout": metadata.layout,
        "schema_fingerprint": metadata.schema_fingerprint,
        "num_rows": metadata.num_rows,
    }
    if isinstance(metadata, ShardedMetadata):
        members["num_shards"] = len(metadata.shard_filenames)
        members["shard_row_counts"] = list(metadata.shard_row_counts)
        members["shard_filenames"] = list(metadata.shard_filenames)
        members["shard_size_target_bytes"] = metadata.shard_size_target_bytes
        if metadata.compression:
            members["compression"] = metadata.compression
    elif isinstance(metadata, VideoFramesMetadata):
        members["total_rows"] = metadata.num_rows
        members["n_videos"] = len(metadata.videos)
        for name in ("n_skipped", "encoding", "quality", "resize", "video_column"):
            members[name] = getattr(metadata, name)
        members["videos"] = [
            {name: getattr(video, attribute) for name, attribute in _VIDEO_MEMBERS.items()} for video in metadata.videos
        ]
    if metadata.lineage:
        members["lineage"] = metadata.lineage
    if metadata.features is not None:
        members["features"] = metadata.features
    return members
