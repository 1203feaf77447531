"""Epochs of training: shuffled samples through PyTorch's loaders, beside MosaicML Streaming and webdataset.

- JPEG images in tars, and the same in MosaicML's shards, in the page cache: their bytes, and their pixels.
- Samples at a URL, whose cache holds an eighth of them, in windows of a tenth; webdataset has no cache. The web server
  has 20 ms of latency and 50 MB/s a connection, and shares the two cores. In one process, and in two workers.
"""

from __future__ import annotations

import io
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import torch
import webdataset
from harness import at_least, interleaved, own_cache_and_state, report, run
from latency_server import latency_server
from mosaicml import MDSWriter, StreamingDataset
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset

import touchfs
from touchfs.source.remote.kept import KEPT
from touchfs.write import TarWriter

BATCH, WORKERS, ROUNDS, BUFFER = 64, 2, 7, 1000
IMAGES, PIXELS, IMAGE_SHARDS = 4_000, 224, 8
FAR, FAR_SIZE, FAR_SHARDS = 16_000, 30_000, 16
AHEAD, THREADS = 128, 16


def image(sample: Any) -> bytes:
    return sample["jpg"]


def pixels(sample: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(Image.open(io.BytesIO(sample["jpg"]))))


def data(sample: Any) -> bytes:
    return sample["bin"]


class Streamed(IterableDataset[Any]):
    """A dataset of MosaicML, with a function of each sample."""

    def __init__(self, dataset: StreamingDataset, make: Callable[[Any], Any]) -> None:
        self.dataset, self.make = dataset, make

    def __iter__(self) -> Iterator[Any]:
        return map(self.make, self.dataset)


def made_images(place: Path) -> None:
    generator = np.random.default_rng(1)
    files = []
    for _ in range(50):
        coarse = Image.fromarray(generator.integers(0, 255, (PIXELS // 8, PIXELS // 8, 3), np.uint8))
        coarse.resize((PIXELS, PIXELS), Image.Resampling.BICUBIC).save(file := io.BytesIO(), "JPEG", quality=90)
        files.append(file.getvalue())
    each = IMAGES // IMAGE_SHARDS
    size = each * sum(map(len, files)) // len(files)
    (place / "tars").mkdir()
    with MDSWriter(out=str(place / "mds"), columns={"jpg": "bytes"}, size_limit=size) as streamed:
        for shard in range(IMAGE_SHARDS):
            with TarWriter(place / "tars" / f"{shard}.tar") as tar:
                for number in range(each):
                    tar.add(f"s{shard}-{number:05}", {"jpg": files[number % len(files)]})
                    streamed.write({"jpg": files[number % len(files)]})


def per_second(batches: Callable[[], Iterable[Any]], size: int) -> Callable[[], float]:
    def measure() -> float:
        begun = time.perf_counter()
        assert sum(map(len, batches())) == size
        return size / (time.perf_counter() - begun)

    return measure


def buffered(
    urls: str, make: Callable[[Any], Any], collate: Callable[[Any], Any], workers: int = WORKERS
) -> DataLoader[Any]:
    pipeline = webdataset.WebDataset(urls, shardshuffle=100, empty_check=False, seed=1).shuffle(BUFFER).map(make)
    return DataLoader(pipeline, BATCH, num_workers=workers, collate_fn=collate)


def images(place: Path) -> None:
    made_images(place)
    samples = touchfs.open(place / "tars").shuffle(7)
    urls = f"{place}/tars/{{0..{IMAGE_SHARDS - 1}}}.tar"
    streaming = StreamingDataset(local=str(place / "mds"), shuffle=True, batch_size=BATCH, num_canonical_nodes=1)
    for what, make, collate in (("bytes", image, list), ("pixels", pixels, torch.stack)):
        streamed = DataLoader(Streamed(streaming, make), BATCH, num_workers=WORKERS, collate_fn=collate)
        loaders: dict[str, Callable[[], Iterable[Any]]] = {
            "touchfs": lambda make=make, collate=collate: samples.map(make).loader(BATCH, WORKERS, collate_fn=collate),
            "MosaicML Streaming": lambda streamed=streamed: streamed,
            "webdataset": lambda make=make, collate=collate: buffered(urls, make, collate),
        }
        rates = interleaved({name: per_second(each, IMAGES) for name, each in loaders.items()}, ROUNDS)
        rows = []
        for name, rate in rates.items():
            ratio = rates["touchfs"] / rate
            wanted = at_least(ratio, 1, "x") if name == "MosaicML Streaming" else ""
            rows.append((name, f"{rate:,.0f} images/s", f"touchfs is {ratio:.2f}x  {wanted}".rstrip()))
        report(f"JPEG images of {PIXELS}x{PIXELS}, {what}, {WORKERS} workers", rows)


def far(place: Path) -> None:
    chooser = random.Random(1)
    with TarWriter(place / "far.tar") as tar:  # each shard is this one
        for number in range(FAR // FAR_SHARDS):
            tar.add(f"s{number:06}", {"bin": chooser.randbytes(FAR_SIZE)})
    os.environ["TOUCHFS_SCRATCH_SIZE"] = str(FAR * FAR_SIZE // 8)
    fresh = count()
    with latency_server(0, file=str(place / "far.tar")) as server:
        urls = f"{server}/{{0..{FAR_SHARDS - 1}}}.tar"
        samples = touchfs.open(urls).shuffle(7, window=FAR // 10).map(data).prefetch(AHEAD, THREADS)

        def ours(workers: int) -> Iterable[Any]:
            os.environ["TOUCHFS_SCRATCH_DIR"] = str(place / f"scratch-{next(fresh)}")
            KEPT.forget()
            return samples.loader(BATCH, workers, collate_fn=list)

        loaders: dict[str, Callable[[], Iterable[Any]]] = {}
        for workers in (0, WORKERS):
            loaders[f"touchfs, {workers} workers"] = lambda workers=workers: ours(workers)
            loaders[f"webdataset, {workers} workers"] = lambda workers=workers: buffered(urls, data, list, workers)
        rates = interleaved({name: per_second(each, FAR) for name, each in loaders.items()}, ROUNDS)
    rows = []
    for name, rate in rates.items():
        ratio = rates[name.replace("webdataset", "touchfs")] / rate
        wanted = f"touchfs is {ratio:.2f}x  {at_least(ratio, 1.5, 'x')}" if name.startswith("webdataset") else ""
        rows.append((name, f"{rate:,.0f} samples/s", wanted))
    report(f"Samples of {FAR_SIZE // 1000} kB at a URL, in a window and in a buffer", rows)


def main() -> None:
    for part in (images, far):
        with tempfile.TemporaryDirectory() as temporary:
            own_cache_and_state(Path(temporary))
            part(Path(temporary))


if __name__ == "__main__":
    run(main)
