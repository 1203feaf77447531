"""Pipelines of interleaved samples, their filters, and readers as nodes of a graph."""

import io
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from interleaved_tars import WdsSample, make_image, make_tiff, make_wds_tar, mint_sample
from PIL import Image

from touchfs.core.errors import FormatError, NotFoundError, UsageError
from touchfs.interleaved import (
    DropInvalidRows,
    DropOrphanMetadata,
    InterleavedBatch,
    InterleavedFilter,
    InterleavedParquetReader,
    InterleavedParquetWriter,
    InterleavedWebdatasetReader,
    InterleavedWebdatasetWriter,
    RecomputePositions,
    open_interleaved,
)
from touchfs.node import LazyInterleavedIterator, LazyMapper
from touchfs.testing import check_restore

READERS = {"wds": InterleavedWebdatasetReader, "parquet": InterleavedParquetReader}
WRITERS = {"wds": InterleavedWebdatasetWriter, "parquet": InterleavedParquetWriter}
SIZES = [(40, 20), (30, 30), (90, 10)]


@pytest.fixture(scope="module")
def tars(tmp_path_factory):
    """Three tars of two documents; each has a TIFF of frames with aspect ratios of 2, 1 and 9."""
    place = tmp_path_factory.mktemp("tars")
    for shard in range(3):
        make_wds_tar(place / f"{shard}.tar", [document(2 * shard + number) for number in range(2)])
    return place


@pytest.fixture
def own_tars(tars, tmp_path):
    return Path(shutil.copytree(tars, tmp_path / "own"))


def document(number):
    texts, images = [f"text {number}"], [None]
    for frame in range(len(SIZES)):
        texts, images = [*texts, None], [*images, f"page_{frame}"]
    return WdsSample(
        f"d{number}", texts, images, {f"d{number}.tiff": make_tiff(SIZES, "jpeg", number)}, {"number": number}
    )


def pixels(data):
    return np.asarray(Image.open(io.BytesIO(data)))


def images_of(reader):
    rows = [row for batch in reader for row in batch.table.to_pylist()]
    return {(row["sample_id"], row["position"]): row["binary_content"] for row in rows if row["modality"] == "image"}


@pytest.mark.parametrize(
    ("source", "target"),
    [
        *(("wds", "parquet"), ("parquet", "wds")),
        pytest.param("wds", "wds", marks=pytest.mark.variant),
    ],
)
def test_filtered_images_keep_their_pixels(tars, tmp_path, source, target):
    data = tars
    if source == "parquet":
        (InterleavedWebdatasetReader(str(tars)) | InterleavedParquetWriter(str(tmp_path / "first"))).run()
        data = tmp_path / "first"
    pipeline = (
        READERS[source](str(data)) | InterleavedFilter("aspect_ratio < 9") | WRITERS[target](str(tmp_path / "out"))
    )
    assert [(shard.samples, shard.rows) for shard in pipeline.run()] == [(2, 8)] * 3
    options = {"materialize_on_read": True} if target == "wds" else {}
    found = images_of(READERS[target](str(tmp_path / "out"), **options))
    assert sorted(found) == [(f"d{number}", position) for number in range(6) for position in (1, 2)]
    for (name, position), data in found.items():
        original = Image.open(io.BytesIO(make_tiff(SIZES, "jpeg", int(name[1:]))))
        original.seek(position - 1)
        assert np.array_equal(pixels(data), np.asarray(original))


def test_the_executor_does_not_matter(tars, tmp_path, processes):
    def run(name, executor):
        pipeline = InterleavedWebdatasetReader(str(tars)) | InterleavedFilter("width < 90")
        shards = (pipeline | InterleavedWebdatasetWriter(str(tmp_path / name))).run(executor)
        return [Path(shard.path).read_bytes() for shard in shards]

    expected = run("none", None)
    with ThreadPoolExecutor(2) as threads:
        assert run("threads", threads) == expected
    assert run("processes", processes) == expected


