"""Parquet files in a real mount: rows as files, whole columns, labels, keys, and what commands and iterators say."""

import errno
import json
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from arrow_tables import JPG, PNG, pictures
from mounts import touchfs
from parquet_tables import write_parquet

import touchfs as library
from touchfs.source.local import VERIFY_SECONDS

ROWS = 120
# Of the first files of the rows with pictures
ENDS = ["jpeg", "jpg", "json", "json", "gif", "jpg", "jpg"]


def wide() -> pa.Table:
    """Rows with two files each, some null, in several row groups and of several groups of rows."""
    choose = np.random.default_rng(0)
    return pa.table(
        {
            "image": [PNG + bytes([i % 256]) * i if i % 7 else None for i in range(ROWS)],
            "vector": pa.FixedSizeListArray.from_arrays(choose.random(4 * ROWS, np.float32), 4),
            "n": list(range(ROWS)),
            "label": [i % 3 for i in range(ROWS)],
            "text": [f"row {i} ü" for i in range(ROWS)],
        }
    )


@pytest.mark.parametrize("way", ["snappy", "plain", pytest.param("zstd", marks=pytest.mark.variant)])
def test_rows_are_directories_of_files(mount, tmp_path, way):
    table = wide()
    top = mount(write_parquet(tmp_path / "t.parquet", table, way, 64)).path
    assert sorted(os.listdir(top)) == [".touchfs", "by-label", "columns", "manifests", "shards"]
    shard = top / "shards" / "t"
    assert sorted(os.listdir(shard)) == [f"{i:08d}" for i in range(ROWS)]

    def check(i: int, row: dict) -> None:
        above = shard / f"{i:08d}"
        assert set(os.listdir(above)) == {"vector.npy", "row.json"} | (
            {"image.png"} if row["image"] is not None else set()
        )
        if row["image"] is not None:
            assert (above / "image.png").stat().st_size == len(row["image"])
            assert (above / "image.png").read_bytes() == row["image"]
        assert np.load(above / "vector.npy").tolist() == row["vector"]
        text = (above / "row.json").read_bytes()
        assert json.loads(text) == {name: row[name] for name in ("n", "label", "text")}
        assert (above / "row.json").stat().st_size == len(text)

    rows = [*enumerate(table.to_pylist())]
    with ThreadPoolExecutor(8) as threads:
        [*threads.map(lambda each: check(*each), random.Random(0).sample(rows, ROWS))]
    with pytest.raises(FileNotFoundError):
        (shard / "00000007" / "image.png").read_bytes()
    columns = top / "columns" / "t"
    assert sorted(os.listdir(columns)) == ["label.npy", "n.npy", "text.jsonl", "vector.npy"]
    assert (np.load(columns / "vector.npy") == np.array(table["vector"].to_pylist(), np.float32)).all()
    assert np.load(columns / "n.npy").tolist() == list(range(ROWS))
    lines = (columns / "text.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == table["text"].to_pylist()


def test_the_commands_and_iterators_know_parquet(mount, tmp_path):
    source = write_parquet(tmp_path / "t.parquet", pictures(("id", pa.array([f"k{i}" for i in range(7)]))))
    top = mount(source).path
    shard = top / "shards" / "t"
    assert (shard / "k0.jpeg").read_bytes() == JPG == (top / "by-key" / "k0.jpeg").read_bytes()
    assert os.getxattr(shard / "k0.json", "user.touchfs.key") == b"k0"
    spec = json.dumps({"where": 'label == 1 or text == "one"'})
    made = touchfs("iterator", "create", top, "some", "--spec", spec)
    assert made.returncode == 0, made.stderr
    next_file = top / ".touchfs" / "iterators" / "some" / "next"
    assert [next_file.read_text().strip() for _ in range(3)] == [
        str(shard / name) for name in ("k0.jpeg", "k1.jpg", "k4.gif")
    ]
    for name, text in (("ls", "k0.jpeg"), ("cat", '"label": 0'), ("stat", "k0")):
        done = touchfs(name, f"{source}:shards/t" + ("" if name == "ls" else "/k0.json"))
        assert done.returncode == 0 and text in done.stdout, done
    done = touchfs("iterate", source, "--shuffle", 7)
    assert sorted(done.stdout.split()) == [f"shards/t/k{i}.{end}" for i, end in enumerate(ENDS)]
    done = touchfs("info", source)
    assert "image (struct<bytes: binary, path: utf8>), label (int64), text (utf8), id (utf8)" in done.stdout
    assert json.loads(touchfs("info", source, "--json").stdout)["kind"] == "Parquet"
    opened = library.open(str(source))
    assert opened[0]["jpeg"] == JPG and [each.key for each in opened.where("label == 0")] == ["k0", "k5"]


@pytest.mark.parametrize("layout", ["flat", "nested"])
def test_rows_by_their_labels(mount, tmp_path, layout):
    names = ["cat", "a/b", "third", "unused"]
    info = {"info": {"features": {"label": {"_type": "ClassLabel", "names": names}}}}
    declared = pictures().replace_schema_metadata({"huggingface": json.dumps(info)})
    top = mount(write_parquet(tmp_path / "t.parquet", declared), "--layout", layout).path
    labelled = top / "by-label"
    assert sorted(os.listdir(labelled)) == ["a%2Fb", "cat", "third", "unused"]
    found = {label: set(os.listdir(labelled / label / "t")) for label in ("cat", "a%2Fb")}
    if layout == "nested":
        assert found == {"cat": {"00000000", "00000005"}, "a%2Fb": {"00000001", "00000004"}}
        assert (labelled / "cat" / "t" / "00000000" / "image.jpeg").read_bytes() == JPG
    else:
        assert found["cat"] == {"00000000.jpeg", "00000000.json", "00000005.jpg", "00000005.json"}
        assert (labelled / "cat" / "t" / "00000000.jpeg").read_bytes() == JPG


def test_a_damaged_file_is_a_text_and_others_are_shown(mount, tmp_path):
    source = tmp_path / "data"
    whole = write_parquet(source / "a.parquet", pictures()).read_bytes()
    (source / "b.parquet").write_bytes(whole[:-9] + b"?" + whole[-8:])
    (source / "c.parquet").write_bytes(b"PAR1" + bytes(50) + b"PAR1")
    top = mount(source).path
    assert "cannot be served" in (top / "shards" / "c" / "ERROR.txt").read_text()
    assert (top / "shards" / "a" / "00000000.jpeg").read_bytes() == JPG


def test_all_is_known_beforehand_after_a_full_index(mount, tmp_path):
    """Sizes and extensions of all cells, and the sizes of rows, are in the catalog."""
    images = [(PNG if i % 2 else JPG) + bytes([i]) * i for i in range(50)]
    path = write_parquet(tmp_path / "t.parquet", pa.table({"image": images, "n": range(50)}), "plain", 20)
    done = touchfs("index", path, "--full")
    assert done.returncode == 0, done.stderr
    shard = mount(path).path / "shards" / "t"
    for i, image in enumerate(images):
        file = shard / f"{i:08d}.{'png' if i % 2 else 'jpg'}"
        assert file.stat().st_size == len(image) and file.read_bytes() == image
        assert os.getxattr(file, "user.touchfs.size") == b"%d" % len(image)


def error_of(path: Path) -> int | None:
    try:
        path.read_bytes()
    except OSError as error:
        return error.errno
    return None


def test_a_file_that_is_replaced_is_stale(mount, tmp_path):
    path = write_parquet(tmp_path / "t.parquet", pictures())
    top = mount(path).path
    assert (top / "shards" / "t" / "00000000.jpeg").read_bytes() == JPG
    write_parquet(tmp_path / "new.parquet", pictures(("more", pa.array(range(7))))).rename(path)
    time.sleep(VERIFY_SECONDS)
    for name in ("00000001.jpg", "00000001.json"):
        assert error_of(top / "shards" / "t" / name) == errno.ESTALE
    assert touchfs("reload", top).returncode == 0
    assert "more" in json.loads((top / "shards" / "t" / "00000001.json").read_bytes())


def test_a_damaged_page_is_an_error_of_its_rows(mount, tmp_path):
    images = [PNG + random.Random(i).randbytes(5000) for i in range(40)]
    table = pa.table({"image": images, "n": range(40)})
    path = write_parquet(tmp_path / "t.parquet", table, "zstd", 10)
    data = bytearray(path.read_bytes())
    at = data.index(images[25][2000:2100]) if images[25][2000:2100] in data else len(data) * 25 // 40
    data[at - 1000 : at + 1000] = bytes(2000)
    path.write_bytes(data)
    top: Path = mount(path).path
    shown, failed = 0, 0
    for i in range(40):
        try:
            found = (top / "shards" / "t" / f"{i:08d}.png").read_bytes()
            shown += found == images[i]
        except OSError as error:
            assert error.errno == errno.EIO
            failed += 1
    assert shown >= 30 and shown + failed >= 39
