"""Writing caches: how long it takes beside pyarrow alone, of the same rows and flushed, too."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from harness import at_most, interleaved, report, run

from touchfs.caches.writers.arrow import write_sharded_arrow_cache
from touchfs.features import ClassLabel, Features, Image, Sequence, Value

IMAGES = Features({"image": Image(), "label": ClassLabel(names=["cat", "dog"]), "caption": Value("string")})
SCALARS = Features({"a": Value("int64"), "b": Value("float32"), "c": Value("string"), "d": Sequence(Value("float32"))})
BATCH = 1000

Examples: TypeAlias = Iterator[tuple[int, dict[str, Any]]]


def images(count: int) -> Examples:
    """Rows of about 20 kB."""
    noise = np.random.default_rng(7).bytes(40_000)
    for i in range(count):
        yield i, {"image": noise[i % 20_000 : i % 20_000 + 20_000], "label": i % 2, "caption": f"row {i}"}


def scalars(count: int) -> Examples:
    """Rows of numbers and a text."""
    for i in range(count):
        yield i, {"a": i, "b": i / 7, "c": f"row {i}", "d": [1.0, 2.0, 3.0]}


def theirs(path: Path, features: Features, rows: Examples, compression: str | None) -> None:
    """pyarrow's way from dicts to a file."""
    schema = features.to_arrow_schema()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema, options=options) as writer:
        batch = []
        for _, row in rows:
            batch.append(row)
            if len(batch) == BATCH:
                writer.write_batch(pa.RecordBatch.from_pylist(batch, schema))
                batch = []
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def ours(path: Path, features: Features, rows: Examples, compression: str | None) -> None:
    """The same by the writer of caches."""
    write_sharded_arrow_cache(rows, features, path, compression=compression)


def seconds(write: Callable[..., None], path: Path, *arguments: Any) -> float:
    """Seconds to write a new file or cache at a path. The rows are made anew."""
    features, make, count, compression = arguments
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    begin = time.perf_counter()
    write(path, features, make(count), compression)
    return time.perf_counter() - begin


def main() -> None:
    rows = []
    for title, *arguments in (
        ("20,000 images of 20 kB", IMAGES, images, 20_000, None),
        ("60,000 images of 20 kB, zstd", IMAGES, images, 60_000, "zstd"),
        ("500,000 rows of scalars", SCALARS, scalars, 500_000, None),
    ):
        with tempfile.TemporaryDirectory() as directory:
            writers = {"theirs": theirs, "ours": ours}
            contestants = {
                name: partial(seconds, write, Path(directory, name), *arguments) for name, write in writers.items()
            }
            medians = interleaved(contestants, 5)
        ratio = medians["ours"] / medians["theirs"]
        rows.append((title, f"{ratio:.2f} of pyarrow's {medians['theirs']:.2f} s", at_most(ratio, 1.1)))
    report("Writing caches", rows)


if __name__ == "__main__":
    run(main)
