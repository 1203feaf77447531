"""Parquet files of interleaved samples in the index: grouping of rows, cells of all layouts, and locators."""

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from interleaved_tars import make_image, make_tiff, make_wds_tar
from item_rows import image_row, ranges_of, text_row
from mint_documents import frames_of, is_same_image, shown_items, write_items

from touchfs.indexing import open_dataset
from touchfs.interleaved.items.schema import FILE_TYPE
from touchfs.limits import Limits
from touchfs.shard.options import Options

PLAIN = {"compression": "none", "use_dictionary": False}
LAYOUTS = {
    "plain": PLAIN,
    "snappy": {},
    "dictionary": {"compression": "none"},
    "pages": {"compression": "zstd", "use_dictionary": False, "data_page_size": 500, "write_batch_size": 1},
    "groups": {**PLAIN, "row_group_size": 3},
    "v2": {**PLAIN, "data_page_version": "2.0"},
}
IMAGES = {ext: make_image(ext, seed=number) for number, ext in enumerate(("jpg", "png", "webp", "gif", "bmp"))}


def rows_of_sample(sample_id: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {
            "position": -1,
            "modality": "metadata",
            "content_type": "application/json",
            "url": f"https://e.org/{sample_id}",
        },
        text_row(0, f"text of {sample_id}"),
        image_row(0, content_type="image/jpeg", binary_content=IMAGES["jpg"], source_ref=None),
        image_row(3, content_type=None, binary_content=IMAGES["png"], source_ref=None),
        image_row(3, content_type=None, binary_content=IMAGES["webp"], source_ref=None, caption="two on one position"),
        image_row(3, content_type="image/png", binary_content=IMAGES["png"], source_ref=None),
        text_row(12, "中文 ü" * 50),
    ]
    return [row | {"sample_id": sample_id} for row in rows]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_items_of_all_layouts(tmp_path, layout):
    path = write_items(
        tmp_path / "p.parquet", [row for i in range(4) for row in rows_of_sample(f"s{i}")], **LAYOUTS[layout]
    )
    dataset = open_dataset(str(path), in_memory=True)
    shown = shown_items(dataset)
    for i in range(4):
        own = {name.rpartition("/")[2]: data for name, data in shown.items() if f"/s{i}/" in name}
        metadata, sample = json.loads(own.pop("metadata.json")), json.loads(own.pop("sample.json"))
        assert own == {
            "000.txt": f"text of s{i}".encode(),
            "000.jpg": IMAGES["jpg"],
            "003.png": IMAGES["png"],
            "003.webp": IMAGES["webp"],
            "003~2.png": IMAGES["png"],
            "012.txt": ("中文 ü" * 50).encode(),
        }
        assert metadata["url"] == f"https://e.org/s{i}" and metadata["sample_id"] == f"s{i}"
        assert [row["position"] for row in sample] == [-1, 0, 0, 3, 3, 3, 12]
        assert sample[4]["caption"] == "two on one position" and "binary_content" not in sample[4]
    assert dataset.interleaved.shards[0].report == ""


def test_rows_of_one_sample_may_lie_apart(tmp_path):
    rows = [text_row(i, f"{i}", sample_id=f"s{i % 3}") for i in range(12)]
    write_items(tmp_path / "p.parquet", rows, row_group_size=2)
    shown = shown_items(open_dataset(str(tmp_path), in_memory=True))
    for i in range(3):
        names = [f"p/s{i}/{position:03d}.txt" for position in range(i, 12, 3)]
        assert [path for path in shown if path.startswith(f"p/s{i}/")] == [*names, f"p/s{i}/sample.json"]


