"""Parquet files of interleaved samples, and what both writers do: names, modes, policies, schemas, stores."""

import hashlib
import logging
import pickle
import re
import resource

import fsspec
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from interleaved_tars import make_wds_tar, mint_sample
from written_items import PNG, SOURCES, image, item_batch, item_table, metadata, read_tar, text

from touchfs.core.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    MissingFileError,
    SourceError,
    UnwritableError,
    UsageError,
)
from touchfs.interleaved.items.batch import InterleavedBatch
from touchfs.interleaved.items.schema import FILE_TYPE, INTERLEAVED_SCHEMA
from touchfs.interleaved.layout.source_ref import SourceRef, format_source_ref
from touchfs.interleaved.write import InterleavedParquetWriter, InterleavedWebdatasetWriter

ROWS = [metadata(url="u"), text(0, "Ünï"), image(1, PNG + b"1"), text(3, "end")]
WRITERS = [InterleavedParquetWriter, InterleavedWebdatasetWriter]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture(params=WRITERS, ids=["parquet", "tar"])
def kind(request):
    return request.param


def missing_image(position=1, sample_id="s"):
    ref = format_source_ref(SourceRef("/nowhere/x.png"))
    return image(position, None, sample_id, source_ref=ref)


def names_in(directory):
    return sorted(path.name for path in directory.iterdir())


def test_rows_are_written_as_they_are(out):
    table = item_table(ROWS)
    path = InterleavedParquetWriter(out).write(InterleavedBatch(table, source_files=SOURCES))
    assert parquet.read_table(path).equals(table)
    assert parquet.read_schema(path).field("sample_id").nullable is False


def test_rows_keep_their_order(out):
    rows = [text(number % 7, str(number), f"s{number % 3}") for number in range(50)]
    path = InterleavedParquetWriter(out).write(item_batch(rows))
    assert parquet.read_table(path)["text_content"].to_pylist() == [str(number) for number in range(50)]


@pytest.mark.parametrize("sources", [SOURCES, SOURCES[::-1]])
def test_the_name_of_a_file_follows_from_the_files_that_were_read(out, kind, sources):
    """As in NeMo Curator: 12 digits of the SHA-256 of the sorted names and the task."""
    path = kind(out).write(item_batch(ROWS, sources=sources))
    digest = hashlib.sha256(b"/data/a.tar|/data/b.tar|").hexdigest()[:12]
    assert path == str(out / digest) + kind.suffix
    assert names_in(out) == [digest + kind.suffix]


def test_the_task_is_a_part_of_the_name(out):
    batch = InterleavedBatch(item_table(ROWS), source_files=("a",), task_id="7")
    path = InterleavedParquetWriter(out).write(batch)
    assert path.endswith(hashlib.sha256(b"a|7").hexdigest()[:12] + ".parquet")


def test_without_files_that_were_read_the_name_is_random(out, kind, caplog):
    writer = kind(out)
    paths = {writer.write(item_batch(ROWS, sources=())) for _ in range(2)}
    assert len(paths) == 2
    assert all(re.fullmatch(r"[0-9a-f]{32}", path.rpartition("/")[2].partition(".")[0]) for path in paths)
    assert "random name" in caplog.messages[0]


def test_a_second_run_replaces_the_file(out, kind):
    kind(out).write(item_batch([text(0, "old")]))
    path = kind(out).write(item_batch([text(0, "new")]))
    assert len(names_in(out)) == 1
    with open(path, "rb") as file:
        assert b"new" in file.read()


@pytest.mark.parametrize("place", ["local", "memory"])
def test_modes(tmp_path, kind, place):
    path = str(tmp_path / "deep/out") if place == "local" else f"memory://{tmp_path}/out"
    old = kind(path, mode="error").write(item_batch(ROWS))
    system, _ = fsspec.core.url_to_fs(path)
    with pytest.raises(FileExistsError, match="already exists"):
        kind(path, mode="error")
    with pytest.raises(NotImplementedError, match="append is not implemented"):
        kind(path, mode="append")
    with pytest.raises(ValueError, match="no mode 'replace'"):
        kind(path, mode="replace")
    kind(path, mode="ignore")
    assert system.exists(old)
    kind(path, mode="overwrite")
    assert system.exists(path)
    assert not system.exists(old)


