"""NeMo Curator's readers give the rows that ours give, on hundreds of shards. Where they differ, it is by a fault of
Curator's, which the test names:

    ranges            rows of a .tar.gz have byte ranges that nobody can read
    frames            a frame of a TIFF is encoded again, lossily if it is JPEG
    upper case        images with an extension such as .JPG are not found
    folders           samples with the same name in two folders are merged, and images beside their JSON are not found
    sizes             batches are limited by the mean size of rows
    torn samples      the rows of a sample that are not adjacent come in several batches
    order of columns  with fields=, it is another one in each process
    lost columns      a column that the first sample of a partition lacks is left out
"""

import io
import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curator import CuratorError
from interleaved_tars import WdsSample, make_image, make_wds_tar, mint_sample, random_sample
from PIL import Image

from touchfs.core.errors import ColumnValueError, FieldTypeError, FormatError, MissingColumnError
from touchfs.interleaved.items.schema import RESERVED_COLUMNS
from touchfs.interleaved.read.files import ItemPartition
from touchfs.interleaved.read.parquet import InterleavedParquetReader
from touchfs.interleaved.read.webdataset import InterleavedWebdatasetReader

pytestmark = pytest.mark.variant  # the environment of Curator, whose import takes ten seconds

SAMPLES = Path(__file__).parents[1] / "data" / "interleaved"


def read(reader, paths, **parameters):
    """Our batches of one partition, as `Curator.read_…` gives theirs."""
    paths = [str(path) for path in paths]
    return list(reader(paths, **parameters).batches(ItemPartition(tuple(paths))))


def rows(batches):
    table = pa.concat_tables([batch.table for batch in batches])
    return [row | {"source_ref": json.loads(row["source_ref"] or "{}")} for row in table.to_pylist()]


def assert_same_rows(ours, theirs, *, but=()):
    """All columns of theirs, less some, are ours, with the same types and values."""
    for name in theirs[0].table.column_names:
        if name not in but:
            assert ours[0].table.schema.field(name).type == theirs[0].table.schema.field(name).type, name
    kept = [name for name in theirs[0].table.column_names if name not in but]
    assert [[row[name] for name in kept] for row in rows(ours)] == [
        [row[name] for name in kept] for row in rows(theirs)
    ]


def assert_same_pixels(ours, theirs):
    """Images are the same files, but for frames of a TIFF: theirs are encoded again."""
    assert len(ours) == len(theirs)
    for own, their in zip(ours, theirs, strict=True):
        if own["source_ref"].get("frame_index") is None or own["materialize_error"] is not None:
            assert own["binary_content"] == their["binary_content"]
        else:
            images = [Image.open(io.BytesIO(row["binary_content"])) for row in (own, their)]
            difference = np.asarray(images[0], np.int16) - np.asarray(images[1], np.int16)
            is_lossy = images[1].info.get("compression") == "jpeg"
            assert np.abs(difference).max() <= (64 if is_lossy else 0)


def random_shard(place, seed, suffix=".tar"):
    """A tar of up to five random samples, in either order of members. Its first sample has all columns."""
    chance = random.Random(seed)
    samples = [random_sample(f"s{number}", seed * 10 + number) for number in range(chance.randint(1, 5))]
    if chance.random() < 0.3:
        samples.append(mint_sample(seed, chance.randint(1, 4), chance.choice(["jpeg", "tiff_lzw", None])))
    names = dict.fromkeys(name for sample in samples for name in sample.passthrough)
    first = samples[0]
    complete = {name: first.passthrough.get(name) for name in names}
    samples[0] = WdsSample(first.key, first.texts, first.images, first.members, complete)
    return make_wds_tar(place / f"{seed}{suffix}", samples, json_first=chance.random() < 0.5)


def test_rows_of_tars(curator, tmp_path):
    for seed in range(150):
        path = random_shard(tmp_path, seed)
        ours, theirs = read(InterleavedWebdatasetReader, [path]), curator.read_webdataset([path])
        assert_same_rows(ours, theirs)
        assert ours[0].table.column_names == theirs[0].table.column_names
        assert list(ours[0].source_files) == theirs[0].source_files


