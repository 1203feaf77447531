"""`_metadata.json` of a cache, in each of the three layouts: parsed with all its checks, and built.

    arrow-shards        shards of the Arrow IPC file format, with their names and row counts
    lance-rows          a Lance dataset in the directory itself
    lance-video-frames  a Lance dataset with a row for each frame, and a table of its videos

A cache that another tool wrote has the same members, except `features`, the JSON form of the features, which is ours.
Data names places, so what is named is the bare name of a file in the directory. The `path` of a video is a label only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from touchfs.errors import CacheFormatError

METADATA_FILE = "_metadata.json"
VERSION = 1
ARROW_SHARDS, LANCE_ROWS, LANCE_VIDEO_FRAMES = "arrow-shards", "lance-rows", "lance-video-frames"

T = TypeVar("T")


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


# The members of an element of `videos`, and our names.
_VIDEO_MEMBERS = {name: name for name in ("id", "key", "path", "checksum")} | {
    "T": "frames",
    "H": "height",
    "W": "width",
    "start_row": "start_row",
    "metadata": "metadata",
}
CacheMetadata = ShardedMetadata | LanceMetadata | VideoFramesMetadata


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
    """As `parse_metadata`, for Arrow shards only."""
    return _sharded(_decode(text, place), place)


def parse_lance(text: str | bytes, place: str) -> LanceMetadata | VideoFramesMetadata:
    """As `parse_metadata`, for both layouts of Lance."""
    members = _decode(text, place)
    return (_video_frames if members.get("layout") == LANCE_VIDEO_FRAMES else _lance)(members, place)


def parse_member(text: str | bytes, name: str, place: str) -> str:
    """Return the `layout` or the `format`, known or not. Raises CacheFormatError if there is none."""
    return str(_required(_decode(text, place), name, place))


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
    member = _Members(members, place)
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
    member = _Members(members, place)
    return LanceMetadata(
        num_rows=member.count("num_rows"),
        schema_fingerprint=member.text("schema_fingerprint", ""),
        lineage=members.get("lineage"),
        features=member.features(),
    )


def _video_frames(members: Mapping[str, Any], place: str) -> VideoFramesMetadata:
    _check_lance(members, LANCE_VIDEO_FRAMES, place)
    member = _Members(members, place)
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
    member = _Members(video if isinstance(video, dict) else {}, place)
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


class _Members:
    """The members of an object, each checked. Errors name the member and the cache."""

    def __init__(self, members: Mapping[str, Any], place: str) -> None:
        self._members = members
        self._place = place

    def _get(self, name: str, default: Any = None) -> Any:
        value = self._members.get(name)
        if value is None and default is None:
            raise CacheFormatError(f"Cache metadata of {self._place} is missing {name!r}. Rebuild the cache.")
        return default if value is None else value

    def _refuse(self, name: str, value: Any, wanted: str) -> CacheFormatError:
        shown = repr(value)[:80]
        return CacheFormatError(f"Cache metadata of {self._place}: {name} is {shown}, not {wanted}. Rebuild the cache.")

    def count(self, name: str, default: int | None = None) -> int:
        return self.count_in(name, self._get(name, default))

    def count_in(self, name: str, value: Any) -> int:
        if type(value) is not int or not 0 <= value < 2**63:
            raise self._refuse(name, value, "a count")
        return value

    def text(self, name: str, default: str) -> str:
        value = self._get(name, default)
        if not isinstance(value, str):
            raise self._refuse(name, value, "text")
        return value

    def text_or_none(self, name: str) -> str | None:
        return None if self._members.get(name) is None else self.text(name, "")

    def name_in(self, name: str, value: Any) -> str:
        if not isinstance(value, str) or value in ("", ".", "..") or "/" in value or "\0" in value:
            raise self._refuse(name, value, "the bare name of a file in the cache")
        return value

    def list_of(self, name: str, parse: Callable[[str, Any], T]) -> tuple[T, ...]:
        value = self._get(name)
        if not isinstance(value, list):
            raise self._refuse(name, value, "a list")
        return tuple(parse(f"{name}[{i}]", element) for i, element in enumerate(value))

    def features(self) -> Mapping[str, Any] | None:
        value = self._members.get("features")
        if value is not None and not isinstance(value, dict):
            raise self._refuse("features", value, "an object")
        return value