def test_hostile_rows(tmp_path):
    rows = [
        text_row(0, "good", sample_id="good"),
        text_row(2**31, "far", sample_id="good"),
        text_row(2**62, "farther", sample_id="good"),
        text_row(0, "no id", sample_id=None),
        text_row(-7, "negative", sample_id="odd"),
        text_row(0, "no modality", sample_id="odd", modality=None),
        {"sample_id": "odd", "position": None, "modality": "text"},
        *(text_row(0, raw, sample_id=raw) for raw in ("..", "nul\0", "a/b", "x" * 10_000)),
        *(text_row(i, "many", sample_id="many") for i in range(2000)),
        {
            "sample_id": "film",
            "position": 0,
            "modality": "video/../..",
            "content_type": "video/mp4",
            "text_content": "?",
        },
        text_row(0, None, sample_id="null text"),
    ]
    write_items(tmp_path / "p.parquet", rows, positions=pa.int64())
    dataset = open_dataset(str(tmp_path), in_memory=True)
    shown = shown_items(dataset)
    width = len(str(2**62))
    far = {path: data for path, data in shown.items() if path.startswith(("p/good/0", "p/good/4"))}
    assert far == {
        f"p/good/{n:0{width}d}.txt": text for n, text in ((0, b"good"), (2**31, b"far"), (2**62, b"farther"))
    }
    directories = dict.fromkeys(path.split("/")[1] for path in shown)
    expected = {"good", "odd", "%2E%2E", "nul%00", "a%2Fb", "many", "film", "null%20text", "ERROR.txt"}
    assert {name for name in directories if "xxx" not in name} == expected
    report = dataset.interleaved.shards[0].report
    assert [line for line in report.splitlines() if line.startswith("row ")] == [
        "row 3: it has no sample_id",
        "row 4: its position is -7, and its modality 'text'",
        "row 5: its position is 0, and its modality None",
        "row 6: its position is None, and its modality 'text'",
    ]
    assert sum(path.startswith("p/many/") for path in shown) == 2001
    (film,) = [path for path in shown if path.startswith("p/film/0")]
    assert shown[film] == b"?"


def test_locators(tmp_path):
    data = tmp_path / "data"
    members = {"a.png": IMAGES["png"], "a.tiff": make_tiff(3), "b.jpg": IMAGES["jpg"]}
    tar = make_wds_tar(data / "files" / "t.tar", members.items())
    make_wds_tar(data / "files" / "t.tar.gz", members.items())
    (data / "whole.jpg").write_bytes(IMAGES["jpg"])
    ranges = ranges_of(tar)
    rows = [
        image_row(0, "files/t.tar", "a.png", *ranges["a.png"]),
        image_row(1, "files/t.tar", "a.png"),
        image_row(2, "whole.jpg", content_type="image/jpeg"),
        image_row(3, "files/t.tar", None, *ranges["b.jpg"], content_type="image/jpeg"),
        image_row(4, "files/t.tar", "a.tiff", *ranges["a.tiff"], 1, content_type="image/tiff"),
        image_row(5, "files/t.tar.gz", "a.png", *ranges["a.png"]),
        image_row(6, "files/t.tar", "gone.png"),
        image_row(7, "whole.jpg", None, 10, 10**6),
        image_row(8, "gone.jpg"),
        image_row(9, source_ref=None),
        image_row(10, source_ref="{not JSON"),
    ]
    write_items(data / "p.parquet", rows)
    shown = shown_items(open_dataset(str(data / "p.parquet"), in_memory=True))
    named = {path.removeprefix("p/s/").partition(".")[0]: found for path, found in shown.items()}
    assert [named[f"{i:03d}"] for i in (0, 1, 2, 3, 5)] == [IMAGES[ext] for ext in ("png", "png", "jpg", "jpg", "png")]
    assert is_same_image(named["004"], frames_of(members["a.tiff"])[1])
    problems = {
        6: "missing member 'gone.png'",
        7: "a range past the end",
        8: f"{data}/gone.jpg: no such file",
        9: "missing path",
        10: "is not JSON",
    }
    for position, problem in problems.items():
        assert isinstance(named[f"{position:03d}"], str) and problem in named[f"{position:03d}"]
    report = shown["p/ERROR.txt"].decode()
    assert all(f"position {i}: " in report for i in (7, 8, 9, 10)) and "position 6" not in report


def test_places_that_data_may_not_name(tmp_path):
    data, secret = tmp_path / "data", tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_bytes(b"secret")
    data.mkdir()
    (data / "link").symlink_to(secret / "key")
    (data / "dir").symlink_to(secret)
    places = [
        "/etc/shadow", "../secret/key", f"{secret}/key", "link", "dir/key", "file:///etc/passwd", f"local://{secret}/key",
        "http://169.254.169.254/latest/meta-data", "zip://key::file:///etc/passwd", "a\0b", "data/../../secret/key",
    ]  # fmt: skip
    write_items(data / "p.parquet", [image_row(0, place, sample_id=f"s{i}") for i, place in enumerate(places)])
    dataset = open_dataset(str(data / "p.parquet"), in_memory=True)
    shown = shown_items(dataset)
    found = [data for path, data in shown.items() if path.endswith("/000.png")]
    assert len(found) == len(places) and all(isinstance(each, str) for each in found)
    assert dataset.interleaved.shards[0].report.count("position ") == len(places)
    assert not any(each == b"secret" for each in shown.values())


