"""The reader of Parquet files of interleaved samples."""

import json
import logging
import sys

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from interleaved_tars import make_wds_tar, mint_sample, random_sample
from memory import peak

from touchfs.core.errors import FormatError, NotFoundError
from touchfs.interleaved.items.file_column import FILE_TYPE
from touchfs.interleaved.items.schema import INTERLEAVED_SCHEMA, RESERVED_COLUMNS
from touchfs.interleaved.layout.source_ref import SourceRef
from touchfs.interleaved.read.files import ItemPartition
from touchfs.interleaved.read.parquet import InterleavedParquetReader
from touchfs.interleaved.read.webdataset import InterleavedWebdatasetReader
from touchfs.limits import Limits

ROWS = {
    "sample_id": ["a", "a", "b"],
    "position": pa.array([-1, 0, 0], pa.int32()),
    "modality": ["metadata", "text", "text"],
    "text_content": [None, "one", "two"],
    "url": ["u", None, None],
    "score": [1.5, None, None],
}


def write(path, columns, **options):
    pq.write_table(pa.table(columns), path, **options)
    return str(path)


def read(path, **parameters):
    (batch,) = InterleavedParquetReader(path, **parameters)
    return batch.table


def test_a_table_of_tars_comes_back(tmp_path):
    """All columns, types, rows and bytes, however the rows are grouped."""
    samples = [mint_sample(1), *(random_sample(f"s{number}", number) for number in range(9))]
    tar = make_wds_tar(tmp_path / "x.tar", samples)
    (batch,) = InterleavedWebdatasetReader(str(tar), materialize_on_read=True)
    for options in ({}, {"row_group_size": 3}, {"compression": "zstd", "data_page_version": "2.0"}):
        pq.write_table(batch.table, tmp_path / "x.parquet", **options)
        assert read(str(tmp_path / "x.parquet")).equals(batch.table)


def test_reserved_columns_that_are_missing_are_null(tmp_path):
    table = read(write(tmp_path / "x.parquet", ROWS))
    assert table.column_names == [*ROWS, "content_type", "binary_content", "source_ref", "materialize_error"]
    assert table["source_ref"].null_count == 3
    for name in RESERVED_COLUMNS:
        assert table.schema.field(name).equals(INTERLEAVED_SCHEMA.field(name))


def test_fields_that_are_named(tmp_path, caplog):
    """Columns are in one order: the reserved ones, then those of `fields`."""
    path = write(tmp_path / "x.parquet", {"score": ROWS["score"], "license": ["l"] * 3, **ROWS})
    reader = InterleavedParquetReader(path, fields=("missing", "score", "text_content"))
    for _ in range(2):
        (batch,) = reader
    assert batch.table.column_names == [*RESERVED_COLUMNS, "score", "missing"]
    assert batch.table["missing"].null_count == 3
    assert batch.table["score"].to_pylist() == ROWS["score"]
    assert [record.getMessage() for record in caplog.records] == [
        "fields= leaves out columns that the files have: license, url"
    ]
    assert read(path, fields=()).column_names == list(RESERVED_COLUMNS)


def test_columns_that_are_not_wanted_are_not_read(tmp_path, monkeypatch):
    large = pa.array([b"x" * (1 << 20)] * 3)
    path = write(tmp_path / "x.parquet", {"large": large, **ROWS}, use_dictionary=False, compression="none")
    seen = []
    original = pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        pq.ParquetFile,
        "iter_batches",
        lambda file, *args, **options: seen.append(options["columns"]) or original(file, *args, **options),
    )
    read(path, fields=("url",))
    read(path, schema_overrides={"score": pa.float32()})
    assert [sorted(columns) for columns in seen] == [
        ["modality", "position", "sample_id", "text_content", "url"],
        ["modality", "position", "sample_id", "score", "text_content"],
    ]