def test_rows_of_several_tars_with_images(curator, tmp_path):
    for seed in range(0, 60, 2):
        paths = [random_shard(tmp_path, seed + number) for number in (0, 1)]
        found = {"materialize_on_read": True, "fields": ["url", "score", "tags"]}
        ours = read(InterleavedWebdatasetReader, paths, **found)
        theirs = curator.read_webdataset(paths, **found)
        assert_same_rows(ours, theirs, but={"binary_content"})
        assert_same_pixels(rows(ours), rows(theirs))


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.tar")), ids=lambda path: path.name)
def test_rows_of_real_tars(curator, path):
    for parameters in ({}, {"sample_id_field": "sample_id"}):
        ours = read(InterleavedWebdatasetReader, [path], **parameters)
        assert_same_rows(ours, curator.read_webdataset([path], sample_id_field="sample_id"))


def test_fields_of_other_names(curator, tmp_path):
    sample = WdsSample(
        "a",
        ["one", None, "two"],
        [None, "page_1", "elsewhere.bmp"],
        {"pictures.png": make_image("png"), "elsewhere.bmp": make_image("bmp")},
        {
            "id": "x/y.z",
            "file": "pictures.png",
            "heights": [16, None],
            "boxes": [[1, 2], {"x": 1}],
            "languages": ["en", "de"],
            "note": {"a": [1, "ü"]},
            "sample_id": "ignored by Curator",
        },
        ".meta.json",
        ("words", "pictures"),
    )
    path = make_wds_tar(tmp_path / "a.tar", [sample, ("b.json", b'{"texts": ["no sample"]}')])
    parameters = {
        "json_extensions": [".meta.json"],
        "sample_id_field": "id",
        "texts_field": "words",
        "images_field": "pictures",
        "image_member_field": "file",
        "per_image_fields": ["heights", "boxes"],
        "per_text_fields": ["languages"],
    }
    ours = read(InterleavedWebdatasetReader, [path], **parameters)
    assert_same_rows(ours, curator.read_webdataset([path], **parameters))
    assert [row["heights"] for row in rows(ours)] == [None, None, 16, None, None]
    assert [row["languages"] for row in rows(ours)] == [None, "en", None, "de", None]


def test_splits_have_the_same_rows_and_lineage(curator, tmp_path):
    for seed in range(20):
        paths = [random_shard(tmp_path, seed * 2 + number) for number in (0, 1)]
        ours = read(InterleavedWebdatasetReader, paths, max_batch_bytes=3000, fields=["url"])
        theirs = curator.read_webdataset(paths, max_batch_bytes=3000, fields=["url"])
        assert_same_rows(ours, theirs)
        for batches in (ours, theirs):
            numbers = {source.partition("::")[2] for batch in batches for source in batch.source_files}
            assert len(numbers) == len(batches)


def test_fault_sizes(curator, tmp_path):
    samples = [WdsSample(f"s{number}", ["x" * (100_000 if number == 3 else 10)], [None]) for number in range(8)]
    path = make_wds_tar(tmp_path / "a.tar", samples)
    ours = read(InterleavedWebdatasetReader, [path], max_batch_bytes=60_000)
    theirs = curator.read_webdataset([path], max_batch_bytes=60_000)
    assert [batch.num_items for batch in ours] == [3, 1, 4]
    assert max(batch.table.nbytes for batch in theirs if len(set(batch.table["sample_id"].to_pylist())) > 1) > 60_000


def test_fault_ranges(curator, tmp_path):
    path = random_shard(tmp_path, 5, ".tar.gz")
    ours, theirs = read(InterleavedWebdatasetReader, [path]), curator.read_webdataset([path])
    assert_same_rows(ours, theirs, but={"source_ref"})
    without_ranges = {"byte_offset": None, "byte_size": None}
    assert [row["source_ref"] for row in rows(ours)] == [row["source_ref"] | without_ranges for row in rows(theirs)]
    eager = {"materialize_on_read": True}
    found = [read(InterleavedWebdatasetReader, [path], **eager), curator.read_webdataset([path], **eager)]
    assert_same_pixels(*map(rows, found))


