"""NeMo Curator's page "Interleaved IO" from top to end: each name, parameter and combination does what it says."""

import io
import json
import logging
import tarfile
from urllib.parse import quote

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from interleaved_tars import WdsSample, make_image, make_wds_tar, mint_sample
from PIL import Image

from touchfs.interleaved import (
    INTERLEAVED_SCHEMA,
    InterleavedBatch,
    InterleavedFilter,
    InterleavedParquetReader,
    InterleavedParquetWriter,
    InterleavedParquetWriterStage,
    InterleavedWebdatasetReader,
    InterleavedWebdatasetWriter,
    InterleavedWebdatasetWriterStage,
    SourceRef,
    align_table,
    format_source_ref,
    materialize,
    reconcile_schema,
    resolve_schema,
)

READERS = {"wds": InterleavedWebdatasetReader, "parquet": InterleavedParquetReader}
WRITERS = {"wds": InterleavedWebdatasetWriterStage, "parquet": InterleavedParquetWriterStage}


@pytest.fixture
def mint(tmp_path):
    """Two tars like those of MINT-1T, with three samples each of one text more than images."""
    for shard in range(2):
        make_wds_tar(tmp_path / f"mint/{shard:05d}.tar", [mint_sample(shard * 3 + i, frames=2) for i in range(3)])
    return tmp_path / "mint"


@pytest.fixture
def parquet(mint):
    (InterleavedWebdatasetReader(str(mint)) | InterleavedParquetWriter(path=str(mint.parent / "parquet"))).run()
    return mint.parent / "parquet"


def rows_of(reader):
    return [row for batch in reader for row in batch.table.to_pylist()]


def content(rows):
    """What of the rows is the same in both formats."""
    names = ("sample_id", "position", "modality", "text_content", "url")
    return sorted(tuple(row.get(name) for name in names) for row in rows)


def image_rows(reader):
    return [row for row in rows_of(reader) if row["modality"] == "image"]


def text_row(sample_id="a", **others):
    return {"sample_id": sample_id, "position": 0, "modality": "text", "text_content": "x", **others}


def image_row(sample_id="a", position=1, **others):
    return {"sample_id": sample_id, "position": position, "modality": "image", "content_type": "image/png", **others}


def batch_of(*rows, **options):
    names = list(dict.fromkeys([*INTERLEAVED_SCHEMA.names, *(name for row in rows for name in row)]))
    fields = [
        INTERLEAVED_SCHEMA.field(name) if name in INTERLEAVED_SCHEMA.names else pa.field(name, pa.string())
        for name in names
    ]
    table = pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows], pa.schema(fields))
    return InterleavedBatch(table, **options)


# "All four combinations work out of the box"


@pytest.mark.parametrize(
    ("source", "target"),
    [
        *(("wds", "parquet"), ("parquet", "wds")),
        *(pytest.param(kind, kind, marks=pytest.mark.variant) for kind in ("wds", "parquet")),
    ],
)
def test_all_four_combinations(mint, parquet, tmp_path, source, target):
    data = mint if source == "wds" else parquet
    (READERS[source](str(data)) | WRITERS[target](path=str(tmp_path / "out"))).run()
    options = {"sample_id_field": "sample_id"} if target == "wds" else {}
    assert content(rows_of(READERS[target](str(tmp_path / "out"), **options))) == content(
        rows_of(InterleavedWebdatasetReader(str(mint)))
    )


def test_in_memory_both_are_batches(mint, parquet):
    for reader in (InterleavedWebdatasetReader(str(mint)), InterleavedParquetReader(str(parquet))):
        for batch in reader:
            assert isinstance(batch, InterleavedBatch) and batch.validate()
            assert (batch.num_items, batch.count("image"), batch.count("metadata")) == (3, 6, 3)


