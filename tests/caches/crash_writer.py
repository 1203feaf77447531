"""Processes that write caches until they are killed. Forked by a server that has imported all, so they start fast."""

import itertools
from pathlib import Path

from killed import kill_at

from touchfs.caches.writers.arrow import write_sharded_arrow_cache
from touchfs.features import Features, Value, Video

FEATURES = Features({"x": Value("int64"), "video": Video()})
ROWS = 8
# What a generation's rows begin with, so that two generations do not mix unnoticed.
STEP = 10_000


def write_generation(place: Path, generation: int) -> None:
    """Rows of one generation, in two shards, with staged videos."""
    first = generation * STEP
    sources = [place.parent / f"{generation % 5}-{i}.mp4" for i in range(2)]
    for source in sources:
        if not source.exists():
            source.write_bytes(source.name.encode())
    rows = ((i, {"x": i, "video": sources[i % 2]}) for i in range(first, first + ROWS))
    write_sharded_arrow_cache(rows, FEATURES, place, batch_size=4, shard_size_bytes=1)


def write_for_ever(place: Path, generation: int) -> None:
    """Write one generation after the other."""
    for each in itertools.count(generation):
        write_generation(place, each)


def write_until(place: Path, generation: int, step: int) -> None:
    """Write a generation, and be killed before the operation of this number: an open, a rename, a removal, a swap."""
    kill_at(step, lambda event, _: event.startswith(("open", "os.", "shutil.", "ctypes.")))
    write_generation(place, generation)