def test_files_of_different_columns(tmp_path):
    """Columns of any file are in every table; numbers get the wider type."""
    first = write(tmp_path / "1.parquet", {**ROWS, "n": pa.array([1, 2, 3], pa.int16())})
    second = write(tmp_path / "2.parquet", {**ROWS, "n": pa.array([1, 2, 3], pa.int64()), "more": ["x"] * 3})
    for parameters in ({}, {"max_batch_bytes": 1}):
        reader = InterleavedParquetReader([first, second], files_per_partition=2, **parameters)
        table = pa.concat_tables([batch.table for batch in reader])
        assert table.schema.field("n").type == pa.int64()
        assert sorted(table["more"].to_pylist(), key=str) == [None] * 3 + ["x"] * 3
    third = write(tmp_path / "3.parquet", {**ROWS, "n": ["text"] * 3})
    with pytest.raises(FormatError, match="not the type that it had before") as error:
        list(InterleavedParquetReader([first, third], files_per_partition=2))
    assert error.value.path == third


def test_a_sample_of_two_files_is_one(tmp_path):
    paths = [write(tmp_path / f"{number}.parquet", ROWS) for number in (1, 2)]
    reader = InterleavedParquetReader(paths, files_per_partition=2, max_batch_bytes=1)
    batches = list(reader)
    assert [(batch.table["sample_id"].to_pylist()) for batch in batches] == [["a"] * 4, ["b"] * 2]
    assert batches[0].source_files == tuple(f"{path}::split_00000" for path in paths)


def test_samples_whose_rows_are_far_apart_take_no_more_memory_than_allowed(tmp_path):
    ids = [f"s{number}" for number in range(50)] * 2
    columns = {"sample_id": ids, "position": [0] * 100, "modality": ["text"] * 100, "text_content": ["x" * 1000] * 100}
    path = write(tmp_path / "x.parquet", columns, row_group_size=10)
    assert len(list(InterleavedParquetReader(path, max_batch_bytes=5000))) == 25
    with pytest.raises(FormatError, match="sort the rows by sample_id") as error:
        list(InterleavedParquetReader(path, max_batch_bytes=5000, limits=Limits(decoded=20_000)))
    assert error.value.path == path


def test_locators_as_file_groups(tmp_path):
    groups = [
        {"uri": "x.tar", "offset": 512, "size": 7, "content_type": "image/png", "checksum": "MD5:1", "inline": None},
        {"uri": None, "offset": None, "size": None, "content_type": None, "checksum": None, "inline": b"bytes"},
        None,
    ]
    columns = {
        **ROWS,
        "source_ref": pa.array(groups, FILE_TYPE),
        "source_member": ["a.png", None, None],
        "source_frame_index": pa.array([2, None, None], pa.int32()),
    }
    path = write(tmp_path / "x.parquet", columns)
    for parameters in ({}, {"fields": ("url",)}, {"max_batch_bytes": 10**6}):
        table = read(path, **parameters)
        refs = [ref and json.loads(ref) for ref in table["source_ref"].to_pylist()]
        assert refs[0]["path"] == "x.tar"
        assert (refs[0]["member"], refs[0]["byte_offset"], refs[0]["byte_size"], refs[0]["frame_index"]) == (
            "a.png",
            512,
            7,
            2,
        )
        assert table["binary_content"].to_pylist()[1] == b"bytes"
        assert refs[2] is None
        assert "source_member" not in table.column_names


@pytest.mark.parametrize("column", ["sample_id", "license"])
def test_several_columns_of_one_name(tmp_path, column):
    names = ["sample_id", "position", "modality", "license", column]
    arrays = [pa.array(["a"]), pa.array([0], pa.int32()), pa.array(["text"]), pa.array(["x"]), pa.array(["y"])]
    pq.write_table(pa.table(arrays, names=names), tmp_path / "a.parquet")
    with pytest.raises(FormatError, match=rf"a\.parquet: has several columns '{column}'"):
        list(InterleavedParquetReader(str(tmp_path / "a.parquet")))


