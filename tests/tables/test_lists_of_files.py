"""Lists of images and of bytes: each element is a file, and equals what pyarrow has."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrow_tables import JPG, PNG, write_arrow
from conformance import Expected, check_shard

import touchfs
from touchfs.indexing import open_dataset
from touchfs.registry.open import open_shard
from touchfs.tables.rows.columns import ITEMS_MAX

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
IMAGES = [
    [{"bytes": JPG + b"0", "path": "x.jpeg"}, {"bytes": PNG, "path": None}],
    None,
    [],
    [{"bytes": None, "path": "far.png"}, None, {"bytes": b"", "path": "e.png"}],
    [{"bytes": JPG + b"4", "path": None}],
]
CLIPS = [[b"RIFF1234WAVE"], [], None, [None, b"OggS"], []]
TABLE = pa.table(
    {
        "id": [*"abcde"],
        "images": pa.array(IMAGES, pa.list_(IMAGE)),
        "clips": pa.array(CLIPS, pa.large_list(pa.large_binary())),
        "text": ["q"] * 5,
    }
)
NAMES = {
    "a": {"images.0.jpeg": JPG + b"0", "images.1.png": PNG, "clips.0.wav": b"RIFF1234WAVE"},
    "b": {},
    "c": {},
    "d": {"images.2.png": b"", "clips.1.ogg": b"OggS"},
    "e": {"images.0.jpg": JPG + b"4"},
}
WRITERS: dict[str, Any] = {
    "arrow": lambda path, table: write_arrow(path, table, "file", 2),
    "zstd.arrow": lambda path, table: write_arrow(path, table, "stream-lz4", 2),
    "parquet": lambda path, table: pq.write_table(table, path, compression="none"),
    "v1.parquet": lambda path, table: pq.write_table(table, path, row_group_size=2, compression="snappy"),
    "v2.parquet": lambda path, table: pq.write_table(table, path, data_page_version="2.0", write_page_index=True),
}


def without_bytes(images: Any) -> Any:
    """What the JSON has of a list of images."""
    return images and [image and {"path": image["path"]} for image in images]


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("form", WRITERS)
def test_elements_are_files(tmp_path: Path, form: str, full: bool) -> None:
    path = tmp_path / f"x.{form}"
    WRITERS[form](path, TABLE)
    open_dataset(str(path), full=full)
    shown = {sample.key: {name: bytes(data) for name, data in sample.items()} for sample in touchfs.open(path)}
    rows = {key: json.loads(files.pop("row.json")) for key, files in shown.items()}
    assert shown == NAMES
    wanted = zip("abcde", IMAGES, strict=True)
    assert rows == {key: {"id": key, "images": without_bytes(images), "text": "q"} for key, images in wanted}


def test_they_are_ranges_of_an_arrow_file(tmp_path: Path) -> None:
    lists = [[b"1", b"22"], [b""], [None, b"4"], [b"55"]]
    path = write_arrow(tmp_path / "x.arrow", pa.table({"x": lists}))
    expected = [
        Expected(f"{row:08d}", {f"x.{i}": data for i, data in enumerate(each) if data is not None})
        for row, each in enumerate(lists)
    ]
    check_shard(lambda: open_shard(str(path)), expected)


@pytest.mark.parametrize("form", WRITERS)
def test_long_lists_are_in_the_json(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"x.{form}"
    lists = [[b"1"], [b"2"] * (ITEMS_MAX + 1), [b"3"] * ITEMS_MAX]
    WRITERS[form](path, pa.table({"x": lists, "n": [1, 2, 3]}))
    one, two, three = touchfs.open(path)
    assert one["x.0.bin"] == b"1" and [*two] == ["row.json"] and len(three) == 1 + ITEMS_MAX
    assert one.json() == {"n": 1} and two.json() == {"x": ["Mg=="] * (ITEMS_MAX + 1), "n": 2}
