"""Packing into tables: folders, lists and datasets become Arrow shards or Lance datasets, by the command."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from parquet_tables import everything
from PIL import Image
from tars import write_tar

from touchfs.cache import open_cache
from touchfs.features import ClassLabel, Features, File, Value
from touchfs.features import Image as ImageFeature

FEATURES = Features({"image": ImageFeature(), "label": ClassLabel(names=["cat", "dog"])})


def jpeg(shade: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 6), (shade, shade, shade)).save(file, "JPEG")
    return file.getvalue()


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    for label in ("cat", "dog"):
        (folder / label).mkdir(parents=True)
        for number in range(3):
            (folder / label / f"{number}.jpg").write_bytes(jpeg(number + 10 * (label == "dog")))
    (folder / ".hidden").write_text("no")
    return folder


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "features.json"
    path.write_text(json.dumps(FEATURES.to_json()))
    return path


def rows(cache: Path, features: Features) -> list[dict]:
    opened = open_cache(cache, features)
    return [opened.backend.get_row(number) for number in range(opened.num_rows)]


@pytest.mark.parametrize("kind", ["arrow", "lance"])
def test_a_folder_becomes_a_table(run, tmp_path: Path, images: Path, schema: Path, kind: str) -> None:
    run("pack", kind, images, tmp_path / "out", "--features", schema)
    found = rows(tmp_path / "out", FEATURES)
    expected = [
        {"image": (images / label / f"{number}.jpg").read_bytes(), "label": index}
        for index, label in enumerate(("cat", "dog"))
        for number in range(3)
    ]
    assert found == expected


def test_other_files_of_a_folder_are_named(run, tmp_path: Path, images: Path, schema: Path) -> None:
    (images / "dog" / "notes.txt").write_text("no image")
    (images / "cow").mkdir()
    (images / "cow" / "0.jpg").write_bytes(jpeg(5))
    command = "pack", "arrow", images, tmp_path / "out", "--features", schema
    assert "sample 'cow/0': column 'label': 'cow' is not one of the 2 names" in run(*command, status=1)
    assert "6 rows, 2 skipped" in run(*command, "--skip-bad")
    skipped = [json.loads(line) for line in (tmp_path / "out" / "skipped.jsonl").read_text().splitlines()]
    assert [each["sample"] for each in skipped] == ["cow/0", "dog/notes"]
    assert "column 'image': 'notes.txt' is no file for the type Image" in skipped[1]["reason"]


def test_lines_name_files_beside_them(run, tmp_path: Path, images: Path, schema: Path) -> None:
    lines = [{"key": "a", "image": "images/cat/0.jpg", "label": "dog"}, {"key": "b", "image": "images/dog/1.jpg"}]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run("pack", "arrow", tmp_path / "data.jsonl", tmp_path / "out", "--features", schema)
    assert rows(tmp_path / "out", FEATURES) == [
        {"image": jpeg(0), "label": 1},
        {"image": jpeg(11), "label": None},
    ]


def test_samples_of_a_tar_become_rows(run, tmp_path: Path) -> None:
    tar = write_tar(
        tmp_path / "tars" / "000.tar",
        {
            "a.jpg": jpeg(1),
            "a.cls": b"1",
            "a.json": b'{"caption": "one", "size": [3, 4]}',
            "b.jpg": jpeg(2),
            "b.cls": b"cat",
            "b.txt": b"zwei",
        },
    )
    features = {
        "__key__": {"type": "Value", "dtype": "string"},
        "image": {"type": "Image"},
        "cls": {"type": "ClassLabel", "names": ["cat", "dog"]},
        "caption": {"type": "Value", "dtype": "string"},
        "txt": {"type": "Value", "dtype": "string"},
        "size": {"type": "Sequence", "feature": {"type": "Value", "dtype": "int32"}},
    }
    (tmp_path / "f.json").write_text(json.dumps(features))
    run("pack", "arrow", tar.parent, tmp_path / "out", "--features", tmp_path / "f.json")
    assert rows(tmp_path / "out", Features.from_json(features)) == [
        {"__key__": "a", "image": jpeg(1), "cls": 1, "caption": "one", "txt": None, "size": [3, 4]},
        {"__key__": "b", "image": jpeg(2), "cls": 0, "caption": None, "txt": "zwei", "size": None},
    ]


def test_data_of_a_tar_names_no_files(run, tmp_path: Path, schema: Path) -> None:
    secret = tmp_path / "secret.jpg"
    secret.write_bytes(jpeg(9))
    member = json.dumps({"image": str(secret), "label": "cat"}).encode()
    tar = write_tar(tmp_path / "tars" / "000.tar", {"a.json": member})
    answer = run("pack", "arrow", tar, tmp_path / "out", "--features", schema, status=1)
    assert "only lists of yours may" in answer
    assert not (tmp_path / "out").exists()


def test_bad_samples_end_the_run_or_are_skipped(run, tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "t.tar", {"a.jpg": jpeg(1), "a.n": b"1", "b.jpg": jpeg(2), "b.n": b"one"})
    features = {"image": {"type": "Image"}, "n": {"type": "Value", "dtype": "int64"}}
    (tmp_path / "f.json").write_text(json.dumps(features))
    command = "pack", "arrow", tar, tmp_path / "out", "--features", tmp_path / "f.json"
    assert "column 'n'" in run(*command, status=1)
    assert not (tmp_path / "out").exists()
    assert "1 row, 1 skipped" in run(*command, "--skip-bad")
    (line,) = (tmp_path / "out" / "skipped.jsonl").read_text().splitlines()
    assert "column 'n'" in json.loads(line)["reason"]
    assert rows(tmp_path / "out", Features.from_json(features)) == [{"image": jpeg(1), "n": 1}]


def test_a_column_that_no_sample_has_is_an_error(run, tmp_path: Path, images: Path) -> None:
    tar = write_tar(tmp_path / "t.tar", {"a.jpg": jpeg(1)})
    (tmp_path / "f.json").write_text(
        json.dumps({"image": {"type": "Image"}, "lable": {"type": "ClassLabel", "num_classes": 2}})
    )
    assert "no sample has a value for the column 'lable'" in run(
        "pack", "arrow", tar, tmp_path / "out", "--features", tmp_path / "f.json", status=1
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options",
    [
        pytest.param([], marks=pytest.mark.variant),
        pytest.param(["--compression", "zstd"], marks=pytest.mark.variant),
        ["--compression", "zstd", "--payload", "uncompressed"],
    ],
)
def test_a_tar_becomes_arrow_shards_and_a_tar_again(run, tmp_path: Path, options: list[str]) -> None:
    members = {}
    for number in range(20):
        members |= {
            f"k{number:02}.jpg": jpeg(number),
            f"k{number:02}.json": b'{"n": %d}' % number,
            f"k{number:02}.txt": b"t",
        }
    tar = write_tar(tmp_path / "tars" / "000.tar", members)
    run("convert", tar.parent, tmp_path / "table", "--to", "arrow", *options)
    features = Features({"__key__": Value("string"), "jpg": File("jpg"), "json": File("json"), "txt": File("txt")})
    assert rows(tmp_path / "table", features)[3] == {"__key__": "k03", "jpg": jpeg(3), "json": b'{"n": 3}', "txt": b"t"}
    run("convert", tmp_path / "table", tmp_path / "again", "--to", "tar")
    run("convert", tar.parent, tmp_path / "direct", "--to", "tar")
    assert (tmp_path / "again" / "000000.tar").read_bytes() == (tmp_path / "direct" / "000000.tar").read_bytes()


def test_extensions_with_dots_are_columns_of_lance(run, tmp_path: Path) -> None:
    members = {}
    for key in "ab":
        members |= {
            f"{key}.flac": b"fLaC" + key.encode(),
            f"{key}.seg_json": b"not that of",
            f"{key}.seg.json": b'{"key": "%s"}' % key.encode(),
            f"{key}.json": b'{"c_d_npy": "a member", "c.d.npy": 1}',
            f"{key}.c.d.npy": key.encode(),
            f"{key}.c_d.npy": b"2" + key.encode(),
        }
    tar = write_tar(tmp_path / "tars" / "000.tar", members)
    run("convert", tar.parent, tmp_path / "table", "--to", "lance")
    assert lance.dataset(str(tmp_path / "table")).to_table().to_pylist()[0] == {
        "__key__": "a",
        "flac": members["a.flac"],
        "seg_json": members["a.seg_json"],
        "seg_json_2": members["a.seg.json"],
        "json": members["a.json"],
        "c_d_npy": members["a.c.d.npy"],
        "c_d_npy_2": members["a.c_d.npy"],
    }
    run("convert", tmp_path / "table", tmp_path / "again", "--to", "tar")
    run("convert", tar.parent, tmp_path / "direct", "--to", "tar")
    assert (tmp_path / "again" / "000000.tar").read_bytes() == (tmp_path / "direct" / "000000.tar").read_bytes()


def test_columns_with_dots_of_a_table_are_refused_for_lance(run, tmp_path: Path) -> None:
    table = pa.table({"a.b": [1]})
    with pa.ipc.new_file(str(tmp_path / "in.arrow"), table.schema) as file:
        file.write_table(table)
    done = run("convert", tmp_path / "in.arrow", tmp_path / "out", "--to", "lance", status=2)
    assert done == "touchfs: Lance allows no dot in the name of a column: rename 'a.b'\n"
    assert [path.name for path in tmp_path.iterdir()] == ["in.arrow"]


def everything_shown(rows: int) -> pa.Table:
    """Columns of many types, with pictures that Pillow opens."""
    images = pa.array([None if n % 7 == 3 else jpeg(n % 200) for n in range(rows)], pa.binary())
    return everything(rows).set_column(0, "image", images).replace_schema_metadata({"huggingface": "{}"})


@pytest.mark.parametrize(
    "options",
    [
        pytest.param([], marks=pytest.mark.variant),
        pytest.param(["--compression", "zstd"], marks=pytest.mark.variant),
        ["--compression", "lz4", "--payload", "uncompressed"],
        ["--shard-size", "20000", "--batch-size", "10"],
    ],
)
def test_a_table_is_copied_with_its_types(run, tmp_path: Path, options: list[str]) -> None:
    table = everything_shown(100)
    with pa.ipc.new_stream(str(tmp_path / "hf.arrow"), table.schema) as stream:
        stream.write_table(table, max_chunksize=30)
    run("convert", tmp_path / "hf.arrow", tmp_path / "out", "--to", "arrow", *options)
    found = [pa.ipc.open_file(path).read_all() for path in sorted((tmp_path / "out").glob("shard-*.arrow"))]
    assert pa.concat_tables(found).equals(table, check_metadata=True)
    assert (len(found) > 1) == ("--shard-size" in options)
    assert max(batch.num_rows for each in found for batch in each.to_batches()) == (
        10 if "--batch-size" in options else 30
    )


def test_an_uncompressed_payload_is_in_the_file_as_it_is(run, tmp_path: Path) -> None:
    data = bytes(200_000)
    table = pa.table({"data": pa.array([data], pa.large_binary()), "text": ["t" * 100_000]})
    with pa.ipc.new_file(
        str(tmp_path / "in.arrow"), table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
    ) as file:
        file.write_table(table)
    run(
        "convert",
        tmp_path / "in.arrow",
        tmp_path / "out",
        "--to",
        "arrow",
        "--compression",
        "zstd",
        "--payload",
        "uncompressed",
    )
    stored = (tmp_path / "out" / "shard-00000.arrow").read_bytes()
    assert data in stored and b"t" * 1000 not in stored
    run("convert", tmp_path / "in.arrow", tmp_path / "plain", "--to", "arrow")
    assert b"t" * 100_000 in (tmp_path / "plain" / "shard-00000.arrow").read_bytes()


def test_a_table_becomes_a_lance_dataset(run, tmp_path: Path) -> None:
    table = everything_shown(50).drop_columns(["nothing", "map"])
    with pa.ipc.new_file(str(tmp_path / "in.arrow"), table.schema) as file:
        file.write_table(table, max_chunksize=20)
    run("convert", tmp_path / "in.arrow", tmp_path / "out.lance", "--to", "lance")
    assert lance.dataset(str(tmp_path / "out.lance")).to_table().to_pylist() == table.to_pylist()


def arrow_rows(table: Path) -> pa.Table:
    return pa.concat_tables(pa.ipc.open_file(path).read_all() for path in sorted(table.glob("shard-*.arrow")))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param([], marks=pytest.mark.variant),
        pytest.param(["--compression", "zstd"], marks=pytest.mark.variant),
        ["--shard-size", "9000", "--batch-size", "7"],
    ],
)
def test_a_lance_dataset_is_copied_with_its_types(run, tmp_path: Path, options: list[str]) -> None:
    table = everything_shown(50).drop_columns(["nothing", "map"])
    path = tmp_path / "in.lance"
    lance.write_dataset(table, str(path), max_rows_per_file=20)
    lance.dataset(str(path)).delete("text like 'text 3%'")
    left = [n for n, text in enumerate(table["text"].to_pylist()) if not text.startswith("text 3")]
    run("convert", path, tmp_path / "out", "--to", "arrow", *options)
    found = arrow_rows(tmp_path / "out")
    assert found.equals(table.take(left), check_metadata=True) and len(left) < 50
    if "--batch-size" in options:
        assert [len(batch) for batch in found["text"].chunks][:2] == [7, 7]
    run("convert", tmp_path / "out", tmp_path / "again.lance", "--to", "lance")
    run("convert", tmp_path / "again.lance", tmp_path / "again", "--to", "arrow")
    assert arrow_rows(tmp_path / "again").equals(found, check_metadata=True)


def test_a_cache_in_lance_keeps_its_features(run, tmp_path: Path, images: Path, schema: Path) -> None:
    run("pack", "arrow", images, tmp_path / "arrow", "--features", schema)
    run("pack", "lance", images, tmp_path / "lance", "--features", schema)
    run("convert", tmp_path / "lance", tmp_path / "copy", "--to", "arrow")
    assert rows(tmp_path / "copy", FEATURES) == rows(tmp_path / "lance", FEATURES)
    for name in ("_metadata.json", "shard-00000.arrow"):
        assert (tmp_path / "copy" / name).read_bytes() == (tmp_path / "arrow" / name).read_bytes()


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("2.1", "arrow"),
        ("2.2", "lance"),
        pytest.param("2.2", "arrow", marks=pytest.mark.variant),
        pytest.param("2.1", "lance", marks=pytest.mark.variant),
    ],
)
def test_blobs_become_bytes(run, tmp_path: Path, version: str, kind: str) -> None:
    blobs = [b"", b"small", None, bytes(range(256)) * 1000, b"end"]
    if version == "2.2":
        table = pa.table([lance.blob_array(blobs)], schema=pa.schema([lance.blob_field("b")]))
    else:
        field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
        table = pa.table([pa.array(blobs, pa.large_binary())], schema=pa.schema([field]))
    lance.write_dataset(table, str(tmp_path / "in.lance"), data_storage_version=version)
    run("convert", tmp_path / "in.lance", tmp_path / "out", "--to", kind)
    read = arrow_rows(tmp_path / "out") if kind == "arrow" else lance.dataset(str(tmp_path / "out")).to_table()
    assert read.schema == pa.schema([("b", pa.large_binary())]) and read["b"].to_pylist() == blobs


def test_a_blob_outside_of_its_dataset_is_not_copied(run, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    named = [lance.Blob.from_uri((tmp_path / "secret").as_uri()), b"own"]
    table = pa.table([lance.blob_array(named)], schema=pa.schema([lance.blob_field("b")]))
    path = tmp_path / "in.lance"
    lance.write_dataset(table, str(path), data_storage_version="2.2", allow_external_blob_outside_bases=True)
    assert "lies outside of the dataset" in run("convert", path, tmp_path / "out", "--to", "arrow", status=1)
    assert not (tmp_path / "out").exists()


def test_lance_datasets_become_one_table_if_their_columns_are_the_same(run, tmp_path: Path) -> None:
    for name, column in (("a", "x"), ("b", "x"), ("c", "y")):
        lance.write_dataset(pa.table({column: [name]}), str(tmp_path / "in" / f"{name}.lance"))
    assert "its columns are not those of" in run(
        "convert", tmp_path / "in", tmp_path / "out", "--to", "arrow", status=1
    )
    assert not (tmp_path / "out").exists()
    shutil.rmtree(tmp_path / "in" / "c.lance")
    run("convert", tmp_path / "in", tmp_path / "out", "--to", "arrow")
    assert arrow_rows(tmp_path / "out").to_pydict() == {"x": ["a", "b"]}


def test_tables_with_other_columns_are_not_mixed(run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, column in (("a", "x"), ("b", "y")):
        with pa.ipc.new_file(str(tmp_path / "in" / f"{name}.arrow"), pa.schema([(column, pa.int8())])) as file:
            file.write_table(pa.table({column: pa.array([1], pa.int8())}))
    assert "its columns are not those of" in run(
        "convert", tmp_path / "in", tmp_path / "out", "--to", "arrow", status=1
    )
    assert not (tmp_path / "out").exists()


def test_videos_beside_a_table_come_along(run, tmp_path: Path) -> None:
    video = tmp_path / "videos" / "a.mp4"
    video.parent.mkdir()
    video.write_bytes(b"\0\0\0\x18ftypisom" + bytes(100))
    (tmp_path / "f.json").write_text(json.dumps({"video": {"type": "Video", "storage": "path"}}))
    run("pack", "arrow", video.parent, tmp_path / "table", "--features", tmp_path / "f.json")
    run("convert", tmp_path / "table", tmp_path / "copy", "--to", "arrow", "--compression", "zstd")
    names = [path.name for path in (tmp_path / "copy" / "_assets" / "video").iterdir()]
    assert names == [path.name for path in (tmp_path / "table" / "_assets" / "video").iterdir()] and len(names) == 1
    assert (tmp_path / "copy" / "_assets" / "video" / names[0]).read_bytes() == video.read_bytes()


def test_options_of_others_are_refused(run, tmp_path: Path, images: Path, schema: Path) -> None:
    assert "No such option '--compression'" in run(
        "pack", "lance", images, tmp_path / "out", "--features", schema, "--compression", "zstd", status=2
    )
    assert "cannot be used with lance" in run(
        "convert", images, tmp_path / "out", "--to", "lance", "--compression", "zstd", status=2
    )
    assert "--num-utt-per-shard cannot be used" in run(
        "convert", images, tmp_path / "out", "--to", "arrow", "--num-utt-per-shard", 3, status=2
    )
    assert "--compression cannot be used with --to tar" in run(
        "convert", images, tmp_path / "out", "--to", "tar", "--compression", "zstd", status=2
    )
    (tmp_path / "out").mkdir()
    assert "already exists" in run("pack", "arrow", images, tmp_path / "out", "--features", schema, status=2)