def test_allowed_locations(tmp_path):
    data, other = tmp_path / "data", tmp_path / "other"
    other.mkdir()
    (other / "a.jpg").write_bytes(IMAGES["jpg"])
    (other / "out").symlink_to(tmp_path)
    data.mkdir()
    write_items(data / "p.parquet", [image_row(0, f"{other}/a.jpg"), image_row(1, f"{other}/out/other/a.jpg")])
    path = str(data / "p.parquet")
    closed = shown_items(open_dataset(path, in_memory=True))
    assert "--allow-location" in closed["p/s/000.png"]
    opened = shown_items(open_dataset(path, options=Options(limits=Limits(locations=(str(other),))), in_memory=True))
    assert opened["p/s/000.png"] == IMAGES["jpg"] and isinstance(opened["p/s/001.png"], str)


def test_file_groups(tmp_path):
    data = tmp_path
    (data / "whole.jpg").write_bytes(b"before" + IMAGES["jpg"] + b"after")
    groups = [
        {"inline": IMAGES["png"]},
        {"uri": "whole.jpg", "offset": 6, "size": len(IMAGES["jpg"])},
        {"uri": "whole.jpg", "offset": 6},
        None,
    ]
    rows = [
        {"sample_id": "s", "position": i, "modality": "image", "content_type": None, "source_ref": group}
        for i, group in enumerate(groups)
    ]
    schema = pa.schema(
        [
            ("sample_id", pa.string()),
            ("position", pa.int32()),
            ("modality", pa.string()),
            ("content_type", pa.string()),
            ("source_ref", FILE_TYPE),
        ]
    )
    for number, layout in enumerate(LAYOUTS.values()):
        pq.write_table(pa.Table.from_pylist(rows, schema), data / f"p{number}.parquet", **layout)
        shown = shown_items(open_dataset(str(data / f"p{number}.parquet"), in_memory=True))
        found = [shown[path] for path in shown if "/s/0" in path]
        assert found[:2] == [IMAGES["png"], IMAGES["jpg"]]
        assert "offset" in found[2] and found[3] == "missing path"


def test_other_parquet_files_are_plain_tables(tmp_path):
    pq.write_table(pa.table({"sample_id": ["a"], "text": ["b"]}), tmp_path / "p.parquet")
    dataset = open_dataset(str(tmp_path), in_memory=True)
    assert dataset.interleaved is None and dataset.samples == 1


@pytest.mark.parametrize("column", ["binary_content", "text_content", "position", "sample_id"])
@pytest.mark.parametrize("layout", ["plain", "snappy"])
def test_a_damaged_column_of_a_row_group_leaves_the_others(tmp_path, layout, column):
    rows = [row for i in range(4) for row in rows_of_sample(f"s{i}")]
    path = write_items(tmp_path / "p.parquet", rows, **{**LAYOUTS[layout], "row_group_size": 7})
    sound = shown_items(open_dataset(str(path), in_memory=True))
    metadata = pq.read_metadata(path)
    chunk = metadata.row_group(1).column(metadata.schema.names.index(column))
    data = bytearray(path.read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(data)
    dataset = open_dataset(str(path), in_memory=True)
    shown = shown_items(dataset)
    report = dataset.interleaved.shards[0].report
    for name, content in sound.items():
        if not name.startswith("p/s1/"):
            assert shown[name] == content
    if column in ("position", "sample_id"):
        assert not [name for name in shown if name.startswith("p/s1/")]
        assert "rows 7 to 13: they cannot be read" in report
    else:
        assert "'s1'" in report and column in report
        ends = (".txt",) if column == "binary_content" else (".jpg", ".png", ".webp")
        assert all(shown[name] == sound[name] for name in sound if name.startswith("p/s1/") and name.endswith(ends))


def test_a_sample_of_too_many_items(tmp_path, monkeypatch):
    monkeypatch.setattr("touchfs.indexing.interleaved.parquet_samples.ITEMS_MAX", 5)
    rows = [text_row(i, "many", sample_id="long") for i in range(20)]
    write_items(tmp_path / "p.parquet", [*rows, text_row(0, "fine", sample_id="short")])
    dataset = open_dataset(str(tmp_path), in_memory=True)
    shown = shown_items(dataset)
    assert [name for name in shown if name.startswith("p/long/")] == ["p/long/sample.json"]
    assert len(json.loads(shown["p/long/sample.json"])) == 20 and shown["p/short/000.txt"] == b"fine"
    assert "over 5 items" in dataset.interleaved.shards[0].report
