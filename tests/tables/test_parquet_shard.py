"""Shards that are Parquet files: cells of rows are files, and all else is in their JSON, whatever wrote them."""

import datetime
import decimal
import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrow_tables import JPG, PNG, pictures
from parquet_tables import WAYS, write_parquet
from shown import contents as contents_of
from shown import files

from touchfs.catalog.catalog import Catalog
from touchfs.core.errors import FormatError
from touchfs.core.extent import Extent
from touchfs.features import Array3D, ClassLabel, Features
from touchfs.indexing import open_dataset
from touchfs.indexing.catalogs import make_catalog
from touchfs.limits import LIMITS
from touchfs.registry.contents import FieldContents
from touchfs.registry.find import find_shards
from touchfs.registry.forms import parse_form
from touchfs.registry.open import known_shard, open_shard, open_source
from touchfs.shard.options import Options
from touchfs.source.data import DATA

OPTIONS = Options()


def streamed(path: Path, options: Options = OPTIONS) -> dict[str, bytes]:
    """The files of a shard as a stream has them."""
    shard = open_shard(str(path), options)
    contents = FieldContents(known_shard(str(path), shard.files), LIMITS)
    between = "/" if shard.is_nested else "."
    found = {}
    for sample in shard:
        for field in sample.fields.values():
            content = contents.content(field)
            found[f"{sample.key}{between}{field.extension}"] = bytes(content.read(0, content.size))
    return found


def indexed(path: Path, options: Options = OPTIONS, *, full: bool = False, view: str = "shards") -> dict[str, bytes]:
    """The files of a shard as its catalog has them. Nothing may be wrong with it."""
    catalog = str(path.parent / ".catalog.arrow")
    report = make_catalog(str(path), catalog, options, full=full).report
    assert not report
    return files(Catalog(catalog), str(path), view)


FLAT = {
    "00000000.jpeg": JPG,
    "00000001.jpg": PNG,  # by the first cell of the column
    "00000004.gif": b"",
    "00000005.jpg": PNG,
    "00000006.jpg": JPG,
}
PATHS = ["a.jpeg", None, None, "lost.png", "empty.gif", "no extension", "x/y.z/../q.JPG"]


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_images_of_hugging_face_are_files(tmp_path, way, rows, full):
    shown = indexed(write_parquet(tmp_path / "x.parquet", pictures(), way, rows), full=full)
    texts = {name: shown.pop(name) for name in list(shown) if name.endswith(".json")}
    expected = (
        FLAT if not full else {**{k: v for k, v in FLAT.items() if v != PNG}, "00000001.png": PNG, "00000005.png": PNG}
    )
    assert shown == expected
    for i, row in enumerate(pictures().to_pylist()):
        image = None if i == 2 else {"path": PATHS[i]}
        assert json.loads(texts[f"{i:08d}.json"]) == {"image": image, "label": row["label"], "text": row["text"]}


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("layout", ["flat", "nested"])
def test_a_stream_shows_what_the_catalog_shows(tmp_path, way, layout, full):
    table = pictures(("other", pa.array([PNG, None, b"3", b"", b"5", b"6", b"7"])))
    path = write_parquet(tmp_path / "x.parquet", table, way)
    options = Options(layout=layout)
    shown = indexed(path, options, full=full)
    if full:
        assert sorted(shown.values()) == sorted(streamed(path, options).values())
    else:
        assert shown == streamed(path, options)


@pytest.mark.parametrize("way", WAYS)
def test_samples_are_the_same_in_any_order(tmp_path, way):
    table = pa.table({"a": [b"1", b"22", b"333", b""], "b": [b"x", b"", b"y", b"z"]})
    path = write_parquet(tmp_path / "x.parquet", table, way, 2)
    shard = open_shard(str(path))
    assert [sample.key for sample in shard] == [f"{i:08d}" for i in range(4)]
    for i in random.Random(0).sample(range(4), 4):
        assert shard.sample(i) == [*shard][i]
    assert streamed(path)["00000002/a.bin"] == b"333"