def test_progress_is_in_bytes_of_the_sources(tars, tmp_path):
    seen = []
    pipeline = InterleavedWebdatasetReader(str(tars)) | InterleavedParquetWriter(str(tmp_path / "out"))
    pipeline.run(progress=lambda done, total: seen.append((done, total)))
    total = sum(path.stat().st_size for path in tars.iterdir())
    assert seen[0] == (0, total) and seen[-1] == (total, total)


def test_any_function_is_a_filter_and_pipelines_are_iterable(tars):
    texts = InterleavedWebdatasetReader(str(tars)) | InterleavedFilter('modality == "text"') | RecomputePositions()
    doubled = texts | (lambda batch: batch.replaced(pa.concat_tables([batch.table, batch.table])))
    assert [batch.count("text") for batch in doubled] == [4] * 3
    assert [batch.count() for batch in texts] == [4] * 3


def test_stages_in_another_order_are_refused(tars, tmp_path):
    pipeline = InterleavedWebdatasetReader(str(tars)) | InterleavedParquetWriter(str(tmp_path / "out"))
    with pytest.raises(UsageError, match="the last stage"):
        pipeline | InterleavedFilter("width < 9")
    with pytest.raises(UsageError, match="not int"):
        InterleavedWebdatasetReader(str(tars)) | 5
    with pytest.raises(UsageError, match="no writer"):
        (InterleavedWebdatasetReader(str(tars)) | InterleavedFilter("width < 9")).run()
    with pytest.raises(UsageError, match="where, column 9"):
        InterleavedFilter("width < ")


def test_a_filter_needs_only_the_header_of_an_image(tmp_path):
    """The pixels are garbage, so nothing can have decoded them."""
    images = {f"k.{i}.png": make_image("png", (10 * (i + 1), 10))[:33] + bytes(100) for i in range(3)}
    make_wds_tar(tmp_path / "t.tar", [WdsSample("k", ["x", None, None], [None, *list(images)[1:]], images)])
    (batch,) = InterleavedWebdatasetReader(str(tmp_path / "t.tar")) | InterleavedFilter("aspect_ratio < 3")
    assert batch.table["position"].to_pylist() == [-1, 0, 1]
    assert batch.table["binary_content"].null_count == 3


@pytest.mark.parametrize("suffix", [".tar.gz", pytest.param(".tgz", marks=pytest.mark.variant)])
def test_sizes_in_a_compressed_tar(tmp_path, suffix):
    make_wds_tar(tmp_path / f"t{suffix}", [mint_sample(0, frames=3)])
    for eager in (False, True):
        reader = InterleavedWebdatasetReader(str(tmp_path / f"t{suffix}"), materialize_on_read=eager)
        (batch,) = reader | InterleavedFilter("width > 24")
        assert batch.count("image") == 2


def test_a_missing_image_fails_and_the_rest_stays(tmp_path):
    make_wds_tar(tmp_path / "t.tar", [WdsSample("k", ["x", None], [None, "gone.png"])])
    (batch,) = InterleavedWebdatasetReader(str(tmp_path / "t.tar")) | InterleavedFilter("width > 0")
    assert batch.table["modality"].to_pylist() == ["metadata", "text"]


