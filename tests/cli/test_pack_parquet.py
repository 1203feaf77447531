"""Packing and converting into Parquet files, and from these, by the command."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from arrow_tables import JPG, pictures, write_arrow
from parquet_tables import write_parquet
from PIL import Image
from tars import write_tar

Run = Callable[..., str]


def read(directory: Path) -> pa.Table:
    return pa.concat_tables(pq.read_table(path) for path in sorted(directory.glob("shard-*.parquet")))


def test_a_folder_becomes_parquet_with_labels(run: Run, tmp_path: Path) -> None:
    for label, shade in (("cat", 1), ("dog", 2)):
        (tmp_path / "images" / label).mkdir(parents=True)
        file = io.BytesIO()
        Image.new("RGB", (8, 6), (shade, shade, shade)).save(file, "JPEG")
        (tmp_path / "images" / label / "0.jpg").write_bytes(file.getvalue())
    features = {"image": {"type": "Image"}, "label": {"type": "ClassLabel", "names": ["cat", "dog"]}}
    (tmp_path / "f.json").write_text(json.dumps(features))
    out = tmp_path / "out"
    assert "2 rows" in run("pack", "parquet", tmp_path / "images", out, "--features", tmp_path / "f.json")
    assert [path.name for path in out.iterdir()] == ["shard-00000.parquet"]
    assert read(out)["label"].to_pylist() == [0, 1]
    assert run("ls", f"{out}:by-label") == "cat/\ndog/\n"
    assert run("ls", f"{out}:by-label/dog/shard-00000").split() == ["00000001.jpg", "00000001.json"]
    assert "already exists" in run(
        "pack", "parquet", tmp_path / "images", out, "--features", tmp_path / "f.json", status=2
    )


def test_parquet_becomes_a_tar_and_parquet_again(run: Run, tmp_path: Path) -> None:
    members = {}
    for number in range(20):
        members |= {f"k{number:02}.jpg": JPG + bytes([number]), f"k{number:02}.json": b'{"n": %d}' % number}
    tar = write_tar(tmp_path / "tars" / "000.tar", members)
    run("convert", tar.parent, tmp_path / "table", "--to", "parquet")
    found = read(tmp_path / "table").to_pylist()
    assert found[3] == {"__key__": "k03", "jpg": JPG + b"\3", "json": b'{"n": 3}'}
    assert "k03.jpg" in run("ls", f"{tmp_path / 'table'}:shards/shard-00000")
    run("convert", tmp_path / "table", tmp_path / "again", "--to", "tar")
    run("convert", tar.parent, tmp_path / "direct", "--to", "tar")
    assert (tmp_path / "again" / "000000.tar").read_bytes() == (tmp_path / "direct" / "000000.tar").read_bytes()


def test_what_cannot_be_done_is_said(run: Run, tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "a.parquet", pictures())
    out = tmp_path / "out"
    assert "never compressed" in run("convert", source, out, "--to", "parquet", "--payload", "uncompressed", status=2)
    union = pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])])
    write_arrow(tmp_path / "u.arrow", pa.table({"u": union}))
    assert "Parquet cannot store" in run("convert", tmp_path / "u.arrow", out, "--to", "parquet", status=2)
    assert not out.exists()