def test_only_files_of_writers_are_overwritten(out, kind):
    """The original removes whatever is at the path, and with a wrong path that is somebody's home."""
    kind(out).write(item_batch(ROWS))
    (out / "thesis.tex").write_text("…")
    with pytest.raises(UsageError, match=r"is not overwritten, as it also has 'thesis.tex'"):
        kind(out, mode="overwrite")
    assert len(names_in(out)) == 2
    (out / "thesis.tex").unlink()
    (out / ".touchfs-tmp-0123").mkdir()
    kind(out, mode="overwrite")
    assert names_in(out) == []


def test_what_killed_writers_left_behind_goes_and_writers_at_work_stay(out, kind):
    (out / ".touchfs-tmp-killed").mkdir(parents=True)
    (out / ".touchfs-tmp-killed/part0").write_bytes(b"half")
    (out / ".touchfs-tmp-swap-0").mkdir()
    with kind(out).named("slow") as shard:
        for mode in ("ignore", "overwrite"):
            kind(out, mode=mode)
            (building,) = (name for name in names_in(out) if "swap" not in name)
            assert building != ".touchfs-tmp-killed"
        shard.append(item_batch(ROWS))
    assert f"slow{kind.suffix}" in names_in(out)
    kind(out)
    assert not any(name.startswith(".touchfs-tmp-") and "swap" not in name for name in names_in(out))


def test_a_store_has_the_file_and_nothing_else(tmp_path, kind):
    root = f"memory://{tmp_path}/out"
    path = kind(root).write(item_batch(ROWS))
    system = fsspec.filesystem("memory")
    assert path.startswith(root)
    assert [f"memory://{name}" for name in system.find(str(tmp_path))] == [path]
    local = tmp_path / "copy"
    local.write_bytes(system.cat_file(path))
    if kind is InterleavedParquetWriter:
        assert parquet.read_table(local).equals(item_table(ROWS))
    else:
        assert list(read_tar(local)) == ["s.1.png", "s.json"]


def test_a_store_whose_upload_fails_has_nothing(tmp_path, kind, monkeypatch):
    system = fsspec.filesystem("memory")
    writer = kind(f"memory://{tmp_path}/out")

    def fail(*args, **options):
        raise OSError("no space")

    monkeypatch.setattr(type(system), "mv", fail)
    with pytest.raises(SourceError, match="cannot be written: no space"):
        writer.write(item_batch(ROWS))
    assert system.find(str(tmp_path)) == []


def test_an_address_that_no_store_has(kind):
    with pytest.raises(UsageError, match="cannot be written"):
        kind("nosuch://host/out")


def test_an_exception_discards_the_file_and_keeps_the_old_one(out, kind):
    writer = kind(out)
    path = writer.write(item_batch([text(0, "old")]))
    with pytest.raises(ZeroDivisionError), writer.writing(SOURCES) as shard:
        shard.append(item_batch([text(0, "new")]))
        raise ZeroDivisionError
    assert shard.path == path
    assert len(names_in(out)) == 1
    with open(path, "rb") as file:
        assert b"old" in file.read()