def test_curate_once_in_parquet_train_from_tars(mint, tmp_path):
    """The pipeline of "Complete IO Pipeline Examples"."""
    curated, shards = str(tmp_path / "curated"), str(tmp_path / "shards")
    (
        InterleavedWebdatasetReader(file_paths=str(mint), fields=("url",), max_batch_bytes=512 * 1024 * 1024)
        | InterleavedFilter("aspect_ratio < 1.55")
        | InterleavedParquetWriter(path=curated, on_materialize_error="drop_sample")
    ).run()
    (InterleavedParquetReader(file_paths=curated) | InterleavedWebdatasetWriterStage(path=shards)).run()
    rows = image_rows(InterleavedWebdatasetReader(shards, sample_id_field="sample_id", materialize_on_read=True))
    assert len(rows) == 6  # frames of 24x16 stay, those of 25x16 go
    assert {Image.open(io.BytesIO(row["binary_content"])).size for row in rows} == {(24, 16)}


# Readers


def test_a_row_maps_to_an_item(parquet):
    (first, *_) = rows_of(InterleavedParquetReader(str(parquet)))
    assert (first["modality"], first["position"]) == ("metadata", -1)
    assert set(INTERLEAVED_SCHEMA.names) <= set(first)


@pytest.mark.parametrize("kind", READERS)
def test_fields_pass_columns_through_and_missing_ones_are_null(mint, parquet, kind, caplog):
    data = mint if kind == "wds" else parquet
    with caplog.at_level(logging.WARNING):
        (batch, *_) = READERS[kind](str(data), fields=("url", "license"))
    assert batch.table.column_names[-2:] == ["url", "license"]
    assert set(batch.table.column_names) == {*INTERLEAVED_SCHEMA.names, "url", "license"}
    assert batch.table["license"].null_count == batch.count()
    assert batch.table["url"].null_count < batch.count()


def test_a_file_without_a_requested_column_beside_one_with_it(tmp_path):
    for name, others in ("a", {"crawl_date": "1"}), ("b", {}):
        InterleavedParquetWriter(path=str(tmp_path / "p"), mode="ignore").write(
            batch_of(text_row(name, **others), source_files=(name,))
        )
    found = {
        row["sample_id"]: row["crawl_date"]
        for row in rows_of(InterleavedParquetReader(str(tmp_path / "p"), fields=("crawl_date",)))
    }
    assert found == {"a": "1", "b": None}


@pytest.mark.parametrize("kind", READERS)
def test_max_batch_bytes_splits_and_keeps_the_lineage(mint, parquet, kind):
    data = mint if kind == "wds" else parquet
    batches = list(READERS[kind](str(data), max_batch_bytes=1))
    assert [batch.num_items for batch in batches] == [1] * 6
    files = [name.partition("::")[0] for batch in batches for name in batch.source_files]
    assert files == [str(path) for path in sorted(data.iterdir()) for _ in range(3)]
    with pytest.raises(ValueError, match="must be > 0"):
        list(READERS[kind](str(data), max_batch_bytes=0))


def test_schema_aligns_strictly(parquet):
    target = pa.schema([pa.field("sample_id", pa.string()), pa.field("url", pa.string()), pa.field("new", pa.int8())])
    (batch, *_) = InterleavedParquetReader(str(parquet), schema=target)
    assert batch.table.schema.names == ["sample_id", "url", "new"] and batch.table["new"].null_count == batch.count()


def test_schema_overrides_change_some_types(parquet):
    (batch, *_) = InterleavedParquetReader(str(parquet), schema_overrides={"position": pa.int64(), "page": pa.int16()})
    assert batch.table.schema.field("position").type == pa.int64()
    assert batch.table.schema.field("page").type == pa.int16()


def test_schema_is_preferred_to_schema_overrides_with_a_warning(parquet, caplog):
    target = pa.schema([INTERLEAVED_SCHEMA.field("sample_id")])
    with caplog.at_level(logging.WARNING):
        (batch, *_) = InterleavedParquetReader(str(parquet), schema=target, schema_overrides={"x": pa.int8()})
    assert batch.table.column_names == ["sample_id"] and "schema" in caplog.text


