"""Lance datasets for the suite of all backends. Each is written once, and each test gets a copy."""

from __future__ import annotations

import functools
import io
import pickle
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from caches.cases import SCHEMA, Case, Row, as_stored, rows
from media.videos import ffmpeg
from PIL import Image

from touchfs.backend import LanceBackend, LanceVideoFramesBackend
from touchfs.caches.writers.video_frames import write_lance_video_frames_cache
from touchfs.features import Features, Value, Video


def _write_rows(path: Path, counts: tuple[int, ...], blobs: str) -> None:
    schema = SCHEMA
    if blobs:
        place = SCHEMA.get_field_index("image")
        schema = SCHEMA.set(place, SCHEMA.field(place).with_metadata({"lance-encoding:blob": "true"}))
    found = pa.Table.from_pylist(rows(sum(counts)), schema)
    begin = 0
    for count in counts:
        mode = "append" if begin else "create"
        lance.write_dataset(found[begin : begin + count], path, mode=mode, data_storage_version=blobs or "2.2")
        begin += count


def _write_videos(path: Path, kind: str) -> None:
    """Videos of 10, 5 and 3 frames, after one that is damaged, and all windows of 3 frames, each 2 after the other."""
    path.parent.joinpath("bad.mp4").write_bytes(b"damaged")
    examples: list[tuple[str, Row]] = [("bad", {"video": path.parent / "bad.mp4"})]
    for count in (10, 5, 3):
        video = path.parent / f"{count}.avi"
        size = "48x32" if kind == "mixed" and count == 5 else "32x24"
        source = f"testsrc2=size={size}:rate=10"
        ffmpeg("-f", "lavfi", "-i", source, "-frames:v", str(count), "-c:v", "mpeg4", str(video))
        examples.append((f"k{count}", {"video": video, "label": count % 3, "name": f"n{count}", "video_idx": 99}))
    write_lance_video_frames_cache(examples, Features(video=Video("frames"), label=Value("int64")), path, workers=1)

    frames = lance.dataset(path).to_table().to_pylist()
    expected: list[Row] = []
    for number, count in enumerate((10, 5, 3)):
        encoded = [row["bytes"] for row in frames if row["video_id"] == number]
        found = [np.array(Image.open(io.BytesIO(data)).convert("RGB")) for data in encoded]
        for start in range(0, count - 2, 2):
            expected.append(
                {
                    "video": np.stack(found[start : start + 3]),
                    "video_idx": number,
                    "filename": str(path.parent / f"{count}.avi"),
                    "start_frame": start,
                    "frame_indices": [start, start + 1, start + 2],
                    "sample_idx": len(expected),
                    "label": count % 3,
                    "name": f"n{count}",
                }
            )
    (path / "expected.pickle").write_bytes(pickle.dumps(expected))


@functools.cache
def _written(write: Callable[..., None], *arguments: Any) -> tempfile.TemporaryDirectory[str]:
    """A directory with a dataset, as long as the tests run."""
    directory = tempfile.TemporaryDirectory(prefix="touchfs-test-lance-")
    write(Path(directory.name) / "d", *arguments)
    return directory


def _copied(directory: Path, write: Callable[..., None], *arguments: Any) -> Path:
    shutil.copytree(Path(_written(write, *arguments).name) / "d", directory / "d")
    return directory / "d"


def lance_rows(directory: Path, counts: list[int], blobs: str = "") -> Case:
    path = _copied(directory, _write_rows, tuple(counts), blobs)
    return Case(LanceBackend(uri=path), as_stored(rows(sum(counts))), counts)


def video_frames(directory: Path, kind: str) -> Case:
    path = _copied(directory, _write_videos, kind)
    expected = pickle.loads((path / "expected.pickle").read_bytes())
    backend = LanceVideoFramesBackend(uri=path, window_length=3, hop_size=2, batch_readahead=2)
    return Case(backend, expected, [len(expected)], _of_row, _of_table)


def _of_row(row: Row) -> Row:
    return {**row, "video": (row["video"].shape, row["video"].tobytes())}


def _of_table(table: pa.Table) -> list[Row]:
    videos: list[np.ndarray] = []
    for chunk in table["video"].chunks:
        if isinstance(chunk, pa.FixedShapeTensorArray):
            videos += list(chunk.to_numpy_ndarray()) if len(chunk) else []
        else:
            videos += [np.array(cell["data"], np.uint8).reshape(cell["shape"]) for cell in chunk.to_pylist()]
    others = table.drop(["video"]).to_pylist()
    return [_of_row({"video": video, **row}) for row, video in zip(others, videos, strict=True)]
