"""Examples for tests of caches: those of which the golden fingerprints are, with random pixels."""

from collections.abc import Iterator
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