def test_names_of_another_tar_layout(tmp_path):
    sample = WdsSample(
        "k",
        texts=["one", None],
        images=[None, None],
        members={"k.pic": make_image("png")},
        passthrough={"id": "the id", "file": "k.pic", "shown": [None, "some"]},
        suffix=".meta",
        fields=("words", "pictures"),
    )
    make_wds_tar(tmp_path / "t.tar", [sample])
    document = json.loads(sample.document()) | {"pictures": [None, "some"]}
    make_wds_tar(tmp_path / "t.tar", [("k.meta", json.dumps(document).encode()), ("k.pic", make_image("png"))])
    reader = InterleavedWebdatasetReader(
        str(tmp_path / "t.tar"),
        sample_id_field="id",
        json_extensions=(".meta",),
        image_extensions=(".pic",),
        texts_field="words",
        images_field="pictures",
        image_member_field="file",
        materialize_on_read=True,
    )
    rows = rows_of(reader)
    assert [(row["sample_id"], row["position"], row["modality"]) for row in rows] == [
        ("the id", -1, "metadata"),
        ("the id", 0, "text"),
        ("the id", 1, "image"),
    ]
    assert rows[2]["binary_content"] == make_image("png")


def test_fields_per_image_and_per_text(tmp_path):
    sample = WdsSample(
        "k",
        texts=["one", None, "two"],
        images=[None, "k.png", None],
        members={"k.png": make_image("png")},
        passthrough={"alt": ["ä picture"], "lang": ["en", "de"]},
    )
    make_wds_tar(tmp_path / "t.tar", [sample])
    reader = InterleavedWebdatasetReader(str(tmp_path / "t.tar"), per_image_fields=("alt",), per_text_fields=("lang",))
    found = {row["position"]: (row["alt"], row["lang"]) for row in rows_of(reader) if row["position"] >= 0}
    assert found == {0: (None, "en"), 1: ("ä picture", None), 2: (None, "de")}


# Writers


@pytest.mark.parametrize("kind", WRITERS)
def test_writers_take_schema_and_overrides(tmp_path, kind):
    writer = WRITERS[kind](path=str(tmp_path / "out"), schema_overrides={"url": pa.large_string()})
    path = writer.write(batch_of(text_row(url="u")))
    if kind == "parquet":
        assert pq.read_schema(path).field("url").type == pa.large_string()
    assert rows_of(READERS[kind](path))[0]["modality"]


def members_of(path):
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def test_ids_are_quoted_and_come_back(tmp_path):
    """`urllib.parse.quote(sample_id, safe="")`; a dot is quoted, too, as WebDataset cuts names there."""
    ids = ["a/b", "a%2Fb", "x.y", "ü ü", "..", "a"]
    path = InterleavedWebdatasetWriter(path=str(tmp_path / "out")).write(batch_of(*(text_row(name) for name in ids)))
    assert list(members_of(path)) == [quote(name, safe="").replace(".", "%2E") + ".json" for name in ids]
    reader = InterleavedWebdatasetReader(path, sample_id_field="sample_id")
    assert [row["sample_id"] for row in rows_of(reader) if row["modality"] == "text"] == ids


def test_rows_of_a_sample_need_not_be_adjacent(tmp_path):
    rows = [text_row("a"), text_row("b"), text_row("a", position=2), text_row("b", position=1)]
    path = InterleavedWebdatasetWriter(path=str(tmp_path / "out")).write(batch_of(*rows))
    found = {name: json.loads(data)["texts"] for name, data in members_of(path).items()}
    assert found == {"a.json": ["x", None, "x"], "b.json": ["x", "x"]}


def test_gaps_are_none_and_skipped_on_the_way_back(tmp_path):
    rows = [text_row(position=1), image_row(position=4, binary_content=make_image("png"))]
    path = InterleavedWebdatasetWriter(path=str(tmp_path / "out")).write(batch_of(*rows))
    document = json.loads(members_of(path)["a.json"])
    assert document["texts"][:2] == [None, "x"] and document["images"] == [None] * 4 + ["a.4.png"]
    found = [row["position"] for row in rows_of(InterleavedWebdatasetReader(path))]
    assert found == [-1, 1, 4]


def test_another_modality_is_a_value_error_before_anything_is_written(tmp_path):
    rows = [text_row(), {"sample_id": "a", "position": 1, "modality": "video"}]
    with pytest.raises(ValueError, match=r"Unsupported modality \['video'\]"):
        InterleavedWebdatasetWriterStage(path=str(tmp_path / "out")).write(batch_of(*rows))
    assert not list(tmp_path.glob("out/*"))


