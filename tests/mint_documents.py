"""Documents of texts and images, and what a tree shows of them in `interleaved/`.

The tars are made by `interleaved_tars`. What the files should be is found by tarfile and Pillow.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from interleaved_tars import WdsSample, make_image, make_wds_tar, mint_sample
from PIL import Image, ImageChops, ImageSequence

from touchfs.core.errors import TouchfsError
from touchfs.dataset import Dataset
from touchfs.interleaved.items.schema import INTERLEAVED_SCHEMA
from touchfs.tree.tree import Tree

# By the names that they get
HOSTILE_IDS = {
    "%2E%2E": "..",
    "a%2Fb%2Ec": "a/b.c",
    "nul%00": "nul\0",
    "ERROR%2Etxt": "ERROR.txt",
    "%E4%B8%AD": "中",
    "plain-_~1": "plain-_~1",
    "%25": "%",
}


def document(sample_id: str, texts: list[Any], images: list[Any], **passthrough: Any) -> bytes:
    """The JSON of a sample that names its id."""
    return json.dumps({"sample_id": sample_id, "texts": texts, "images": images, **passthrough}).encode()


def make_hostile_tar(path: Path) -> Path:
    """A tar of a sample for each of `HOSTILE_IDS`, a sample of 3000 items, and JSON that is damaged in several ways."""
    members = [(f"{i}.json", document(raw, ["text"], [None])) for i, raw in enumerate(HOSTILE_IDS.values())]
    members += [(f"many.{i}.jpg", make_image("jpg", (2, 2), i)) for i in range(2)]
    many = document("many", ["t", None] * 1500, [None, "many.0.jpg"] * 1500)
    damaged = [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b"1" * 10_000]
    members += [("many.json", many), *((f"bad{i}.json", data) for i, data in enumerate(damaged))]
    return make_wds_tar(path, members)


def make_mint_tar(path: Path, samples: int = 3) -> list[WdsSample]:
    """A tar as MINT-1T's, and the samples in it."""
    made = [mint_sample(number) for number in range(samples)]
    make_wds_tar(path, made)
    return made


def write_items(path: Path, rows: list[dict[str, Any]], positions: pa.DataType | None = None, **settings: Any) -> Path:
    """A Parquet file with these rows. Columns besides the reserved ones have text."""
    fields = {field.name: field.type for field in INTERLEAVED_SCHEMA}
    others = {name: pa.string() for row in rows for name in row if name not in fields}
    schema = pa.schema(fields | others | ({} if positions is None else {"position": positions}))
    pq.write_table(pa.Table.from_pylist(rows, schema), path, **settings)
    return path


def tree_of(dataset: Dataset) -> Tree:
    """The tree of a dataset, whose shards have the ids 1, 2, …"""
    return Tree(dataset, range(1, len(dataset.shards) + 1))


def shown_items(dataset: Dataset) -> dict[str, bytes | str]:
    """The content of each file below `interleaved/`, by its path; the message of a file that cannot be read."""
    tree = tree_of(dataset)
    return dict(_shown(tree, tree.resolve("interleaved").inode, ""))


def _shown(tree: Tree, directory: int, above: str) -> Iterator[tuple[str, bytes | str]]:
    for name, listed, _ in tree.entries(directory):
        entry, path = tree.entry(listed.inode), above + os.fsdecode(name)
        assert tree.find(directory, name) == entry
        if entry.is_directory:
            yield from _shown(tree, entry.inode, path + "/")
            continue
        try:
            content = tree.content(entry.inode)
            data = bytes(content.read(0, content.size + 1))
        except TouchfsError as error:
            yield path, error.message
            continue
        assert len(data) == entry.size == content.size
        assert bytes(content.read(3, 5)) == data[3:8]
        yield path, data


def frames_of(tiff: bytes) -> list[Image.Image]:
    """The decoded frames of a TIFF file."""
    return [frame.copy() for frame in ImageSequence.Iterator(Image.open(io.BytesIO(tiff)))]


def is_same_image(data: bytes, other: Image.Image) -> bool:
    """True if an image file has exactly these pixels, and one frame."""
    image = Image.open(io.BytesIO(data))
    frames = getattr(image, "n_frames", 1)
    return frames == 1 and image.size == other.size and not ImageChops.difference(image, other).getbbox()