def test_fault_upper_case(curator, tmp_path):
    samples = [WdsSample("a", ["t"], ["page_1"], {"a.JPG": make_image("jpg")})]
    path = make_wds_tar(tmp_path / "a.tar", samples)
    (own,), (their,) = (
        [row for row in rows(batches) if row["modality"] == "image"]
        for batches in (read(InterleavedWebdatasetReader, [path]), curator.read_webdataset([path]))
    )
    assert (own["source_ref"]["member"], own["content_type"]) == ("a.JPG", "image/jpeg")
    assert (their["source_ref"]["member"], their["content_type"]) == (None, None)


def test_fault_folders(curator, tmp_path):
    samples = [
        WdsSample(f"{folder}/{name}", [folder], ["page_1"], {f"{folder}/{name}.png": make_image("png")})
        for folder, name in (("d1", "a"), ("d2", "a"), ("d2", "b"))
    ]
    path = make_wds_tar(tmp_path / "a.tar", samples)
    (ours,), (theirs,) = read(InterleavedWebdatasetReader, [path]), curator.read_webdataset([path])
    assert list(dict.fromkeys(ours.table["sample_id"].to_pylist())) == ["d1/a", "d2/a", "b"]
    assert list(dict.fromkeys(theirs.table["sample_id"].to_pylist())) == ["a", "b"]
    members = [row["source_ref"]["member"] for row in rows([ours]) if row["modality"] == "image"]
    assert members == ["d1/a.png", "d2/a.png", "d2/b.png"]


def test_fault_lost_columns(curator, tmp_path):
    samples = [WdsSample("a", ["t"], [None]), WdsSample("b", ["t"], [None], {}, {"url": "u"})]
    path = make_wds_tar(tmp_path / "a.tar", samples)
    (ours,), (theirs,) = read(InterleavedWebdatasetReader, [path]), curator.read_webdataset([path])
    assert ours.table["url"].to_pylist() == [None, None, "u", None]
    assert "url" not in theirs.table.column_names