# Schema utilities


def test_reconcile_schema():
    dictionary = pa.dictionary(pa.int8(), pa.string())
    found = reconcile_schema(
        pa.schema(
            [
                ("url", dictionary),
                ("sample_id", dictionary),
                ("position", pa.int64()),
                ("text_content", pa.large_string()),
                ("n", pa.int8()),
            ]
        )
    )
    assert found.names == ["url", "sample_id", "position", "text_content", "n"]
    assert found.types == [pa.string(), pa.string(), pa.int32(), pa.large_string(), pa.int8()]


def test_align_table():
    table = pa.table({"position": pa.array([1], pa.int64()), "extra": [1], "n": pa.array([300], pa.int64())})
    found = align_table(table, pa.schema([("sample_id", pa.string()), ("position", pa.int32())]))
    assert found.to_pylist() == [{"sample_id": None, "position": 1}]
    with pytest.raises(pa.ArrowInvalid):
        align_table(table, pa.schema([("n", pa.int8())]))


def test_resolve_schema():
    assert resolve_schema(None, None) is None
    found = resolve_schema(None, {"position": pa.int64(), "url": pa.string()})
    assert found.names == [*INTERLEAVED_SCHEMA.names, "url"] and found.field("position").type == pa.int64()


# Materialization error policy

MISSING = image_row("b", source_ref=format_source_ref(SourceRef("gone.tar", "m.png", 0, 9)))


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(
    ("policy", "kept"), [("warn", ["a", "b", "b"]), ("drop_row", ["a", "b"]), ("drop_sample", ["a"]), ("error", None)]
)
@pytest.mark.parametrize("upstream", [False, True])
def test_the_policy_covers_the_fetch_and_what_came_before(tmp_path, kind, policy, kept, upstream):
    bad = image_row("b", binary_content=b"x", materialize_error="an upstream stage failed") if upstream else MISSING
    rows = batch_of(text_row("a"), text_row("b"), bad)
    writer = WRITERS[kind](path=str(tmp_path / "out"), on_materialize_error=policy)
    if kept is None:
        with pytest.raises(RuntimeError, match=r"Materialization failed \(1 error"):
            writer.write(rows)
        assert not [path for path in tmp_path.glob("out/*") if not path.name.startswith(".")]
        return
    found = rows_of(READERS[kind](writer.write(rows)))
    assert [row["sample_id"] for row in found if row["modality"] != "metadata"] == kept


def test_the_default_raises(tmp_path):
    with pytest.raises(RuntimeError, match="Materialization failed"):
        InterleavedParquetWriter(path=str(tmp_path / "out")).write(batch_of(MISSING))


# Mixed-backend path handling


def test_a_batch_of_files_and_of_another_store(tmp_path):
    images = [make_image("png", seed=seed) for seed in range(2)]
    (tmp_path / "local.bin").write_bytes(b"...." + images[0])
    with fsspec.open("memory://seed/remote.bin", "wb") as file:
        file.write(b".." + images[1])
    refs = [
        SourceRef(str(tmp_path / "local.bin"), "m", 4, len(images[0])),
        SourceRef("memory://seed/remote.bin", "m", 2, len(images[1])),
    ]
    rows = batch_of(*(image_row(position=i, source_ref=format_source_ref(ref)) for i, ref in enumerate(refs)))
    found = materialize(rows, locations=(str(tmp_path), "memory://seed"))
    assert found.table["binary_content"].to_pylist() == images
    kept = InterleavedFilter("width == 24", locations=(str(tmp_path), "memory://seed"))(rows)
    assert kept.count() == 2


# "Pass through provenance fields: missing the list silently drops them": here a warning says which


def test_a_warning_lists_what_fields_leave_out(parquet, caplog):
    with caplog.at_level(logging.WARNING):
        list(InterleavedParquetReader(str(parquet), fields=("url",)))
    (message,) = [record.getMessage() for record in caplog.records if "pdf_name" in record.getMessage()]
    assert "image_metadata" in message and "url" not in message.split(",")