def test_data_does_not_name_other_files(tmp_path):
    """A header outside of the dataset is not read, unless its place is allowed."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/x.png").write_bytes(make_image("png", (20, 10)))
    ref = f'{{"path": "{tmp_path}/secret/x.png"}}'
    row = {"sample_id": ["a"], "position": [0], "modality": ["image"], "binary_content": [None], "source_ref": [ref]}
    table = pa.table(row).cast(
        pa.schema(
            [
                ("sample_id", pa.string()),
                ("position", pa.int32()),
                ("modality", pa.string()),
                ("binary_content", pa.large_binary()),
                ("source_ref", pa.string()),
            ]
        )
    )
    assert InterleavedFilter("width == 20")(InterleavedBatch(table)).count() == 0
    assert InterleavedFilter("width == 20", (f"{tmp_path}/secret",))(InterleavedBatch(table)).count() == 1


# The filters of the base class of NeMo Curator's filters


def items(*rows):
    names = ("sample_id", "position", "modality")
    table = pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    return InterleavedBatch(
        table.cast(pa.schema([("sample_id", pa.string()), ("position", pa.int32()), ("modality", pa.string())]))
    )


def positions(batch):
    return list(zip(batch.table["sample_id"].to_pylist(), batch.table["position"].to_pylist(), strict=True))


def test_rows_of_an_invalid_modality_or_position_go():
    rows = [("a", -1, "metadata"), ("a", 0, "metadata"), ("a", 0, "text"), ("a", -1, "image"), ("a", 1, "video")]
    assert positions(DropInvalidRows()(items(*rows))) == [("a", -1), ("a", 0)]


def test_metadata_without_content_goes():
    rows = [("a", -1, "metadata"), ("b", -1, "metadata"), ("b", 0, "text")]
    assert positions(DropOrphanMetadata()(items(*rows))) == [("b", -1), ("b", 0)]


def test_positions_are_numbered_again_in_each_sample():
    rows = [
        ("b", 7, "text"),
        ("a", -1, "metadata"),
        ("a", 9, "image"),
        ("b", 7, "image"),
        ("a", 2, "text"),
        ("b", 3, "text"),
    ]
    found = positions(RecomputePositions()(items(*rows)))
    assert found == [("b", 1), ("a", -1), ("a", 1), ("b", 1), ("a", 0), ("b", 0)]
    assert positions(RecomputePositions()(items(*rows[1:2]))) == [("a", -1)]


# As nodes


def numbers(batch):
    return batch.table["sample_id"].to_pylist()


@pytest.mark.parametrize(
    ("kind", "shuffle"),
    [
        ("wds", True),
        ("parquet", False),
    ],
)
def test_a_reader_is_a_node_that_restores_exactly(tars, tmp_path, kind, shuffle):
    data = tars
    if kind == "parquet":
        (InterleavedWebdatasetReader(str(tars)) | InterleavedParquetWriter(str(tmp_path / "p"))).run()
        data = tmp_path / "p"

    def graph():
        leaf = LazyInterleavedIterator(READERS[kind](str(data), max_batch_bytes=1), shuffle, 7)
        return LazyMapper(LazyMapper(leaf, InterleavedFilter("width < 90")), numbers)

    assert sorted({name for names in graph() for name in names}) == [f"d{number}" for number in range(6)]
    check_restore(graph)


def test_ranks_share_the_partitions(tars):
    def names(rank):
        leaf = LazyInterleavedIterator(InterleavedWebdatasetReader(str(tars)), rank=rank, world_size=2)
        return [name for batch in leaf for name in set(numbers(batch))]

    assert sorted(names(0) + names(1)) == [f"d{number}" for number in range(6)]


def test_opening_by_the_names_of_the_files(own_tars, tmp_path):
    assert isinstance(open_interleaved(str(own_tars)), InterleavedWebdatasetReader)
    assert isinstance(open_interleaved(f"{own_tars}/*.tar"), InterleavedWebdatasetReader)
    with pytest.raises(NotFoundError):
        open_interleaved(str(tmp_path / "none"))
    (own_tars / "x.parquet").write_bytes(b"")
    with pytest.raises(UsageError, match="tars and Parquet"):
        open_interleaved(str(own_tars))


@pytest.mark.parametrize("cursor", ["", "x", 5, None, "[]", '{"file": 0}', '{"file": 9, "number": 0, "batch": 0}'])
def test_a_damaged_state_is_refused(tars, cursor):
    leaf = LazyInterleavedIterator(InterleavedWebdatasetReader(str(tars), max_batch_bytes=1))
    next(iter(leaf))
    state = leaf.state_dict()
    state["cursor"] = cursor
    with pytest.raises(FormatError):
        leaf.load_state_dict(state)
        next(iter(leaf))


def test_a_state_of_other_files_or_parameters_is_refused(own_tars):
    def leaf(**parameters):
        return LazyInterleavedIterator(InterleavedWebdatasetReader(str(own_tars), **parameters))

    state = leaf().state_dict()
    with pytest.raises(UsageError):
        leaf(max_batch_bytes=1).load_state_dict(state)
    make_wds_tar(own_tars / "3.tar", [])
    with pytest.raises(UsageError):
        leaf().load_state_dict(state)