@pytest.mark.parametrize("way", ["snappy", "plain", "zstd"])
def test_lists_of_numbers_are_arrays(tmp_path, way):
    vectors = pa.array([[1, 2], [3, None], None, [5, 6]] + [[0, 0]] * 3, pa.list_(pa.float32(), 2))
    matrices = pa.array([[[i, 1], [2, 3], [4, 5]] for i in range(7)], pa.list_(pa.list_(pa.int16(), 2), 3))
    table = pictures(("vector", vectors), ("matrix", matrices), ("row", pa.array([b"r", *[None] * 6])))
    path = write_parquet(tmp_path / "x.parquet", table, way)
    for full in (False, True):
        shown = indexed(path, full=full)
        assert shown["00000000/image.jpeg"] == JPG and shown["00000000/row~2.bin"] == b"r"
        (tmp_path / "v.npy").write_bytes(shown["00000003/vector.npy"])
        (tmp_path / "m.npy").write_bytes(shown["00000006/matrix.npy"])
        assert np.load(tmp_path / "v.npy").tolist() == [5, 6] and np.load(tmp_path / "v.npy").dtype == np.float32
        assert np.load(tmp_path / "m.npy").tolist() == [[6, 1], [2, 3], [4, 5]]
        assert "00000001/vector.npy" not in shown and "00000002/vector.npy" not in shown
        assert json.loads(shown["00000001/row.json"])["vector"] == [3, None]
        assert "vector" not in json.loads(shown["00000000/row.json"])


@pytest.mark.parametrize("way", WAYS)
def test_values_of_all_types_are_in_the_json(tmp_path, way):
    moment = datetime.datetime(2024, 5, 6, 7, 8, 9, 123000)
    table = pa.table(
        {
            "image": [PNG, PNG],
            "decimal": pa.array([decimal.Decimal("12345678901234567890.01"), None], pa.decimal128(30, 2)),
            "time": pa.array([moment, None], pa.timestamp("ms")),
            "zoned": pa.array([moment, moment], pa.timestamp("us", tz="Europe/Berlin")),
            "day": pa.array([moment.date(), None]),
            "structs": pa.array([[{"a": 1, "b": "x"}, {"a": None, "b": None}, None], []]),
            "deep": pa.array([[[1], None, [2, 3]], None], pa.list_(pa.list_(pa.int8()))),
            "map": pa.array([[("k", 1), ("l", None)], None], pa.map_(pa.string(), pa.int32())),
            "struct": pa.array([{"x": {"y": [b"\0\1"]}}, None]),
            "float": [1.5, float("nan")],
            "flag": [True, None],
            "nothing": pa.nulls(2),
        }
    )
    shown = indexed(write_parquet(tmp_path / "x.parquet", table, way))
    first, second = (json.loads(shown[f"0000000{i}.json"]) for i in range(2))
    assert first["decimal"] == "12345678901234567890.01" and first["day"] == "2024-05-06"
    assert first["time"].startswith("2024-05-06T07:08:09.123") and first["zoned"].endswith("Z")
    assert first["structs"] == [{"a": 1, "b": "x"}, {"a": None, "b": None}, None] and second["structs"] == []
    assert first["deep"] == [[1], None, [2, 3]] and first["map"] == [["k", 1], ["l", None]]
    assert first["struct"] == {"x": {"y": ["AAE="]}} and second["struct"] is None
    assert second["float"] == "NaN" and first["flag"] is True and first["nothing"] is None
    assert [second[name] for name in ("decimal", "time", "day", "deep", "map", "flag")] == [None] * 6


