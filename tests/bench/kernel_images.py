"""A tar that the kernel reads by an image, beside touchfs by FUSE, its peers, and ext4 with the files unpacked.

`kernel_images.py [--rounds N]`: as root. In every round each in turn is freshly mounted, with the data in the page
cache. "cold" is the first time that a file is opened, "hot" the second. Ratios are medians of those of each round.
Then: a loader of two processes that opens two files a sample, and an image of a million files in shards of 1,000.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from daemons import START, SmallFiles, all_daemons
from harness import at_least, at_most, grid, own_cache_and_state, report, run
from small_files import CHOSEN, COLUMNS, COUNT, make_tar, read_files
from touchfs_mount.mounting.image_owners import image_owners
from touchfs_mount.mountpoints.erofs import attach, made

from touchfs.images.kept import find_or_make
from touchfs.images.plan import plan_image
from touchfs.indexing import open_dataset

SHARDS, MEMBERS = 1_000, 1_000
PEERS = ("squashfuse_ll", "fuse-archive")
LOADER_SAMPLES = 2_000


class Shown(NamedTuple):
    """One row: how it is mounted, and where its small files are then."""

    mounted: Callable[[Path], AbstractContextManager[object]]
    path: Callable[[int], str]


@contextmanager
def kernel_mount(source: Path, where: Path) -> Iterator[None]:
    where.mkdir(exist_ok=True)
    command = [sys.executable, "-P", "-c", START, "mount", "--kernel", source, where]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        subprocess.run(["umount", where], check=True)


@contextmanager
def ext4_mount(image: Path, where: Path) -> Iterator[None]:
    where.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop,ro", image, where], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", where], check=True)


def unpacked_on_ext4(files: SmallFiles, place: Path) -> Path:
    image, unpacked = place / "small.ext4", place / "unpacked-ext4"
    unpacked.mkdir()
    subprocess.run(["tar", "-C", unpacked, "-xf", files.tar], check=True)
    with open(image, "wb") as file:
        file.truncate(2 * files.tar.stat().st_size)
    subprocess.run(["mkfs.ext4", "-q", "-d", unpacked, image], check=True)
    subprocess.run(["rm", "-r", unpacked], check=True)
    return image


def loader_rate(root: Path, path: Callable[[int], str], numbers: list[int]) -> float:
    """Samples a second of a DataLoader with two processes, of which each sample opens two files."""
    from torch.utils.data import DataLoader, Dataset

    class Pairs(Dataset):
        def __len__(self) -> int:
            return LOADER_SAMPLES

        def __getitem__(self, place: int) -> int:
            return sum(len((root / path(number)).read_bytes()) for number in numbers[2 * place : 2 * place + 2])

    begin = time.perf_counter()
    count = sum(len(batch) for batch in DataLoader(Pairs(), batch_size=32, num_workers=2))
    assert count == LOADER_SAMPLES
    return count / (time.perf_counter() - begin)


def million(place: Path) -> list[tuple[str, str, str]]:
    """An image of a million files from ready catalogs, and how long it takes to mount it."""
    source = place / "million"
    source.mkdir()
    for shard in range(SHARDS):
        parts = bytearray()
        for number in range(MEMBERS):
            member = tarfile.TarInfo(f"{shard:04d}{number:05d}.txt")
            member.size = 100
            parts += member.tobuf(tarfile.USTAR_FORMAT) + bytes(512)
        (source / f"{shard:04d}.tar").write_bytes(bytes(parts) + bytes(1024))
    open_dataset(str(source))
    dataset = open_dataset(str(source))
    begin = time.perf_counter()
    plan, owners = plan_image(dataset), image_owners(dataset, allow_other=False)
    image = find_or_make(plan, owners, by_key=False)
    wrote = time.perf_counter() - begin
    os.close(image.descriptor)
    size = os.path.getsize(image.path) / image.files
    where = place / "mnt-million"
    where.mkdir()
    begin = time.perf_counter()
    image = find_or_make(plan, owners, by_key=False)
    checked = time.perf_counter() - begin
    begin = time.perf_counter()
    devices = [os.open(device.path, os.O_RDONLY) for device in plan.devices]
    with made(image.descriptor, devices) as mounted:
        attach(mounted, str(where))
    took = time.perf_counter() - begin
    for descriptor in (image.descriptor, *devices):
        os.close(descriptor)
    begin = time.perf_counter()
    listed = subprocess.run(["find", where], stdout=subprocess.PIPE, check=True).stdout.count(b"\n")
    found = time.perf_counter() - begin
    subprocess.run(["umount", where], check=True)
    assert listed > SHARDS * MEMBERS
    return [
        ("image of a million files", f"{wrote:.2f} s", at_most(wrote, 3, " s")),
        ("bytes a file", f"{size:.0f}", at_most(size, 100)),
        ("its checksum, when it is mounted", f"{checked * 1000:.0f} ms", ""),
        ("mounting it with 1,000 tars", f"{took * 1000:.0f} ms", at_most(took, 0.05, " s")),
        ("find of all", f"{found:.2f} s", ""),
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        own_cache_and_state(place)
        files = make_tar(place / "small.tar")
        daemons = all_daemons(files, place, None)
        rows = {
            name: Shown(daemons[name].mounted, daemons[name].path) for name in ("touchfs", *PEERS) if name in daemons
        }
        ext4 = unpacked_on_ext4(files, place)
        rows["image"] = Shown(lambda where: kernel_mount(files.tar, where), rows["touchfs"].path)
        rows["ext4"] = Shown(lambda where: ext4_mount(ext4, where), files.name)
        for row in rows.values():  # those that make an index make it now
            with row.mounted(place / "mnt"):
                pass
        rates: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for round_ in range(chosen.rounds):
            numbers = random.Random(round_).sample(range(COUNT), 2 * CHOSEN)
            first = round_ % len(rows)
            for name in (*list(rows)[first:], *list(rows)[:first]):
                with rows[name].mounted(place / "mnt"):
                    for threads, half in ((1, numbers[:CHOSEN]), (4, numbers[CHOSEN:])):
                        paths = [place / "mnt" / rows[name].path(number) for number in half]
                        for state in ("cold", "hot"):
                            rate = len(paths) / read_files(paths, threads)
                            rates[f"{threads} thread{'s' * (threads > 1)} {state}"][name].append(rate)
                if name in ("touchfs", "image"):
                    with rows[name].mounted(place / "mnt"):
                        rates["loader"][name].append(loader_rate(place / "mnt", rows[name].path, numbers))
        table = [[name, *(f"{median(rates[column][name]):,.0f}" for column in COLUMNS)] for name in rows]
        grid("Random files of 32 KiB, freshly mounted: files/s", ["", *COLUMNS], table)

        def ratio(column: str, other: str) -> float:
            ours, theirs = rates[column]["image"], rates[column][other]
            return median(a / b for a, b in zip(ours, theirs, strict=True))

        marks = [
            (f"{column}, against ext4", f"{ratio(column, 'ext4'):.2f}x", at_least(ratio(column, "ext4"), 0.8, "x"))
            for column in COLUMNS
        ]
        found = ratio("loader", "touchfs")
        marks.append(("a loader of two processes, against FUSE", f"{found:.2f}x", at_least(found, 1.8, "x")))
        report("Wanted: medians of the ratios of each round", [*marks, *million(place)])


if __name__ == "__main__":
    run(main)