def test_a_disk_that_is_full(out, kind):
    """Here a limit on the size of files; the error is that of the output, and the old file stays."""
    writer = kind(out)
    path = writer.write(item_batch([text(0, "old")]))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, hard))
    try:
        with pytest.raises(SourceError, match=f"{path}: cannot be written: .*File too large"):
            writer.write(item_batch([image(0, bytes(2**21))]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names_in(out) == [path.rpartition("/")[2]]


def test_an_error_of_what_is_read_is_not_taken_for_one_of_the_output(out, kind):
    with pytest.raises(MissingFileError, match=r"^a\.tar: gone"), kind(out).writing(SOURCES):
        raise MissingFileError("gone", path="a.tar")


def test_a_file_where_the_directory_should_be(tmp_path, kind):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnwritableError, match="file: cannot be written: Not a directory"):
        kind(tmp_path / "file")


def test_a_file_without_rows(out, kind):
    writer = kind(out)
    with writer.writing(SOURCES) as shard:
        pass
    assert shard.rows == 0
    if kind is InterleavedParquetWriter:
        assert parquet.read_table(shard.path).equals(INTERLEAVED_SCHEMA.empty_table())
    else:
        assert read_tar(shard.path) == {}
    assert writer.write(item_batch([])) == shard.path


def test_a_writer_goes_to_other_processes(out, kind):
    """There it does not look at its mode again: the directory exists by then."""
    copy = pickle.loads(pickle.dumps(kind(out, mode="error", schema=INTERLEAVED_SCHEMA)))
    assert copy.describe() == kind(out, schema=INTERLEAVED_SCHEMA).describe()
    path = copy.write(item_batch(ROWS))
    assert names_in(out) == [path.rpartition("/")[2]]


def test_a_type_that_parquet_does_not_have(out):
    rows = [text(0, "a", span=(1, 2, 3))]
    with pytest.raises(ArgumentTypeError, match="month_day_nano_interval"):
        InterleavedParquetWriter(out).write(item_batch(rows, {"span": pa.month_day_nano_interval()}))
    assert names_in(out) == []


def test_images_are_fetched(tmp_path, out, kind):
    path = make_wds_tar(tmp_path / "a.tar", [("x.png", PNG + b"bytes")])
    ref = format_source_ref(SourceRef(str(path), "x.png"))
    batch = item_batch([image(0, None, source_ref=ref)], sources=(str(path),))
    written = kind(out).write(batch)
    with open(written, "rb") as file:
        assert PNG + b"bytes" in file.read()
    written = kind(out, materialize_on_write=False).write(batch)
    with open(written, "rb") as file:
        assert PNG + b"bytes" not in file.read()


def test_images_elsewhere_need_an_allowed_location(tmp_path, out):
    (tmp_path / "x.png").write_bytes(PNG)
    batch = item_batch([image(0, None, source_ref=format_source_ref(SourceRef(str(tmp_path / "x.png"))))])
    with pytest.raises(RuntimeError, match=r"Materialization failed \(1 errors\). First: .*--allow-location"):
        InterleavedParquetWriter(out).write(batch)
    path = InterleavedParquetWriter(out, locations=[str(tmp_path)]).write(batch)
    assert parquet.read_table(path)["binary_content"].to_pylist() == [PNG]


def test_an_error_discards_the_file(out, kind):
    with pytest.raises(RuntimeError, match=r"Materialization failed \(1 errors\). First: "):
        kind(out).write(item_batch([text(0, "a"), missing_image()]))
    assert names_in(out) == []


@pytest.mark.parametrize(
    ("policy", "kept"), [("warn", ["a0", "b0", "b1"]), ("drop_row", ["a0", "b0"]), ("drop_sample", ["a0"])]
)
def test_other_policies(out, policy, kept):
    rows = [text(0, "x", "a"), text(0, "y", "b"), missing_image(1, "b")]
    path = InterleavedParquetWriter(out, on_materialize_error=policy).write(item_batch(rows))
    found = parquet.read_table(path).to_pylist()
    assert [f"{row['sample_id']}{row['position']}" for row in found] == kept


def test_policies_apply_to_errors_of_before(out, kind):
    batch = item_batch([image(0, PNG, materialize_error="bad pixels")])
    with pytest.raises(RuntimeError, match="First: bad pixels"):
        kind(out, materialize_on_write=False).write(batch)


def test_a_policy_that_does_not_exist(out, kind):
    with pytest.raises(ArgumentValueError, match="on_materialize_error is one of error, warn"):
        kind(out, on_materialize_error="ignore")


@pytest.mark.parametrize("has_column", [True, False])
def test_rows_without_errors_are_written_with_any_policy(out, has_column):
    table = item_table(ROWS)
    if not has_column:
        table = table.drop_columns(["materialize_error"])
    path = InterleavedParquetWriter(out).write(InterleavedBatch(table, source_files=SOURCES))
    assert parquet.read_table(path).num_rows == 4


def test_a_schema_says_which_columns_there_are(out):
    schema = pa.schema([*INTERLEAVED_SCHEMA, ("score", pa.float32())])
    path = InterleavedParquetWriter(out, schema=schema).write(item_batch(ROWS))
    assert parquet.read_schema(path).names == schema.names
    assert parquet.read_schema(path).field("score").type == pa.float32()


def test_a_schema_is_kept_exactly(out):
    """With the metadata in which Hugging Face's datasets has its features."""
    fields = [*INTERLEAVED_SCHEMA, pa.field("lang", pa.string(), nullable=False, metadata={"a": "b"})]
    schema = pa.schema(fields, {"huggingface": "{}"})
    path = InterleavedParquetWriter(out, schema=schema).write(item_batch([text(0, "a", lang="de")]))
    found = parquet.read_schema(path)
    assert found.metadata[b"huggingface"] == b"{}"
    assert found.field("lang").nullable is False
    assert found.field("lang").metadata[b"a"] == b"b"


def test_overrides_change_types(out):
    rows = [text(0, "a", score="1.5", other="x")]
    writer = InterleavedParquetWriter(out, schema_overrides={"score": pa.float64(), "text_content": pa.large_string()})
    found = parquet.read_table(writer.write(item_batch(rows)))
    assert found["score"].to_pylist() == [1.5]
    assert found.schema.field("text_content").type == pa.large_string()
    assert "other" not in found.column_names


def test_both_a_schema_and_overrides(out, kind, caplog):
    kind(out, schema=INTERLEAVED_SCHEMA, schema_overrides={"x": pa.int8()}).write(item_batch(ROWS))
    assert "schema_overrides is ignored" in caplog.messages[0]


def test_a_value_that_its_type_cannot_hold(out):
    writer = InterleavedParquetWriter(out, schema_overrides={"n": pa.int8()})
    with pytest.raises(ArgumentTypeError, match="values do not fit the schema"):
        writer.write(item_batch([text(0, "a", n=1000)], {"n": pa.int64()}))
    assert names_in(out) == []


def test_locators_as_file_groups(out):
    ref = format_source_ref(SourceRef("a.tar", "m.png", 512, 8, 3))
    overrides = {"source_ref": FILE_TYPE, "source_member": pa.string(), "source_frame_index": pa.int32()}
    writer = InterleavedParquetWriter(out, schema_overrides=overrides)
    (row,) = parquet.read_table(writer.write(item_batch([image(0, PNG, source_ref=ref)]))).to_pylist()
    assert row["source_ref"]["uri"] == "a.tar"
    assert (row["source_ref"]["offset"], row["source_ref"]["size"]) == (512, 8)
    assert (row["source_member"], row["source_frame_index"]) == ("m.png", 3)


def test_no_index_of_pandas_is_written_even_if_asked(out):
    frame = item_table(ROWS).to_pandas().set_index("url")
    writer = InterleavedParquetWriter(out, write_kwargs={"index": True})
    schema = parquet.read_schema(writer.write(InterleavedBatch(frame, source_files=SOURCES)))
    assert schema.names == INTERLEAVED_SCHEMA.names
    assert schema.metadata is None


@pytest.mark.parametrize("missing", ["sample_id", "position", "modality"])
def test_columns_that_are_required(out, kind, missing):
    table = item_table(ROWS).drop_columns([missing])
    with pytest.raises(ArgumentValueError, match=f"no column '{missing}'"):
        kind(out).write(InterleavedBatch(table))
    names = [name for name in table.column_names if name != missing]
    nulls = table.select(names).append_column(missing, pa.nulls(len(table), INTERLEAVED_SCHEMA.field(missing).type))
    with pytest.raises(ArgumentValueError, match=f"'{missing}' contains null values"):
        kind(out).write(InterleavedBatch(nulls))
    assert names_in(out) == []


def test_several_columns_of_one_name(out, kind):
    table = item_table(ROWS)
    table = table.append_column("text_content", table["text_content"])
    with pytest.raises(ArgumentValueError, match="the batch has several columns 'text_content'"):
        kind(out).write(InterleavedBatch(table, source_files=SOURCES))
    assert names_in(out) == []


def test_parquet_has_any_modality(out):
    path = InterleavedParquetWriter(out).write(item_batch([text(0, "a") | {"modality": "video"}]))
    assert parquet.read_table(path)["modality"].to_pylist() == ["video"]


def column_of(path, name):
    group = parquet.ParquetFile(path).metadata.row_group(0)
    (found,) = [group.column(i) for i in range(group.num_columns) if group.column(i).path_in_schema == name]
    return found


def test_each_image_is_a_range_of_the_file(out):
    """Curator's writer puts all images into one compressed dictionary page."""
    rows = [image(number, PNG + bytes([number]) * 50_000) for number in range(20)]
    path = InterleavedParquetWriter(out).write(item_batch(rows))
    images = column_of(path, "binary_content")
    assert images.compression == "UNCOMPRESSED"
    assert not images.has_dictionary_page
    assert images.has_offset_index
    with open(path, "rb") as file:
        data = file.read()
    assert all(data.count(row["binary_content"]) == 1 for row in rows)
    assert column_of(path, "sample_id").compression == "ZSTD"


def test_compression_is_an_option(out):
    batch = item_batch(ROWS)
    path = InterleavedParquetWriter(out, write_kwargs={"compression": "gzip"}).write(batch)
    assert column_of(path, "sample_id").compression == "GZIP"
    assert column_of(path, "binary_content").compression == "UNCOMPRESSED"
    path = InterleavedParquetWriter(out, write_kwargs={"compression": {"binary_content": "zstd"}}).write(batch)
    assert column_of(path, "binary_content").compression == "ZSTD"
    with pytest.raises(ArgumentValueError, match="no compression 'rar'"):
        InterleavedParquetWriter(out, write_kwargs={"compression": "rar"})


def test_options_of_pyarrow(out):
    writer = InterleavedParquetWriter(out, write_kwargs={"row_group_size": 2, "data_page_version": "2.0"})
    metadata = parquet.ParquetFile(writer.write(item_batch(ROWS))).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [2, 2]
    with pytest.raises(ArgumentValueError, match="at least one row"):
        InterleavedParquetWriter(out, write_kwargs={"row_group_size": 0})
    with pytest.raises(ArgumentValueError, match=r"cannot be written so: .*colour"):
        InterleavedParquetWriter(out, write_kwargs={"colour": 1})


def test_columns_that_only_some_batches_have(out):
    writer = InterleavedParquetWriter(out)
    with writer.writing(SOURCES) as shard:
        shard.append(item_batch([text(0, "a", "s1", lang="de", n=1)], {"n": pa.int32()}))
        shard.append(item_batch([text(0, "b", "s2")]))
        shard.append(item_batch([text(0, "c", "s3", n=2**40, url="u")], {"n": pa.int64()}))
    found = parquet.read_table(shard.path)
    assert found.column_names == [*INTERLEAVED_SCHEMA.names, "lang", "n", "url"]
    assert found.select(["lang", "n", "url"]).to_pylist() == [
        {"lang": "de", "n": 1, "url": None},
        {"lang": None, "n": None, "url": None},
        {"lang": None, "n": 2**40, "url": "u"},
    ]


def test_new_columns_after_row_groups_were_written(out, monkeypatch):
    monkeypatch.setattr("touchfs.interleaved.write.parquet_items.ROW_GROUP_BYTES", 1)
    with InterleavedParquetWriter(out).writing(SOURCES) as shard:
        for number in range(4):
            shard.append(item_batch([text(0, "a", f"s{number}", **{f"column{number // 2}": "x"})]))
    found = parquet.read_table(shard.path)
    assert found["sample_id"].to_pylist() == ["s0", "s1", "s2", "s3"]
    assert found["column0"].to_pylist() == ["x", "x", None, None]
    assert found["column1"].to_pylist() == [None, None, "x", "x"]
    assert names_in(out) == [shard.path.rpartition("/")[2]]


def test_types_that_do_not_go_together(out):
    writer = InterleavedParquetWriter(out)
    with pytest.raises(ArgumentTypeError, match=r"do not fit one Parquet file: .*schema_overrides="):  # noqa: SIM117
        with writer.writing(SOURCES) as shard:
            shard.append(item_batch([text(0, "a", n=1)], {"n": pa.int64()}))
            shard.append(item_batch([text(0, "b", n="x")]))
    assert names_in(out) == []


def test_row_groups_have_a_limited_size(out):
    rows = [image(number, bytes([number % 256]) * 2**20) for number in range(80)]
    with InterleavedParquetWriter(out).writing(SOURCES) as shard:
        shard.append(item_batch(rows))
        for number in range(10):
            shard.append(item_batch([image(number, bytes(2**20), f"t{number}")]))
    metadata = parquet.ParquetFile(shard.path).metadata
    sizes = [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]
    assert len(sizes) >= 2
    assert max(sizes) <= 64 * 2**20 + 100_000


def test_many_mint_frames(tmp_path, out, caplog):
    """Rows that locate frames get them, and the locators stay."""
    sample = mint_sample(1, frames=3)
    path = make_wds_tar(tmp_path / "a.tar", [sample])
    member = f"{1:032x}.tiff"
    refs = [format_source_ref(SourceRef(str(path), member, None, None, number)) for number in range(3)]
    rows = [image(number, None, content_type="image/tiff", source_ref=ref) for number, ref in enumerate(refs)]
    with caplog.at_level(logging.WARNING):
        found = parquet.read_table(InterleavedParquetWriter(out).write(item_batch(rows, sources=(str(path),))))
    assert found["source_ref"].to_pylist() == refs
    assert len(set(found["binary_content"].to_pylist())) == 3
    assert caplog.messages == []
