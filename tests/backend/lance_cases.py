"""Lance datasets for the suite of all backends. Other processes write them: Lance must not run before a fork."""

from __future__ import annotations

import functools
import pickle
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from backend.cases import Case, Row, as_stored, rows

from touchfs.backend import LanceBackend, LanceVideoFramesBackend

_ROWS = """
import sys, lance, pyarrow as pa
from backend.cases import SCHEMA, rows
counts, blobs = eval(sys.argv[2]), eval(sys.argv[3])
schema = SCHEMA
if blobs:
    place = SCHEMA.get_field_index("image")
    schema = SCHEMA.set(place, SCHEMA.field(place).with_metadata({"lance-encoding:blob": "true"}))
found = pa.Table.from_pylist(rows(sum(counts)), schema)
begin = 0
for count in counts:
    mode = "append" if begin else "create"
    lance.write_dataset(found[begin : begin + count], sys.argv[1], mode=mode, data_storage_version=blobs or "2.2")
    begin += count
"""

# Videos of 10, 5 and 3 frames, after one that is damaged, and all windows of 3 frames, each 2 after the one before.
_VIDEOS = """
import io, pickle, sys
from pathlib import Path
import lance, numpy as np
from media.videos import ffmpeg
from PIL import Image
from touchfs.features import Features, Value, Video
from touchfs.write.cache.video_frames import write_lance_video_frames_cache

place, mixed = Path(sys.argv[1]), sys.argv[2] == "mixed"
place.parent.joinpath("bad.mp4").write_bytes(b"damaged")
examples = [("bad", {"video": place.parent / "bad.mp4"})]
for count in (10, 5, 3):
    path = place.parent / f"{count}.avi"
    size = "48x32" if mixed and count == 5 else "32x24"
    ffmpeg("-f", "lavfi", "-i", f"testsrc2=size={size}:rate=10", "-frames:v", str(count), "-c:v", "mpeg4", str(path))
    examples.append((f"k{count}", {"video": path, "label": count % 3, "name": f"n{count}", "video_idx": 99}))
features = Features(video=Video("frames"), label=Value("int64"))
write_lance_video_frames_cache(examples, features, place)

frames = lance.dataset(place).to_table().to_pylist()
expected = []
for video, count in enumerate((10, 5, 3)):
    encoded = [row["bytes"] for row in frames if row["video_id"] == video]
    found = [np.array(Image.open(io.BytesIO(data)).convert("RGB")) for data in encoded]
    for start in range(0, count - 2, 2):
        expected.append({
            "video": np.stack(found[start : start + 3]),
            "video_idx": video,
            "filename": str(place.parent / f"{count}.avi"),
            "start_frame": start,
            "frame_indices": [start, start + 1, start + 2],
            "sample_idx": len(expected),
            "label": count % 3,
            "name": f"n{count}",
        })
(place / "expected.pickle").write_bytes(pickle.dumps(expected))
"""


@functools.cache
def _written(code: str, *arguments: str) -> Path:
    """A directory that a process wrote, once for all tests."""
    directory = Path(tempfile.mkdtemp(prefix="touchfs-test-lance-"))
    tests = str(Path(__file__).parents[1])
    code = f"import sys; sys.path.insert(0, {tests!r})\n{code}"
    subprocess.run([sys.executable, "-c", code, str(directory / "d"), *arguments], check=True, timeout=120)
    return directory / "d"


def lance_rows(directory: Path, counts: list[int], blobs: str = "") -> Case:
    shutil.copytree(_written(_ROWS, repr(counts), repr(blobs)), directory / "d")
    return Case(LanceBackend(uri=directory / "d"), as_stored(rows(sum(counts))), counts)


def video_frames(directory: Path, kind: str) -> Case:
    shutil.copytree(_written(_VIDEOS, kind), directory / "d")
    expected = pickle.loads((directory / "d" / "expected.pickle").read_bytes())
    backend = LanceVideoFramesBackend(uri=directory / "d", window_length=3, hop_size=2, batch_readahead=2)
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
