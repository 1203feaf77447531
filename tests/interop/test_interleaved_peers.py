"""Tools that read our tars and Parquet files of interleaved samples: webdataset, Hugging Face's datasets, pyarrow,
DuckDB, polars and NeMo Curator.
"""

import io
import json

import datasets
import duckdb
import numpy as np
import polars
import pyarrow.parquet as parquet
import pytest
import webdataset
from interleaved_tars import make_image, make_wds_tar, mint_sample, random_sample
from PIL import Image
from written_items import image, item_batch, metadata, text

from touchfs.interleaved.read.parquet import InterleavedParquetReader
from touchfs.interleaved.read.webdataset import InterleavedWebdatasetReader
from touchfs.interleaved.write import InterleavedParquetWriter, InterleavedWebdatasetWriter

pytestmark = [  # webdataset leaves files open
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

IDS = ["plain", "a.b/c.tar", "ü 1"]
PICTURES = [make_image("png", (30 + number, 20), seed=number) for number in range(6)]


def rows_of_samples():
    rows = []
    for number, sample_id in enumerate(IDS):
        rows += [
            metadata(sample_id, url=f"http://{number}"),
            text(0, f"Ünï {number}", sample_id),
            image(1, PICTURES[2 * number], sample_id, name="first"),
            text(3, "end", sample_id),
            image(4, PICTURES[2 * number + 1], sample_id),
        ]
    return rows


@pytest.fixture
def tar(tmp_path):
    return InterleavedWebdatasetWriter(tmp_path / "tar").write(item_batch(rows_of_samples()))


@pytest.fixture
def table(tmp_path):
    return InterleavedParquetWriter(tmp_path / "parquet").write(item_batch(rows_of_samples()))


def check_fields(sample, number):
    """A sample as readers of WebDataset give it: members by what follows the key."""
    document = sample["json"] if isinstance(sample["json"], dict) else json.loads(sample["json"])
    assert document["sample_id"] == IDS[number]
    assert document["texts"] == [f"Ünï {number}", None, None, "end", None]
    assert document["images"] == [
        None,
        f"{sample['__key__']}.1.png",
        None,
        None,
        f"{sample['__key__']}.4.png",
    ]
    assert document["name"] == ["first", None]


def test_webdataset_gets_whole_samples(tar):
    """With dots in keys, samples would fall apart."""
    samples = list(webdataset.WebDataset(tar, shardshuffle=False))
    assert len(samples) == len(IDS)
    for number, sample in enumerate(samples):
        check_fields(sample, number)
        assert [sample["1.png"], sample["4.png"]] == PICTURES[2 * number : 2 * number + 2]


def test_datasets_gets_whole_samples(tar, tmp_path):
    samples = datasets.load_dataset("webdataset", data_files=tar, split="train", cache_dir=str(tmp_path / "cache"))
    assert len(samples) == len(IDS)
    for number, sample in enumerate(samples):
        check_fields(sample, number)
        assert sample["4.png"].size == (31 + 2 * number, 20)


def check_rows(rows):
    for row, expected in zip(rows, rows_of_samples(), strict=True):
        assert {name: value for name, value in row.items() if value is not None} == expected


def test_pyarrow_and_polars_and_datasets_read_the_same_rows(table, tmp_path):
    check_rows(parquet.read_table(table).to_pylist())
    check_rows(polars.read_parquet(table).to_dicts())
    check_rows(datasets.load_dataset("parquet", data_files=table, split="train", cache_dir=str(tmp_path / "cache")))


def test_duckdb_reads_the_rows_and_finds_some_of_them(table):
    with duckdb.connect() as database:
        found = database.sql(f"SELECT * FROM '{table}'")
        check_rows([dict(zip(found.columns, row, strict=True)) for row in found.fetchall()])
        query = f"SELECT binary_content FROM '{table}' WHERE sample_id = 'a.b/c.tar' AND position = 4"
        assert database.sql(query).fetchall() == [(PICTURES[3],)]


def plain(rows, names=None):
    """Rows without where their items were found. Curator leaves out columns that the first sample of a tar lacks."""
    return [
        {name: value for name, value in row.items() if name != "source_ref" and (names is None or name in names)}
        for row in rows
    ]


def ours(reader, path, **parameters):
    return [row for batch in reader(path, **parameters) for row in batch.table.to_pylist()]


@pytest.mark.variant
def test_curator_reads_our_parquet_as_we_do(curator, table):
    (theirs,) = curator.read_parquet([table])
    assert plain(theirs.table.to_pylist()) == plain(ours(InterleavedParquetReader, table))


@pytest.mark.variant
def test_curator_reads_our_tars_as_we_do(curator, tar):
    parameters = {"materialize_on_read": True, "sample_id_field": "sample_id", "per_image_fields": ("name",)}
    (theirs,) = curator.read_webdataset([tar], **parameters)
    assert plain(theirs.table.to_pylist()) == plain(ours(InterleavedWebdatasetReader, tar, **parameters))


@pytest.mark.variant
@pytest.mark.parametrize("first", range(0, 40, 20))
def test_curator_reads_what_we_convert(curator, tmp_path, first):
    """Samples of all kinds, from a tar into a Parquet file and into a tar. Images that are missing are left out:
    Curator takes another image of the sample for one whose member is missing.
    """
    for seed in range(first, first + 20):
        samples = [random_sample(f"k{number}", 100 * seed + number) for number in range(4)]
        source = str(make_wds_tar(tmp_path / f"{seed}.tar", samples))
        batches = list(InterleavedWebdatasetReader(source))
        for writer in (InterleavedParquetWriter, InterleavedWebdatasetWriter):
            with writer(tmp_path / "out", on_materialize_error="drop_row").writing([source]) as shard:
                for batch in batches:
                    shard.append(batch)
            if writer is InterleavedParquetWriter:
                (theirs,) = curator.read_parquet([shard.path])
                found = ours(InterleavedParquetReader, shard.path)
            else:
                parameters = {"sample_id_field": "sample_id"}
                (theirs,) = curator.read_webdataset([shard.path], **parameters)
                found = ours(InterleavedWebdatasetReader, shard.path, **parameters)
            expected = theirs.table.to_pylist()
            assert plain(expected) == plain(found, theirs.table.column_names)
            assert [json.loads(row["source_ref"]) for row in expected] == [
                json.loads(row["source_ref"]) for row in found
            ]


@pytest.mark.variant
def test_we_read_what_curator_writes(curator, tmp_path):
    batch = item_batch(rows_of_samples())
    (path,) = curator.write_parquet(batch.table, ["a.tar"], path=tmp_path / "parquet")
    assert (
        path.rpartition("/")[2]
        == InterleavedParquetWriter(tmp_path / "own")
        .write(item_batch(rows_of_samples(), sources=("a.tar",)))
        .rpartition("/")[2]
    )
    assert plain(ours(InterleavedParquetReader, path)) == plain(batch.table.to_pylist())
    (path,) = curator.write_webdataset(batch.table, ["a.tar"], path=tmp_path / "tar")
    found = ours(InterleavedWebdatasetReader, path, materialize_on_read=True, per_image_fields=("name",))
    assert plain(found) == plain(batch.table.to_pylist())


def test_frames_are_lossless_for_other_readers(tmp_path):
    """Pixels of a JPEG frame are those of the frame in the original TIFF, for Pillow."""
    sample = mint_sample(1, frames=3)
    path = make_wds_tar(tmp_path / "a.tar", [sample])
    (batch,) = InterleavedWebdatasetReader(str(path))
    written = InterleavedWebdatasetWriter(tmp_path / "out").write(batch)
    (found,) = webdataset.WebDataset(written, shardshuffle=False)
    frames = [data for name, data in found.items() if name.endswith(".tiff")]
    assert len(frames) == 3
    original = Image.open(io.BytesIO(sample.members[f"{1:032x}.tiff"]))
    for number, data in enumerate(frames):
        original.seek(number)
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(data))), np.asarray(original))