def test_locators_whose_fields_have_other_types(tmp_path):
    columns = {"sample_id": ["a"], "position": [0], "modality": ["image"], "source_member": [b"m"]}
    for size, is_good in (("5", True), ("all", False)):
        table = pa.table(
            {**columns, "binary_content": ["x"], "source_ref": [{"uri": "t.tar", "offset": 7, "size": size}]}
        )
        pq.write_table(table, tmp_path / "a.parquet")
        reader = InterleavedParquetReader(str(tmp_path / "a.parquet"))
        if is_good:
            (batch,) = reader
            assert batch.source_refs() == [SourceRef("t.tar", "m", 7, 5)]
            assert batch.table["binary_content"].to_pylist() == [b"x"]
        else:
            with pytest.raises(ValueError, match=r"a\.parquet: a value does not fit its column"):
                list(reader)


def test_ids_that_are_null_or_missing(tmp_path):
    path = write(tmp_path / "null.parquet", {**ROWS, "sample_id": pa.array(["a", None, "b"])})
    missing = write(tmp_path / "missing.parquet", {name: ROWS[name] for name in ("position", "modality")})
    for parameters in ({}, {"max_batch_bytes": 10}, {"fields": ()}):
        with pytest.raises(ValueError, match="contains null values") as error:
            list(InterleavedParquetReader(path, **parameters))
        assert error.value.path == path
        with pytest.raises(KeyError) as error:
            list(InterleavedParquetReader(missing, **parameters))
        assert str(error.value) == f"{missing}: has no column 'sample_id', so it has no interleaved samples"


def test_ids_of_other_types(tmp_path):
    """Numbers become texts, and bytes that are no text are one error."""
    path = write(tmp_path / "x.parquet", {**ROWS, "sample_id": [7, 7, 8]})
    bad = write(tmp_path / "bad.parquet", {**ROWS, "sample_id": pa.array([b"\xff", b"\xff", b"a"])})
    for parameters in ({}, {"max_batch_bytes": 10}):
        batches = list(InterleavedParquetReader(path, **parameters))
        assert [name for batch in batches for name in batch.table["sample_id"].to_pylist()] == ["7", "7", "8"]
        with pytest.raises(FormatError) as error:
            list(InterleavedParquetReader(bad, **parameters))
        assert error.value.path == bad


def test_an_empty_row_group_without_pages(tmp_path):
    """As pyarrow writes it without a dictionary."""
    table, path = pa.table(ROWS), tmp_path / "x.parquet"
    with pq.ParquetWriter(path, table.schema, use_dictionary=False, compression="none") as writer:
        for part in (table, table.slice(0, 0), table):
            writer.write_table(part)
    for limit in (None, 1000):
        batches = list(InterleavedParquetReader(str(path), max_batch_bytes=limit))
        assert sum(batch.table.num_rows for batch in batches) == 2 * table.num_rows


def test_empty_files_and_lists(tmp_path):
    path = write(tmp_path / "x.parquet", pa.schema([("sample_id", pa.string()), ("url", pa.string())]).empty_table())
    for parameters in ({}, {"max_batch_bytes": 10}):
        reader = InterleavedParquetReader(path, **parameters)
        ((batch, cursor),) = reader.steps(*reader.partitions())
        assert (batch.count(), batch.num_items, batch.source_files) == (0, 0, (path,))
        assert set(batch.table.column_names) == {*RESERVED_COLUMNS, "url"}
        assert list(reader.steps(*reader.partitions(), cursor)) == []
        (batch,) = reader.batches(ItemPartition(()))
        assert batch.table.schema.equals(INTERLEAVED_SCHEMA)
    assert InterleavedParquetReader([]).partitions() == []