def random_parquet(place, seed):
    """A Parquet file of items as another tool might write it: some columns, in any order and of near types.

    Types are those of the seed's pair, as Curator refuses files whose integers differ in width.
    """
    chance, types = random.Random(seed), random.Random(seed // 2)
    items = chance.randint(0, 40)
    ids = sorted(f"s{chance.randint(0, 9)}" for _ in range(items))
    columns = {
        "sample_id": pa.array(ids, types.choice([pa.string(), pa.large_string()])),
        "position": pa.array(range(items), types.choice([pa.int32(), pa.int64()])),
        "modality": pa.array(chance.choices(["text", "image", "metadata"], k=items), pa.string()),
        "text_content": pa.array(["x" * chance.randint(0, 99) for _ in ids], pa.string()),
        "binary_content": pa.array([chance.choice([None, b"bytes"]) for _ in ids], pa.binary()),
        "score": pa.array([chance.random() for _ in ids], pa.float32()),
        "label": pa.array(chance.choices("abc", k=items), pa.string()).dictionary_encode(),
        "boxes": pa.array([[1, 2] for _ in ids], pa.list_(pa.int16())),
    }
    required = {"sample_id", "position", "modality"}
    names = [name for name in columns if name in required or chance.random() < 0.7]
    chance.shuffle(names)
    path = place / f"{seed}.parquet"
    pq.write_table(pa.table({name: columns[name] for name in names}), path, row_group_size=chance.choice([3, 1000]))
    return path


def test_rows_of_parquet(curator, tmp_path):
    for seed in range(100):
        path = random_parquet(tmp_path, seed)
        ours, theirs = read(InterleavedParquetReader, [path]), curator.read_parquet([path])
        assert_same_rows(ours, theirs)
        names, expected = ours[0].table.column_names, theirs[0].table.column_names
        assert names == expected


def test_rows_of_several_parquet_files(curator, tmp_path):
    for seed in range(0, 80, 2):
        paths = [random_parquet(tmp_path, seed + number) for number in (0, 1)]
        parameters = {"fields": ["score", "missing"]}
        ours, theirs = read(InterleavedParquetReader, paths, **parameters), curator.read_parquet(paths, **parameters)
        assert_same_rows(ours, theirs)
        # The fault: the order of columns.
        assert ours[0].table.column_names == [*RESERVED_COLUMNS, "score", "missing"]
        assert set(theirs[0].table.column_names) == set(ours[0].table.column_names)


def test_fault_torn_samples(curator, tmp_path):
    paths = []
    for number in (0, 1):
        table = pa.table({"sample_id": ["a", "b"] * 20, "position": list(range(40)), "modality": ["text"] * 40})
        paths.append(tmp_path / f"{number}.parquet")
        pq.write_table(table, paths[-1], row_group_size=7)
    ours = read(InterleavedParquetReader, paths, max_batch_bytes=900)
    theirs = curator.read_parquet(paths, max_batch_bytes=900)
    assert [(batch.count(), batch.num_items) for batch in ours] == [(40, 1), (40, 1)]
    assert len(theirs) > 2
    order = {"a": 0, "b": 1}
    theirs_by_sample = sorted(rows(theirs), key=lambda row: order[row["sample_id"]])
    assert [list(row.items()) for row in rows(ours)] == [
        [(name, row[name]) for name in ours[0].table.column_names] for row in theirs_by_sample
    ]


def test_partitions(curator, tmp_path):
    for number in range(7):
        path = tmp_path / ("deep" if number % 2 else "") / f"{number}.tar"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(1000 * (number * 5 % 7)))
    (tmp_path / "other.txt").write_bytes(b"no shard")
    shallow, deep = [str(tmp_path)], str(tmp_path)
    for paths in (deep, shallow, [*shallow, f"{deep}/deep"], f"{deep}/*.tar", f"{deep}/0.tar"):
        for parameters in ({}, {"files_per_partition": 2}, {"blocksize": 4000}, {"blocksize": "5kB"}):
            expected = curator.partitions(paths, file_extensions=[".tar"], **parameters)
            found = InterleavedWebdatasetReader(paths, **parameters).partitions()
            assert [list(partition.files) for partition in found] == expected, (paths, parameters)


@pytest.mark.parametrize(
    ("document", "parameters", "error"),
    [
        (b'{"texts": ["a"], "sizes": 3}', {"per_image_fields": ["sizes"]}, FieldTypeError),
        (b'{"texts": ["a"]}', {"fields": ["texts"]}, ValueError),
        (b'{"texts": ["a"]}', {"max_batch_bytes": 0}, ValueError),
        (b'{"texts": ["a"', {}, FormatError),
    ],
)
def test_errors_of_tars(curator, tmp_path, document, parameters, error):
    path = make_wds_tar(tmp_path / "a.tar", [("a.json", document)])
    with pytest.raises(error) as ours:
        read(InterleavedWebdatasetReader, [path], **parameters)
    with pytest.raises(CuratorError) as theirs:
        curator.read_webdataset([path], **parameters)
    kinds = [kind.__name__ for kind in type(ours.value).__mro__]
    assert theirs.value.kind in [*kinds, "JSONDecodeError"]


def test_errors_of_parquet(curator, tmp_path):
    for name, table, error in (
        ("null", {"sample_id": pa.array([None], pa.string()), "position": [0], "modality": ["text"]}, ColumnValueError),
        ("missing", {"position": [0], "modality": ["text"]}, MissingColumnError),
    ):
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table(table), path)
        with pytest.raises(error) as ours:
            read(InterleavedParquetReader, [path])
        with pytest.raises(CuratorError) as theirs:
            curator.read_parquet([path])
        assert theirs.value.kind in [kind.__name__ for kind in type(ours.value).__mro__]
