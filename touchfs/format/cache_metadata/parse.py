"""Parse `_metadata.json`, and check all that it says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from touchfs.core.errors import CacheFormatError
from touchfs.format.cache_metadata import METADATA_FILE
from touchfs.format.cache_metadata.layouts import (
    ARROW_SHARDS,
    LANCE_ROWS,
    LANCE_VIDEO_FRAMES,
    VERSION,
    CacheMetadata,
    LanceMetadata,
    ShardedMetadata,
    VideoFramesMetadata,
    VideoRecord,
)
from touchfs.format.cache_metadata.members import CheckedMembers


def parse_metadata(text: str | bytes, place: str) -> CacheMetadata:
    """Return the metadata of a cache in the directory `place`. Raises CacheFormatError, which names what is wrong."""
    members = _decode(text, place)
    layout = _required(members, "layout", place)
    if layout == ARROW_SHARDS:
        return _sharded(members, place)
    if layout == LANCE_ROWS:
        return _lance(members, place)
    if layout == LANCE_VIDEO_FRAMES:
        return _video_frames(members, place)
    raise CacheFormatError(f"Unknown cache layout {layout!r} in {place}")


def parse_sharded(text: str | bytes, place: str) -> ShardedMetadata:
    """Like `parse_metadata`, for Arrow shards only."""
    return _sharded(_decode(text, place), place)


def parse_lance(text: str | bytes, place: str) -> LanceMetadata | VideoFramesMetadata:
    """Like `parse_metadata`, for both layouts of Lance."""
    members = _decode(text, place)
    return (_video_frames if members.get("layout") == LANCE_VIDEO_FRAMES else _lance)(members, place)


def parse_member(text: str | bytes, name: str, place: str) -> str:
    """Return the `layout` or the `format`, known or not. Raises CacheFormatError if there is none."""
    return str(_required(_decode(text, place), name, place))


def _decode(text: str | bytes, place: str) -> dict[str, Any]:
    problem = "is not a JSON object"
    try:
        members = json.loads(text)
    except RecursionError:
        problem = "is not JSON that can be read: nested too deep"
    except ValueError as error:  # not JSON, or not in UTF-8
        problem = f"is not JSON: {error}"
    else:
        if isinstance(members, dict):
            return members
    raise CacheFormatError(f"Cache metadata at {place}/{METADATA_FILE} {problem}. Rebuild the cache.")


def _required(members: Mapping[str, Any], name: str, place: str) -> Any:
    if name not in members:
        where = f"{place}/{METADATA_FILE}"
        raise CacheFormatError(f"Cache metadata at {where} is missing required {name!r}. Rebuild the cache.")
    return members[name]


def _sharded(members: Mapping[str, Any], place: str) -> ShardedMetadata:
    for name, expected in (("format", "arrow"), ("layout", ARROW_SHARDS)):
        if members.get(name) != expected:
            raise CacheFormatError(f"Not an Arrow sharded cache: {place} ({name}={members.get(name)!r})")
    _check_version(members)
    member = CheckedMembers(members, place)
    filenames = member.list_of("shard_filenames", member.name_in)
    row_counts = member.list_of("shard_row_counts", member.count_in)
    rows, shards = member.count("num_rows"), member.count("num_shards")
    if len(filenames) != shards:
        raise CacheFormatError(f"Metadata claims {shards} shards but lists {len(filenames)} filenames")
    if len(row_counts) != shards:
        raise CacheFormatError(f"Metadata claims {shards} shards but has {len(row_counts)} row counts")
    if sum(row_counts) != rows:
        raise CacheFormatError(f"Sum of shard_row_counts ({sum(row_counts)}) != num_rows ({rows})")
    return ShardedMetadata(
        num_rows=rows,
        shard_filenames=filenames,
        shard_row_counts=row_counts,
        schema_fingerprint=member.text("schema_fingerprint", ""),
        compression=member.text_or_none("compression"),
        shard_size_target_bytes=members.get("shard_size_target_bytes"),
        lineage=members.get("lineage"),
        features=member.features(),
    )


def _lance(members: Mapping[str, Any], place: str) -> LanceMetadata:
    _check_lance(members, LANCE_ROWS, place)
    member = CheckedMembers(members, place)
    return LanceMetadata(
        num_rows=member.count("num_rows"),
        schema_fingerprint=member.text("schema_fingerprint", ""),
        lineage=members.get("lineage"),
        features=member.features(),
    )


def _video_frames(members: Mapping[str, Any], place: str) -> VideoFramesMetadata:
    _check_lance(members, LANCE_VIDEO_FRAMES, place)
    member = CheckedMembers(members, place)
    rows = member.count("num_rows")
    videos = member.list_of("videos", lambda name, video: _video(video, f"{place}: {name}", rows))
    return VideoFramesMetadata(
        num_rows=rows,
        schema_fingerprint=member.text("schema_fingerprint", ""),
        n_skipped=member.count("n_skipped", 0),
        encoding=member.text("encoding", "webp"),
        quality=member.count("quality", 0),
        resize=None if members.get("resize") is None else member.count("resize"),
        video_column=member.text("video_column", "video"),
        videos=videos,
        lineage=members.get("lineage"),
        features=member.features(),
    )


def _video(video: Any, place: str, rows: int) -> VideoRecord:
    member = CheckedMembers(video if isinstance(video, dict) else {}, place)
    frames, start = member.count("T"), member.count("start_row")
    if start + frames > rows:
        raise CacheFormatError(f"{place} has the rows {start} to {start + frames} of {rows}. Rebuild the cache.")
    extra = video.get("metadata")
    return VideoRecord(
        id=member.count("id"),
        key=video.get("key"),
        path=member.text("path", ""),
        checksum=member.text_or_none("checksum"),
        frames=frames,
        height=member.count("H"),
        width=member.count("W"),
        start_row=start,
        metadata=extra if isinstance(extra, dict) else {},
    )


def _check_lance(members: Mapping[str, Any], layout: str, place: str) -> None:
    for name, expected in (("format", "lance"), ("layout", layout)):
        if members.get(name) != expected:
            raise CacheFormatError(f"Not a Lance cache: {place} ({name}={members.get(name)!r})")
    _check_version(members)


def _check_version(members: Mapping[str, Any]) -> None:
    version = members.get("cache_format_version")
    if version != VERSION:
        raise CacheFormatError(f"Unsupported cache format version {version} (expected {VERSION})")
