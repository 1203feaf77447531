"""Passes over 20,000 files of 32 KB in one tar in the page cache: `touchfs.open`, webshart, webdataset, bare preads.

Each contestant gets the bytes of every file. They take turns, in one process; the loaders of PyTorch have two workers.
"""

import os
import random
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import webdataset
import webshart
from harness import at_least, interleaved, own_cache_and_state, report, run
from torch.utils.data import DataLoader

import touchfs
from touchfs.torch import SharedMemoryCollate
from touchfs.write import TarWriter

FILES, SIZE, ROUNDS, BATCH = 20_000, 32_000, 5, 64


def make_tar(path: Path) -> None:
    noise = random.Random(1).randbytes(SIZE)
    with TarWriter(path) as tar:
        for number in range(FILES):
            tar.add(f"s{number:06d}", {"dat": number.to_bytes(8, "little") + noise[8:]})


def ranges(path: Path) -> list[tuple[int, int]]:
    with tarfile.open(path) as tar:
        return [(member.offset_data, member.size) for member in tar]


def per_second(items: Callable[[], Iterable[object]]) -> Callable[[], float]:
    def measure() -> float:
        begin = time.perf_counter()
        count = sum(1 for _ in items())
        assert count == FILES
        return FILES / (time.perf_counter() - begin)

    return measure


def field(sample) -> bytes:
    return sample["dat"]


def batches(read: Callable[[Sequence[int]], list[bytes]], order: Sequence[int]) -> Iterable[bytes]:
    return flat(read(order[first : first + BATCH]) for first in range(0, FILES, BATCH))


def flat(batches):
    return (item for batch in batches for item in batch)


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        own_cache_and_state(root)
        (root / "tars").mkdir()
        tar = root / "tars/data.tar"
        make_tar(tar)
        extractor = webshart.MetadataExtractor()
        extractor.extract_metadata(source=str(root / "tars"), destination=str(root / "tars"), max_workers=1)
        shard = webshart.discover_dataset(str(root / "tars")).open_shard(0)
        dataset, members = touchfs.open(tar), ranges(tar)
        shuffled = random.Random(2).sample(range(FILES), FILES)
        descriptor = os.open(tar, os.O_RDONLY)
        pipeline = webdataset.WebDataset(str(tar), shardshuffle=False, empty_check=False).map(field)
        passes = {
            "touchfs.open, in order": lambda: map(field, dataset),
            "touchfs.open, shuffled": lambda: map(field, dataset.shuffle(7)),
            "touchfs read(64), in order": lambda: batches(partial(dataset.read, "dat"), range(FILES)),
            "touchfs read(64), shuffled": lambda: batches(partial(dataset.read, "dat"), shuffled),
            "webshart, in order": lambda: map(shard.read_file, range(FILES)),
            "webshart, shuffled": lambda: map(shard.read_file, shuffled),
            "webshart, 64, in order": lambda: batches(lambda some: [*map(shard.read_file, some)], range(FILES)),
            "webshart, 64, shuffled": lambda: batches(lambda some: [*map(shard.read_file, some)], shuffled),
            "webdataset, in order": lambda: pipeline,
            "pread, in order": lambda: (os.pread(descriptor, size, offset) for offset, size in members),
            "pread, shuffled": lambda: (os.pread(descriptor, members[i][1], members[i][0]) for i in shuffled),
        }
        rates = interleaved({name: per_second(items) for name, items in passes.items()}, ROUNDS)
        ours, mixed = rates["touchfs.open, in order"], rates["touchfs.open, shuffled"]
        wanted = {
            "webshart, in order": at_least(ours / rates["webshart, in order"], 1, "x"),
            "webshart, shuffled": at_least(mixed / rates["webshart, shuffled"], 1, "x"),
        }
        for order in ("in order", "shuffled"):
            batch = rates[f"touchfs read({BATCH}), {order}"]
            wanted[f"touchfs read({BATCH}), {order}"] = " ".join(
                f"{batch / rates[name]:.2f}x {name}: {at_least(batch / rates[name], 1, 'x')}"
                for name in (f"webshart, {order}", f"webshart, {BATCH}, {order}")
            )
        rows = []
        for name, rate in rates.items():
            ratio = (mixed if name.endswith("shuffled") else ours) / rate
            rows.append((name, f"{rate:,.0f} files/s", f"touchfs is {ratio:.2f}x  {wanted.get(name, '')}".rstrip()))
        report("Bytes of all files, one process", rows)
        loaders = {
            "touchfs.open": lambda: flat(
                DataLoader(dataset.map(field), BATCH, shuffle=True, num_workers=2, collate_fn=list)
            ),
            "in memory": lambda: flat(
                DataLoader(dataset.map(field), BATCH, shuffle=True, num_workers=2, collate_fn=SharedMemoryCollate(list))
            ),
            "webdataset": lambda: flat(
                DataLoader(pipeline.batched(BATCH, collation_fn=list), batch_size=None, num_workers=1)
            ),
        }
        rates = interleaved({name: per_second(items) for name, items in loaders.items()}, 3)
        ratio, piped = (rates[name] / rates["webdataset"] for name in ("in memory", "touchfs.open"))
        # One tar cannot be shared by several workers of webdataset.
        rows = [
            ("touchfs.open, shuffled, 2 workers", f"{rates['touchfs.open']:,.0f} files/s", f"{piped:.2f}x webdataset"),
            (
                "the same with SharedMemoryCollate",
                f"{rates['in memory']:,.0f} files/s",
                f"{ratio:.2f}x webdataset, {at_least(ratio, 2, 'x')}",
            ),
            ("webdataset, in order, 1 worker", f"{rates['webdataset']:,.0f} files/s", ""),
        ]
        report("The same through PyTorch's DataLoader", rows)
        os.close(descriptor)


if __name__ == "__main__":
    run(main)