def test_keys(tmp_path):
    keys = ["k", "a/b", "k", None, "ü", "", "x.y"]
    table = pictures(("id", pa.array(keys)), ("n", pa.array(range(7))))
    path = write_parquet(tmp_path / "x.parquet", table)
    assert [sample.key for sample in open_shard(str(path))] == ["k", "a/b", "k", "00000003", "ü", "00000005", "x.y"]
    shown = indexed(path)
    assert {"k.jpeg", "a/b.jpg", "k~2.json", "00000003.json", "ü.gif", "00000005.jpg", "x.y.jpg"} < shown.keys()
    assert [sample.key for sample in open_shard(str(path), Options(key_column="n"))] == list(map(str, range(7)))
    for name, problem in (("x", "has no column 'x' for --key"), ("image", "cannot have keys")):
        catalog = make_catalog(str(path), str(tmp_path / ".catalog.arrow"), Options(key_column=name), full=False)
        assert problem in catalog.report


@pytest.mark.parametrize("way", ["snappy", "plain"])
@pytest.mark.parametrize("rows", [0, 1])
def test_files_without_rows(tmp_path, rows, way):
    """Without a row group, and with an empty one, which has no pages at all if there is no dictionary."""
    path = tmp_path / "x.parquet"
    with pq.ParquetWriter(path, pictures().schema, **WAYS[way]) as writer:
        for _ in range(rows):
            writer.write_table(pictures().slice(0, 0))
    assert len(open_shard(str(path))) == 0 and indexed(path) == {}
    assert open_dataset(str(path)).samples == 0


@pytest.mark.parametrize("way", ["snappy", "plain"])
def test_an_empty_row_group_between_others(tmp_path, way):
    path = tmp_path / "x.parquet"
    with pq.ParquetWriter(path, pictures().schema, **WAYS[way]) as writer:
        for table in (pictures(), pictures().slice(0, 0), pictures().slice(5)):
            writer.write_table(table)
    shown = indexed(path)
    assert shown["00000007.jpg"] == PNG and shown["00000008.jpg"] == JPG and "00000009.json" not in shown


def test_full_finds_ranges_extensions_and_sizes(tmp_path):
    path = write_parquet(tmp_path / "x.parquet", pa.table({"x": [PNG, JPG, b"?", None], "n": [1, 22, 333, 4]}), "plain")
    assert {"00000000.png", "00000001.png", "00000002.png"} < indexed(path).keys()
    shown = indexed(path, full=True)
    assert shown.keys() == {f"0000000{i}.{end}" for i, end in enumerate(["png", "jpg", "bin"])} | {
        f"0000000{i}.json" for i in range(4)
    }
    catalog = Catalog(str(tmp_path / ".catalog.arrow"))
    table = catalog.tables["shards"]
    assert [table.size[row] for row in table.files(1)] == [len(JPG), len(b'{"n": 22}\n')]
    (row,) = [row for row in table.files(1) if table.size[row] == len(JPG)]
    offset, length = table.offset[row], table.length[row]
    assert catalog.kinds[table.kind[row] - 1].form == "bytes"
    assert path.read_bytes()[offset : offset + length] == JPG
    assert open_dataset(str(path)).shards[0].unmeasured == 4
    assert open_dataset(str(path), full=True).shards[0].unmeasured == 0


def test_features_say_what_arrays_and_labels_are(tmp_path):
    data = [np.arange(12, dtype=np.uint8).tobytes(), b"too short", None]
    path = write_parquet(tmp_path / "x.parquet", pa.table({"cube": pa.array(data), "label": [1, 0, 1]}))
    features = Features(cube=Array3D((2, 3, 2)), label=ClassLabel(names=["a", "b"]))
    options = Options(features=json.dumps(features.to_json()))
    facts = make_catalog(str(path), str(tmp_path / ".catalog.arrow"), options, full=True)
    assert "not as many bytes as its shape says" in facts.report
    assert facts.labels is not None and facts.labels.names == ("a", "b")
    shown = files(Catalog(str(tmp_path / ".catalog.arrow")), str(path))
    (tmp_path / "cube.npy").write_bytes(shown["00000000.npy"])
    assert (np.load(tmp_path / "cube.npy") == np.arange(12).reshape(2, 3, 2)).all()
    assert shown["00000001.bin"] == b"too short"


