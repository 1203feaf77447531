"""Caches in Lance beside Lance alone: writing rows, `take(128)`, `get_row`, and windows of 16 frames of videos beside
a loop of `take` and Pillow. The same rows and files, warm.
"""

import io
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from harness import at_least, at_most, interleaved, report, run
from PIL import Image

from touchfs.backend import LanceBackend, LanceVideoFramesBackend
from touchfs.caches.writers.lance_rows import write_lance_cache
from touchfs.features import ClassLabel, Features, Value
from touchfs.format.cache_metadata.build import build_metadata
from touchfs.format.cache_metadata.layouts import VideoFramesMetadata, VideoRecord
from touchfs.posix.atomic import sync_tree

FEATURES = Features({"image": Value("binary"), "label": ClassLabel(names=["cat", "dog"]), "caption": Value("string")})
ROWS, BATCH, CALLS = 20_000, 1000, 200
FRAMES, SIDE, LENGTH = 64, 224, 16


def examples() -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of about 20 kB."""
    noise = np.random.default_rng(7).bytes(40_000)
    for i in range(ROWS):
        yield i, {"image": noise[i : i + 20_000], "label": i % 2, "caption": f"row {i}"}


def theirs(path: Path) -> None:
    schema = FEATURES.to_arrow_schema()
    batches = (pa.RecordBatch.from_pylist([row for _, row in rows], schema) for rows in _batched())
    lance.write_dataset(pa.RecordBatchReader.from_batches(schema, batches), path)
    sync_tree(path)  # as ours does


def _batched() -> Iterator[tuple[Any, ...]]:
    rows = examples()
    while batch := tuple(islice(rows, BATCH)):
        yield batch


def ours(path: Path) -> None:
    write_lance_cache(examples(), FEATURES, path)


def seconds_to_write(write: Callable[[Path], object], path: Path) -> float:
    shutil.rmtree(path, ignore_errors=True)
    begin = time.perf_counter()
    write(path)
    return time.perf_counter() - begin


def seconds_of(call: Callable[[Any], object], arguments: list[Any]) -> float:
    begin = time.perf_counter()
    for argument in arguments:
        call(argument)
    return time.perf_counter() - begin


def make_frames(path: Path) -> None:
    frames = []
    for number in range(FRAMES):
        data, x = io.BytesIO(), np.linspace(0, 255, SIDE)
        picture = np.stack([np.add.outer(x, x + number) % 256, np.add.outer(x, -x) % 256, np.outer(x, x) % 256], 2)
        Image.fromarray(picture.astype(np.uint8)).save(data, "WEBP", quality=65)
        frames.append(data.getvalue())
    ids = pa.array([0] * FRAMES, pa.int32())
    table = {"video_id": ids, "frame_idx": pa.array(range(FRAMES), pa.int32())}
    lance.write_dataset(pa.table(table | {"bytes": pa.array(frames, pa.large_binary())}), path)
    video = VideoRecord(
        id=0, key=0, path="", checksum=None, frames=FRAMES, height=SIDE, width=SIDE, start_row=0, metadata={}
    )
    metadata = VideoFramesMetadata(
        num_rows=FRAMES,
        schema_fingerprint="",
        n_skipped=0,
        encoding="webp",
        quality=65,
        resize=None,
        video_column="video",
        videos=(video,),
    )
    (path / "_metadata.json").write_text(build_metadata(metadata))


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as directory:
        place = Path(directory)
        writers: dict[str, Callable[[Path], object]] = {"theirs": theirs, "ours": ours}
        medians = interleaved({name: partial(seconds_to_write, w, place / name) for name, w in writers.items()}, 3)
        ratio = medians["ours"] / medians["theirs"]
        title = "writing 20,000 rows of 20 kB"
        rows.append((title, f"{ratio:.2f} of Lance's {medians['theirs']:.2f} s", at_most(ratio, 1.3)))

        backend, dataset = LanceBackend(uri=place / "ours"), lance.dataset(place / "ours")
        chooser = random.Random(7)
        for title, mine, other, arguments in (
            ("take(128)", backend.take, dataset.take, [chooser.sample(range(ROWS), 128) for _ in range(CALLS // 4)]),
            (
                "get_row",  # it may wait for other threads' rows, and checks its index
                backend.get_row,
                lambda i: dataset.take([i]).to_pylist()[0],
                chooser.sample(range(ROWS), CALLS),
            ),
        ):
            mine(arguments[0])
            medians = interleaved(
                {"ours": partial(seconds_of, mine, arguments), "theirs": partial(seconds_of, other, arguments)}, 7
            )
            ratio = medians["theirs"] / medians["ours"]
            rows.append(
                (title, f"{len(arguments) / medians['ours']:,.0f}/s, {ratio:.2f} × Lance", at_least(ratio, 0.7))
            )

        make_frames(place / "frames")
        windows = LanceVideoFramesBackend(uri=place / "frames", window_length=LENGTH, hop_size=4)
        frames = lance.dataset(place / "frames")

        def straight(number: int) -> np.ndarray:
            taken = frames.take(list(range(number * 4, number * 4 + LENGTH)), columns=["bytes"]).column("bytes")
            return np.stack([np.asarray(Image.open(io.BytesIO(data)).convert("RGB")) for data in taken.to_pylist()])

        numbers = list(range(windows.num_rows)) * 2
        assert (windows.get_row(3)["video"] == straight(3)).all()
        single = interleaved(
            {"ours": partial(seconds_of, windows.get_row, numbers), "theirs": partial(seconds_of, straight, numbers)}, 5
        )
        ratio = single["theirs"] / single["ours"]
        speed = len(numbers) / single["ours"]
        rows.append(("get_row of 16 frames", f"{speed:,.0f}/s, {ratio:.2f} × a loop", at_least(ratio, 0.9)))
        together = interleaved({"take": partial(seconds_of, windows.take, [numbers])}, 5)["take"]
        ratio = single["theirs"] / together
        speed = len(numbers) / together
        rows.append(("take of windows that overlap", f"{speed:,.0f}/s, {ratio:.2f} × a loop", at_least(ratio, 1.5)))
    report("Caches in Lance", rows)


if __name__ == "__main__":
    run(main)