def test_schema_and_overrides(tmp_path, caplog):
    path = write(tmp_path / "x.parquet", ROWS)
    table = read(path, schema_overrides={"text_content": pa.large_string(), "more": pa.int8()})
    assert table.schema.field("text_content").type == pa.large_string()
    assert table.column_names == [*RESERVED_COLUMNS, "more"]
    schema = pa.schema([("url", pa.string()), ("sample_id", pa.string())])
    with caplog.at_level(logging.WARNING):
        table = read(path, schema=schema, schema_overrides={"more": pa.int8()})
    assert table.schema.equals(schema)
    assert "schema_overrides is ignored" in caplog.text
    with pytest.raises(FormatError, match="does not fit its column"):
        read(path, schema_overrides={"url": pa.int8()})


def test_dictionaries_and_views_become_plain(tmp_path):
    names = pa.array(["x", "y", "x"]).dictionary_encode()
    path = write(
        tmp_path / "x.parquet", {**ROWS, "sample_id": pa.array(["a", "a", "b"]).dictionary_encode(), "name": names}
    )
    for parameters in ({}, {"max_batch_bytes": 10**6}, {"max_batch_bytes": 1}):
        for batch in InterleavedParquetReader(path, **parameters):
            assert batch.table.schema.field("name").type == pa.string()
            assert batch.table.schema.field("sample_id").type == pa.string()


def test_files_elsewhere(tmp_path):
    local = write(tmp_path / "x.parquet", ROWS)
    with fsspec.open(url := "memory://interleaved-parquet/x.parquet", "wb") as file, open(local, "rb") as original:
        file.write(original.read())
    (batch,) = InterleavedParquetReader("memory://interleaved-parquet")
    assert batch.table.equals(read(local))
    assert batch.source_files == (url,)
    with pytest.raises(NotFoundError):
        list(InterleavedParquetReader("memory://interleaved-parquet/missing.parquet"))


@pytest.mark.parametrize("every", [23, pytest.param(3, marks=pytest.mark.variant)])
def test_damaged_files(tmp_path, every):
    """Whatever is wrong, there are rows or one error that names the file."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table(ROWS), path)
    data = bytearray(path.read_bytes())
    for at in range(0, len(data), every):
        changed = bytes([*data[:at], data[at] ^ 0x55, *data[at + 1 :]])
        path.write_bytes(changed)
        for parameters in ({}, {"max_batch_bytes": 100}):
            try:
                list(InterleavedParquetReader(str(path), **parameters))
            except FormatError as error:
                assert error.path == str(path)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"no Parquet at all", b"PAR1" + b"\xff" * 20 + b"PAR1"])
def test_what_is_no_parquet(tmp_path, data):
    path = tmp_path / "x.parquet"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"not a Parquet file|a Parquet footer of") as error:
        list(InterleavedParquetReader(str(path)))
    assert error.value.path == str(path)


def test_a_text_that_a_dictionary_repeats_does_not_fill_the_memory(tmp_path):
    """All 1,000 rows mean one text of 1 MB: the file has some KB, and its rows 1 GB."""
    rows, text = 1000, "x" * 1_000_000
    columns = {
        "sample_id": pa.array([f"s{row}" for row in range(rows)]),
        "position": pa.array([0] * rows, pa.int32()),
        "modality": pa.array(["text"] * rows),
        "text_content": pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), [text]),
        "tags": pa.ListArray.from_arrays(
            list(range(rows + 1)), pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), ["t"])
        ).cast(pa.list_(pa.string())),
    }
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns), path, compression="zstd", dictionary_pagesize_limit=1 << 30)
    assert path.stat().st_size < 100_000
    code = """
import sys
from touchfs.interleaved import InterleavedParquetReader
rows = 0
for batch in InterleavedParquetReader(sys.argv[1], max_batch_bytes=12_000_000):
    assert batch.table["text_content"].type in ("string", "large_string"), batch.table["text_content"].type
    assert len(batch.table["text_content"][0].as_py()) == 1_000_000
    rows += batch.table.num_rows
print(rows)
"""
    done, megabytes = peak(tmp_path, sys.executable, "-c", code, path)
    assert (done.stdout, done.stderr) == (f"{rows}\n".encode(), b"")
    assert megabytes < 500
