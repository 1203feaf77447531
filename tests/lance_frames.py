"""Lance caches of video frames as pylance writes them, for tests."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

VIDEOS = (10, 5, 3)


def frames_of(videos: Sequence[int] = VIDEOS) -> list[list[bytes]]:
    """Bytes in the place of the frames of each video."""
    return [[random.Random(f"{v} {f}").randbytes(50 + 7 * f) for f in range(frames)] for v, frames in enumerate(videos)]


def write_frames(path: Path, frames: Sequence[Sequence[bytes]], keys: Sequence[Any] | None = None, **how: Any) -> Path:
    """A cache of these frames. The `id` of a video is twice its number, as where others were skipped."""
    records, rows = [], []
    for number, video in enumerate(frames):
        key = f"video{number}" if keys is None else keys[number]
        label = f"/data/{number}.mp4"
        record = {"id": 2 * number, "key": key, "path": label, "checksum": None, "T": len(video), "H": 4, "W": 6}
        records.append(record | {"start_row": len(rows), "metadata": {"label": number}})
        rows += [(2 * number, frame, data) for frame, data in enumerate(video)]
    names = ("video_id", "frame_idx", "bytes")
    schema = pa.schema([("video_id", pa.int32()), ("frame_idx", pa.int32()), ("bytes", pa.large_binary())])
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    lance.write_dataset(pa.table(dict(zip(names, map(list, columns), strict=True)), schema), path, **how)
    metadata = {
        "cache_format_version": 1,
        "format": "lance",
        "layout": "lance-video-frames",
        "schema_fingerprint": "",
        "num_rows": len(rows),
        "total_rows": len(rows),
        "n_videos": len(frames),
        "n_skipped": 0,
        "encoding": "webp",
        "quality": 65,
        "resize": None,
        "video_column": "video",
        "videos": records,
    }
    (path / "_metadata.json").write_text(json.dumps(metadata, indent=2))
    return path