@pytest.mark.parametrize("way", WAYS)
def test_whole_columns(tmp_path, way):
    path = write_parquet(tmp_path / "x.parquet", pictures(("n", pa.array(range(7), pa.int16()))), way)
    shard, shown = open_shard(str(path)), {}
    for column in shard.whole_columns():
        extent = Extent(open_source(str(path), column.source, shard.files), 0, 0)
        content = parse_form(str(column.form)).content(extent, b"", LIMITS)
        shown[column.name.decode()] = bytes(content.read(0, content.size))
    number = "n.jsonl" if way == "no-statistics" else "n.npy"
    assert shown.keys() == {"image.jsonl", "label.jsonl", number, "text.jsonl"}
    (tmp_path / number).write_bytes(shown[number])
    found = np.load(tmp_path / number).tolist() if number == "n.npy" else [*map(int, shown[number].split())]
    assert found == [*range(7)]
    assert [json.loads(line) for line in shown["text.jsonl"].splitlines()] == pictures()["text"].to_pylist()
    assert json.loads(shown["image.jsonl"].splitlines()[0]) == {"path": "a.jpeg"}


def test_paths_in_cells_are_labels_only(tmp_path):
    """Bytes that are null are no file, whatever file the path names."""
    secret = tmp_path / "secret.jpg"
    secret.write_bytes(JPG)
    image = pa.array([{"bytes": None, "path": str(secret)}, {"bytes": PNG, "path": "../../etc/passwd.png"}])
    shown = indexed(write_parquet(tmp_path / "x.parquet", pa.table({"image": image})))
    assert shown.keys() == {"00000000.json", "00000001.json", "00000001.png"}
    assert json.loads(shown["00000000.json"]) == {"image": {"path": str(secret)}}


@pytest.fixture
def bytes_read(monkeypatch) -> list[int]:
    """The lengths of all reads of Parquet files."""
    read: list[int] = []
    kind = type(DATA.open("x.parquet"))
    original = kind.read

    def counted(self, offset, length):
        read.append(length)
        return original(self, offset, length)

    monkeypatch.setattr(kind, "read", counted)
    return read


@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_one_image_of_a_large_file_costs_its_page_and_once(tmp_path, bytes_read, codec):
    images = [PNG + random.Random(i).randbytes(100_000) for i in range(200)]
    table = pa.table({"image": images, "n": range(200)})
    path = tmp_path / "x.parquet"
    pq.write_table(table, path, 50, compression=codec, use_dictionary=False, data_page_size=50_000, write_batch_size=1)
    facts = make_catalog(str(path), str(tmp_path / ".catalog.arrow"), OPTIONS, full=False)
    assert facts.samples == 200 and sum(bytes_read) < 400_000  # 262,144 of them to know when it is overwritten
    shard = open_shard(str(path))
    contents = FieldContents(known_shard(str(path), shard.files), LIMITS)
    sample = shard.sample(123)
    bytes_read.clear()
    for most in (250_000, len(images[0]) if codec == "none" else 0):  # the second time, only what is not decoded
        content = contents.content(sample.fields["image"])
        assert bytes(content.read(0, content.size)) == images[123] and sum(bytes_read) <= most
        bytes_read.clear()
    row = contents.content(sample.fields["row"])
    assert json.loads(bytes(row.read(0, row.size))) == {"n": 123} and sum(bytes_read) < 10_000


def test_hostile_files_are_lines_of_a_report(tmp_path):
    good = write_parquet(tmp_path / "a.parquet", pictures())
    whole = good.read_bytes()
    (tmp_path / "b.parquet").write_bytes(b"PAR1" + b"\xff" * 100 + b"\x10\0\0\0PAR1")
    (tmp_path / "c.parquet").write_bytes(b"")
    (tmp_path / "d.parquet").write_bytes(whole[:-1])
    (tmp_path / "e.parquet").write_bytes(whole[:-8] + b"\xff\xff\xff\x7fPAR1")
    write_parquet(tmp_path / "z.parquet", pictures())
    dataset = open_dataset(str(tmp_path))
    reports = {shard.name: shard.report for shard in dataset.shards}
    assert [name for name, report in reports.items() if not report] == ["a", "z"]
    assert all("cannot be served" in reports[name] for name in "bcde") and dataset.samples == 14


