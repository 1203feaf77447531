"""Examples for tests of caches: those of which the golden fingerprints are, with random pixels."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from touchfs.features import Array3D, ClassLabel, Features, Image, Sequence, Value

NAMES = ["cat", "dog", "owl"]
PETS = Features(
    {
        "image": Image(),
        "label": ClassLabel(names=NAMES),
        "caption": Value("string"),
        "score": Value("float32"),
        "series": Sequence(Value("float32")),
        "cube": Array3D(shape=(2, 2, 3)),
    }
)

# Of 60 pets in shards of up to 40,000 bytes, as the original tool writes it.
METADATA = {
    "cache_format_version": 1,
    "format": "arrow",
    "layout": "arrow-shards",
    "schema_fingerprint": "39cb9288bb800052",
    "num_rows": 60,
    "num_shards": 2,
    "shard_row_counts": [30, 30],
    "shard_filenames": ["shard-00000.arrow", "shard-00001.arrow"],
    "shard_size_target_bytes": 40_000,
}


def change(place: Path, **members: Any) -> None:
    """Other members of the metadata of a cache; None removes one."""
    path = place / "_metadata.json"
    changed = json.loads(path.read_text()) | members
    path.write_text(json.dumps({name: value for name, value in changed.items() if value is not None}))


def pet(i: int) -> dict[str, Any]:
    """An example as a generator gives it."""
    random = np.random.default_rng(i)
    return {
        "image": random.integers(0, 256, (24, 25, 3), dtype=np.uint8),
        "label": NAMES[i % 3],
        "caption": None if i % 5 == 0 else f"row {i} é中",
        "score": np.float32(i / 7),
        "series": np.arange(i % 4, dtype=np.float32),
        "cube": random.integers(0, 256, (2, 2, 3), dtype=np.uint8),
        "unknown": "dropped",
    }


def pets(count: int, start: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """Pairs of a key and an example."""
    for i in range(start, start + count):
        yield f"key {i}", pet(i)


def stored(i: int) -> dict[str, Any]:
    """The row that the example becomes."""
    example = pet(i)
    return {
        "image": Image().encode(example["image"]),
        "label": i % 3,
        "caption": example["caption"],
        "score": float(example["score"]),
        "series": example["series"].tolist(),
        "cube": example["cube"].tobytes(),
    }
