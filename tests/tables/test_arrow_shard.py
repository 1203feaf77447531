"""Shards that are Arrow files: the cells of rows are ranges of the file, and all else is in their JSON."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from arrow_tables import FORMATS, JPG, PNG, pictures, write_arrow, write_cache
from conformance import Expected, check_shard
from shown import files

from touchfs.catalog.catalog import Catalog
from touchfs.core.errors import ArgumentTypeError, FormatError, UsageError
from touchfs.features import Array3D, ClassLabel, Features, Video
from touchfs.features.file import EXTENSION_KEY
from touchfs.indexing import open_dataset
from touchfs.indexing.catalogs import make_catalog
from touchfs.limits import LIMITS
from touchfs.registry.contents import FieldContents
from touchfs.registry.find import find_shards
from touchfs.registry.open import known_shard, open_shard
from touchfs.shard.options import Options
from touchfs.shard.sample import StoredSample
from touchfs.source.data import DATA

OPTIONS = Options()


def streamed(path: Path, options: Options = OPTIONS) -> list[tuple[str, dict[str, bytes]]]:
    """The samples of a shard with their files, as a stream has them."""
    shard = open_shard(str(path), options)
    contents = FieldContents(known_shard(str(path), shard.files), LIMITS)

    def data(sample: StoredSample) -> dict[str, bytes]:
        found = {field.extension: contents.content(field) for field in sample.fields.values()}
        return {str(extension): bytes(content.read(0, content.size)) for extension, content in found.items()}

    return [(sample.key, data(sample)) for sample in shard]


def indexed(path: Path, options: Options = OPTIONS, *, full: bool = False) -> tuple[dict[str, bytes], str]:
    """The files of a shard as its catalog has them, and the report."""
    catalog = str(path.parent / ".catalog.arrow")
    facts = make_catalog(str(path), catalog, options, full=full)
    return files(Catalog(catalog), str(path)), facts.report


def test_cells_are_ranges_of_the_file(tmp_path):
    path = write_arrow(tmp_path / "x.arrow", pictures())
    shard = open_shard(str(path))
    for sample, cell in zip(shard, pictures()["image"].to_pylist(), strict=True):
        field = sample.fields.get("image")
        data = None if field is None else path.read_bytes()[field.offset : field.offset + field.size]
        assert data == (None if cell is None else cell["bytes"])
        assert field is None or str(field.form) == "bytes"


def test_samples_are_the_same_in_any_order(tmp_path):
    table = pa.table({"a": [b"1", b"22", b"333", b""], "b": [b"x", b"", b"y", b"z"]})
    path = write_arrow(tmp_path / "x.arrow", table)
    rows = zip(table["a"].to_pylist(), table["b"].to_pylist(), strict=True)
    expected = [Expected(f"{i:08d}", {"a": a, "b": b}) for i, (a, b) in enumerate(rows)]
    check_shard(lambda: open_shard(str(path)), expected)


FLAT = {
    "00000000.jpeg": JPG,
    "00000001.jpg": PNG,  # by the first cell of the column
    "00000004.gif": b"",
    "00000005.jpg": PNG,
    "00000006.jpg": JPG,
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_one_column_with_files_is_flat(tmp_path, form, rows):
    shown, report = indexed(write_arrow(tmp_path / "x.arrow", pictures(), form, rows))
    assert not report
    texts = {name: shown.pop(name) for name in list(shown) if name.endswith(".json")}
    assert shown == FLAT
    paths = ["a.jpeg", None, None, "lost.png", "empty.gif", "no extension", "x/y.z/../q.JPG"]
    for i, (label, text) in enumerate(
        zip(pictures()["label"].to_pylist(), pictures()["text"].to_pylist(), strict=True)
    ):
        image = None if i == 2 else {"path": paths[i]}
        assert json.loads(texts[f"{i:08d}.json"]) == {"image": image, "label": label, "text": text}


@pytest.mark.parametrize("form", FORMATS)
def test_several_columns_with_files_are_nested(tmp_path, form):
    vectors = pa.array([[1, 2], [3, None], None, [5, 6]] + [[0, 0]] * 3, pa.list_(pa.float32(), 2))
    matrices = pa.array([[[i, 1], [2, 3], [4, 5]] for i in range(7)], pa.list_(pa.list_(pa.int16(), 2), 3))
    table = pictures(("vector", vectors), ("matrix", matrices), ("row", pa.array([b"r", *[None] * 6])))
    shown, report = indexed(write_arrow(tmp_path / "x.arrow", table, form))
    assert not report
    assert shown["00000000/image.jpeg"] == JPG and shown["00000000/row~2.bin"] == b"r"
    (tmp_path / "v.npy").write_bytes(shown["00000003/vector.npy"])
    (tmp_path / "m.npy").write_bytes(shown["00000006/matrix.npy"])
    assert np.load(tmp_path / "v.npy").tolist() == [5, 6] and np.load(tmp_path / "v.npy").dtype == np.float32
    assert np.load(tmp_path / "m.npy").tolist() == [[6, 1], [2, 3], [4, 5]]
    # A list with some nulls is no array: it is in the JSON.
    assert "00000001/vector.npy" not in shown and "00000002/vector.npy" not in shown
    assert json.loads(shown["00000001/row.json"])["vector"] == [3, None]
    assert "vector" not in json.loads(shown["00000000/row.json"])
    flat, _ = indexed(tmp_path / "x.arrow", Options(layout="flat"))
    assert flat["00000000.image.jpeg"] == JPG and flat["00000003.vector.npy"] == shown["00000003/vector.npy"]
    assert flat["00000000.json"] == shown["00000000/row.json"] and len(flat) == len(shown)


@pytest.mark.parametrize("layout", ["flat", "nested"])
@pytest.mark.parametrize("form", FORMATS)
def test_a_stream_shows_what_the_catalog_shows(tmp_path, form, layout):
    table = pictures(("other", pa.array([b"1", None, b"3", b"", b"5", b"6", b"7"])))
    path = write_arrow(tmp_path / "x.arrow", table, form)
    options = Options(layout=layout)
    shown, _ = indexed(path, options)
    between = "/" if layout == "nested" else "."
    assert shown == {
        f"{key}{between}{name}": data for key, found in streamed(path, options) for name, data in found.items()
    }


def test_an_extension_that_is_no_name_is_not_used(tmp_path):
    for extension in (b"\xff", b"..", b"a/b", b"a\0", b"a\n"):
        field = pa.field("image", pa.binary(), metadata={EXTENSION_KEY: extension})
        path = tmp_path / "x.arrow"
        with pa.ipc.new_file(path, pa.schema([field])) as writer:
            writer.write_batch(pa.record_batch([pa.array([JPG])], schema=pa.schema([field])))
        assert [*indexed(path)[0]] == ["00000000.jpg"]


def test_keys(tmp_path):
    keys = ["k", "a/b", "k", None, "ü", "", "x.y"]
    path = write_arrow(tmp_path / "x.arrow", pictures(("id", pa.array(keys)), ("n", pa.array(range(7)))))
    assert [key for key, _ in streamed(path)] == ["k", "a/b", "k", "00000003", "ü", "00000005", "x.y"]
    shown, _ = indexed(path)
    assert {"k.jpeg", "a/b.jpg", "k~2.json", "00000003.json", "ü.gif", "00000005.jpg", "x.y.jpg"} < shown.keys()
    shown, _ = indexed(path, Options(layout="nested"))
    assert {"k/image.jpeg", "a/b/image.jpg", "k~2/row.json", "00000003/row.json", "x.y/image.jpg"} < shown.keys()
    assert [key for key, _ in streamed(path, Options(key_column="n"))] == list(map(str, range(7)))
    for name, problem in (("x", "has no column 'x' for --key"), ("image", "cannot have keys")):
        _, report = indexed(path, Options(key_column=name))
        assert problem in report
    with pytest.raises(ArgumentTypeError, match=r"given as text, such as json\.dumps.*, not as Features$"):
        Options(features=Features(label=ClassLabel(names=["a", "b"])))
    with pytest.raises(UsageError, match="no layout"):
        Options(layout="deep")


def test_full_finds_extensions_of_all_cells_and_sizes_of_all_rows(tmp_path):
    path = write_arrow(tmp_path / "x.arrow", pa.table({"x": [PNG, JPG, b"?", None], "n": [1, 22, 333, 4]}))
    shown, _ = indexed(path)
    assert {"00000000.png", "00000001.png", "00000002.png"} < shown.keys()
    shown, _ = indexed(path, full=True)
    assert shown.keys() == {f"0000000{i}.{end}" for i, end in enumerate(["png", "jpg", "bin"])} | {
        f"0000000{i}.json" for i in range(4)
    }
    table = Catalog(str(tmp_path / ".catalog.arrow")).tables["shards"]
    assert [table.size[row] for row in table.files(1)] == [len(JPG), len(b'{"n": 22}\n')]
    dataset = open_dataset(str(path))
    assert dataset.shards[0].unmeasured == 4 and open_dataset(str(path), full=True).shards[0].unmeasured == 0


def test_features_say_what_arrays_are(tmp_path):
    data = [np.arange(12, dtype=np.uint8).tobytes(), b"too short", None]
    path = write_arrow(tmp_path / "x.arrow", pa.table({"cube": pa.array(data, pa.large_binary()), "n": [1, 2, 3]}))
    features = Features(cube=Array3D((2, 3, 2)), label=ClassLabel(names=["a", "b"]))
    shown, report = indexed(path, Options(features=json.dumps(features.to_json())))
    (tmp_path / "cube.npy").write_bytes(shown["00000000.npy"])
    assert (np.load(tmp_path / "cube.npy") == np.arange(12).reshape(2, 3, 2)).all()
    assert shown["00000001.bin"] == b"too short" and "not as many bytes as its shape says" in report
    _, report = indexed(path, Options(features='{"cube": 7}'))
    assert "cannot be served" in report


def test_caches_of_shards(tmp_path):
    tables = [pictures(), pictures().slice(2)]
    cache = write_cache(tmp_path / "cache", tables)
    (cache / "stray.arrow").write_bytes(b"of nobody")
    assert find_shards(str(cache)) == [str(cache / "shard-00000.arrow"), str(cache / "shard-00001.arrow")]
    dataset = open_dataset(str(cache))
    assert [(shard.name, shard.samples, shard.report) for shard in dataset.shards] == [
        ("shard-00000", 7, ""),
        ("shard-00001", 5, ""),
    ]
    assert find_shards(str(tmp_path)) == find_shards(str(cache))
    assert open_dataset(str(write_cache(tmp_path / "empty", []))).samples == 0


def test_a_cache_that_does_not_fit_its_files_says_so(tmp_path):
    tables = [pictures(), pictures().slice(2)]
    dataset = open_dataset(str(write_cache(tmp_path / "counts", tables, [6, 6])))
    assert "it has 7 rows, and _metadata.json says 6" in dataset.shards[0].report
    assert "it has 5 rows, and _metadata.json says 6" in dataset.shards[1].report
    assert dataset.samples == 12
    cache = write_cache(tmp_path / "missing", tables)
    (cache / "shard-00000.arrow").unlink()
    dataset = open_dataset(str(cache))
    assert "no such shard" in dataset.shards[0].report and dataset.samples == 5
    dataset = open_dataset(str(write_cache(tmp_path / "version", tables, cache_format_version=2)))
    assert all("Unsupported cache format version 2 (expected 1)" in shard.report for shard in dataset.shards)
    for name in ("../x.arrow", "/etc/x.arrow", "a/b.arrow"):
        cache = write_cache(tmp_path / "planted", [pictures()], shard_filenames=[name])
        assert find_shards(str(cache)) == [str(cache / "shard-00000.arrow")]
        assert "bare name" in open_dataset(str(cache)).shards[0].report


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_that_is_cut_anywhere_is_an_error(tmp_path, form):
    """Except a stream without its end mark: it may be whole."""
    whole = write_arrow(tmp_path / "x.arrow", pictures(), form).read_bytes()
    for size in range(0, len(whole), 97):
        path = tmp_path / "cut.arrow"
        path.write_bytes(whole[:size])
        try:
            rows = len(open_shard(str(path)))
        except FormatError:
            continue
        assert form.startswith("stream") and rows in (0, 3, 6, 7)


def test_videos_beside_a_cache(tmp_path):
    video = tmp_path / "clip.mp4"
    video.write_bytes(b"\0\0\0 ftypisom" + bytes(500))
    cache = tmp_path / "cache"
    features = Features(video=Video(storage="path"))
    cells = [features["video"].encode(str(video), cache_dir=cache), None]
    name = cells[0]["path"]
    kind = features["video"].to_arrow_type()

    def table(*values):
        return pa.table({"video": pa.array(values, kind), "n": list(range(len(values)))})

    write_cache(cache, [table(*cells)])
    shown, report = indexed(cache / "shard-00000.arrow")
    assert not report and shown["00000000.mp4"] == video.read_bytes() and "00000001.mp4" not in shown
    assert json.loads(shown["00000000.json"])["video"]["path"] == name
    inline = Video(storage="bytes").encode(str(video))
    write_cache(tmp_path / "inline", [table(inline)])
    shown, report = indexed(tmp_path / "inline" / "shard-00000.arrow")
    assert not report and shown["00000000.mp4"] == video.read_bytes()
    outside = tmp_path / "secret.mp4"
    outside.write_bytes(b"secret")
    (cache / "_assets" / "video" / "link.mp4").symlink_to(outside)
    planted = [str(outside), "../../../secret.mp4", "link.mp4", "gone.mp4", "..", ""]
    write_cache(cache, [table(*({**cells[0], "path": path} for path in planted))])
    shown, report = indexed(cache / "shard-00000.arrow")
    assert not [path for path in shown if path.endswith(".mp4")]
    assert "6 of the 6 samples" in report and all(repr(path) in report for path in planted)


def test_files_of_hugging_face(tmp_path, monkeypatch):
    """The caches of `datasets` itself: streams, with names of labels in the metadata of the schema."""
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    import datasets

    (tmp_path / "a.png").write_bytes(PNG)
    features = datasets.Features(
        {
            "image": datasets.Image(decode=False),
            "label": datasets.ClassLabel(names=["cat", "dog"]),
            "words": datasets.Sequence(datasets.Value("string")),
        }
    )
    rows = [{"image": {"bytes": JPG, "path": None}, "label": i % 2, "words": ["x"] * i} for i in range(5)]
    datasets.Dataset.from_list(rows, features=features).save_to_disk(str(tmp_path / "saved"))
    dataset = open_dataset(str(tmp_path / "saved"))
    assert [(shard.name, shard.samples, shard.report) for shard in dataset.shards] == [("data-00000-of-00001", 5, "")]
    shown, _ = indexed(Path(dataset.shards[0].path))
    assert shown["00000003.jpg"] == JPG
    assert json.loads(shown["00000003.json"]) == {"image": {"path": None}, "label": 1, "words": ["x"] * 3}

    def generate():
        yield from rows

    made = datasets.Dataset.from_generator(generate, features=features, cache_dir=str(tmp_path / "cache"))
    (cached,) = [Path(file["filename"]) for file in made.cache_files]
    assert cached.read_bytes()[:6] != b"ARROW1"  # the stream format
    shown, report = indexed(cached)
    assert not report and shown["00000004.jpg"] == JPG and json.loads(shown["00000004.json"])["words"] == ["x"] * 4


def test_feather(tmp_path):
    from pyarrow import feather

    for codec in ("uncompressed", "lz4", "zstd"):
        feather.write_feather(pictures(), str(tmp_path / "x.feather"), compression=codec)
        shown, report = indexed(tmp_path / "x.feather")
        assert not report and {name: data for name, data in shown.items() if not name.endswith(".json")} == FLAT
    (tmp_path / "x.feather").write_bytes(b"FEA1" + bytes(100) + b"FEA1")  # version 1 is another format
    _, report = indexed(tmp_path / "x.feather")
    assert "is a Feather file of version 1" in report


def test_a_table_without_pyarrow_still_has_its_cells(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    path = tmp_path / "x.arrow"
    monkeypatch.undo()
    write_arrow(path, pa.table({"x": [PNG, JPG], "n": [1, 2]}))
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    shard = open_shard(str(path))
    field = shard.sample(1).fields["x"]
    assert bytes(DATA.open(os.fspath(path)).read(field.offset, field.size)) == JPG


def test_keys_of_a_table_need_pyarrow_and_the_report_says_so(tmp_path, monkeypatch):
    write_arrow(tmp_path / "x.arrow", pa.table({"id": ["a", "b"], "n": [1, 2]}))
    for name in [name for name in sys.modules if name.startswith(("touchfs.tables.values", "pyarrow"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (shard,) = open_dataset(str(tmp_path / "x.arrow"), in_memory=True).shards
    assert "need pyarrow: pip install 'touchfs-shards[arrow]'" in shard.report