def test_files_that_are_cut_or_changed_anywhere_are_errors_or_shown(tmp_path):
    whole = write_parquet(tmp_path / "x.parquet", pictures(), "plain").read_bytes()
    choose = random.Random(0)
    for attempt in range(150):
        data = bytearray(whole)
        if attempt % 3:
            for _ in range(choose.choice([1, 8])):
                data[choose.randrange(len(data))] = choose.randrange(256)
        else:
            data = data[: choose.randrange(len(data))]
        path = tmp_path / f"{attempt}.parquet"
        path.write_bytes(data)
        try:
            shard = open_shard(str(path))
            if len(shard) > 1000:
                continue
            streamed(path)
        except FormatError:
            pass


@pytest.mark.parametrize("full", [False, True])
def test_a_damaged_page_is_a_problem_of_its_rows(tmp_path, full):
    images = [PNG + random.Random(i).randbytes(5000) for i in range(40)]
    path = tmp_path / "x.parquet"
    table = pa.table({"image": images, "n": range(40)})
    settings = {"use_dictionary": False, "data_page_size": 9000, "write_batch_size": 1, "write_page_index": True}
    pq.write_table(table, path, 10, compression="zstd", **settings)
    data = bytearray(path.read_bytes())
    start = pq.read_metadata(path).row_group(2).column(0).data_page_offset
    data[start : start + 1000] = b"\xff" * 1000
    path.write_bytes(data)
    facts = make_catalog(str(path), str(tmp_path / ".catalog.arrow"), OPTIONS, full=full)
    assert facts.samples == 40 and ("its 'image'" in facts.report) == full
    shown = contents_of(Catalog(str(tmp_path / ".catalog.arrow")), str(path), "shards")
    failed = []
    for i in range(40):
        assert shown[f"{i:08d}.json"].read(0, 100) == b'{"n": %d}\n' % i
        name = f"{i:08d}.png" if f"{i:08d}.png" in shown else f"{i:08d}.bin"
        try:
            assert shown[name].read(0, 10_000) == images[i]
        except FormatError:
            failed.append(i)
    assert failed and set(failed) < set(range(20, 30))


def test_rows_that_a_small_file_cannot_have_are_not_believed(tmp_path):
    """The footer of a file of one column says that it has billions of rows."""
    path = write_parquet(tmp_path / "x.parquet", pa.table({"n": pa.array([7] * 65, pa.int8())}), rows=100)
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[start:-8]
    for many in (1 << 30, 1 << 40):
        claimed = footer.replace(varint(65), varint(many))
        assert claimed.count(varint(many)) >= 3
        path.write_bytes(data[:start] + claimed + len(claimed).to_bytes(4, "little") + b"PAR1")
        facts = make_catalog(str(path), str(tmp_path / ".catalog.arrow"), OPTIONS, full=False)
        assert "cannot be served" in facts.report and f"{many:,} rows" in facts.report


def varint(number: int) -> bytes:
    """A number as Thrift's compact protocol has it."""
    number, found = 2 * number, bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def test_parquet_files_are_found(tmp_path):
    for name in ("b.parquet", "a.parquet", ".hidden.parquet", "_metadata", "data/c.parquet"):
        write_parquet(tmp_path / name, pictures())
    names = ["a.parquet", "b.parquet", "data/c.parquet"]
    assert find_shards(str(tmp_path)) == [str(tmp_path / name) for name in names]
    assert find_shards(str(tmp_path / "a.parquet")) == [str(tmp_path / "a.parquet")]
    with pytest.raises(FormatError, match=r"a Parquet file, but its name does not end in \.parquet"):
        find_shards(str(tmp_path / "_metadata"))
