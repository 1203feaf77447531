"""Shuffled images of Parquet files through two workers of a DataLoader: `touchfs.open` and Hugging Face datasets.

8,000 images of 15 to 45 kB in row groups of 100 rows, as Hugging Face writes images, with pyarrow's default settings.
Both give the bytes of an image, nothing is decoded. In its first pass touchfs decompresses each page once for all
workers, into the scratch store. Hugging Face copies all files to Arrow before: told with that copy and without. Workers
of each pass are new, and the files are in the page cache. Later passes take turns, told are their medians: one takes
less than half a second.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness import at_least, interleaved, own_cache_and_state, report, run
from torch.utils.data import DataLoader, Dataset

import touchfs

IMAGES, FILES, GROUP, BATCH, WORKERS, PASSES = 8000, 4, 100, 32, 2, 9


class Images(Dataset[int]):
    """The sizes of images that a function reads."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self.read = read

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, i: int) -> int:
        return len(self.read(i))


def make(place: Path) -> int:
    """Write the files, and return the number of bytes in all images."""
    dice, total = np.random.default_rng(0), 0
    place.mkdir()
    for number in range(FILES):
        sizes = dice.integers(15_000, 45_000, IMAGES // FILES).tolist()
        images = [b"\xff\xd8\xff\xe0" + dice.bytes(size) for size in sizes]
        column = pa.array([{"bytes": image, "path": f"{i}.jpg"} for i, image in enumerate(images)])
        pq.write_table(pa.table({"image": column}), place / f"{number}.parquet", row_group_size=GROUP)
        total += sum(map(len, images))
    return total


def a_pass(read: Callable[[int], bytes], total: int) -> float:
    """Seconds for all images, in an order of its own."""
    start = perf_counter()
    loader: Any = DataLoader(Images(read), batch_size=BATCH, num_workers=WORKERS, shuffle=True, collate_fn=sum)
    assert sum(loader) == total
    return perf_counter() - start


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        own_cache_and_state(Path(temporary))
        os.environ |= {"HF_HOME": f"{temporary}/hf", "HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
        import datasets

        total = make(Path(temporary) / "images")
        ours = touchfs.open(Path(temporary) / "images")
        (extension,) = (name for name in ours[0] if name.endswith("jpg"))
        first = a_pass(lambda i: ours[i][extension], total)
        start = perf_counter()
        files = [str(path) for path in sorted((Path(temporary) / "images").iterdir())]
        theirs = datasets.load_dataset("parquet", data_files=files, split="train")
        copied = perf_counter() - start
        their_first = a_pass(lambda i: theirs[i]["image"]["bytes"], total)
        with_copy, without = (copied + their_first) / first, their_first / first
        medians = interleaved(
            {
                "ours": lambda: a_pass(lambda i: ours[i][extension], total),
                "theirs": lambda: a_pass(lambda i: theirs[i]["image"]["bytes"], total),
            },
            PASSES,
        )
        second = medians["ours"]
        again = medians["theirs"] / second
        told = f"{IMAGES / first:,.0f} images/s: {with_copy:.2f}x, without its copy {without:.2f}x"
        rows = [
            ("first pass", told, at_least(with_copy, 0.8, "x")),
            ("later passes", f"{IMAGES / second:,.0f} images/s: {again:.2f}x", at_least(again, 1.2, "x")),
        ]
        report("Images of Parquet files with two workers, against Hugging Face datasets", rows)


if __name__ == "__main__":
    run(main)
