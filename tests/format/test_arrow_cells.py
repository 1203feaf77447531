"""Cells of Arrow files: the byte ranges that are found without pyarrow hold the values that pyarrow reads."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from arrow_files import EVERY, Write, all_cells, parse, values, write_file, write_stream
from checked_source import CheckedSource

from touchfs.core.errors import FormatError
from touchfs.core.extent import drive
from touchfs.format.arrow.batch import batch_layout
from touchfs.format.arrow.cells import cells


@pytest.mark.parametrize("write", [write_file, write_stream])
@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
def test_cells_of_images(write: Write, codec: str | None) -> None:
    images = [None, {"bytes": b"one" * 50, "path": "a.png"}, {"bytes": None, "path": None}, {"bytes": b"", "path": "b"}]
    batch = pa.record_batch({"label": pa.array([1, 2, 3, 4]), "image": pa.array(images)})
    data = write([batch, batch.slice(1, 2)], compression=codec)
    path = parse(data).schema.path("image", "bytes")
    assert path == (1, 0)
    assert all_cells(data, path) == [None, b"one" * 50, None, b"", b"one" * 50, None]


def test_only_the_rows_that_are_asked_for_are_read() -> None:
    batch = pa.record_batch({"a": pa.array([b"%d" % i for i in range(100_000)])})
    data = write_file([batch])
    file, source = parse(data), CheckedSource(data)
    layout = drive(batch_layout(file.schema, file.batches[0]), source)
    before = source.read_bytes
    assert values(data, drive(cells(layout, (0,), 70_000, 3), source)) == [b"70000", b"70001", b"70002"]
    assert source.read_bytes - before == 16


def test_a_column_without_cells() -> None:
    data = write_file([pa.record_batch({"a": pa.array([[1], [2]])})])
    with pytest.raises(FormatError, match="no cells"):
        all_cells(data, (0,))


def test_fixed_size_lists_are_one_range_a_row() -> None:
    kind = pa.list_(pa.list_(pa.float32(), 2), 3)
    rows = [[[1, 2], [3, 4], [5, 6]], None, [[7, 8], [9, 10], [11, 12]]]
    data = write_file([pa.record_batch({"a": pa.array(rows, kind)})])
    expected = [None if row is None else np.array(row, "<f4").tobytes() for row in rows]
    assert all_cells(data, (0,)) == expected


@pytest.mark.filterwarnings("ignore")
def test_a_file_that_hugging_face_wrote(tmp_path: Path) -> None:
    import datasets

    features = datasets.Features({"image": datasets.Image(), "text": datasets.Value("string")})
    images = [b"\x89PNG" + bytes(i) for i in range(5)]
    from datasets.arrow_writer import ArrowWriter

    with ArrowWriter(path=str(tmp_path / "a.arrow"), features=features, writer_batch_size=2) as writer:
        for i, image in enumerate(images):
            writer.write({"image": {"bytes": image, "path": None}, "text": f"row {i}"})
        writer.finalize()
    data = (tmp_path / "a.arrow").read_bytes()
    file = parse(data)
    assert file.is_stream and "huggingface" in file.schema.metadata
    assert all_cells(data, file.schema.path("image", "bytes")) == images
    assert all_cells(data, file.schema.path("text")) == [b"row %d" % i for i in range(5)]


def test_paths() -> None:
    schema = parse(write_file([EVERY])).schema
    assert schema.path("struct", "b") == (EVERY.schema.names.index("struct"), 1)
    assert schema.field(schema.path("struct", "b")).type.dtype == np.int64
    twice = parse(write_file([pa.record_batch([pa.array([1]), pa.array([2])], names=["a", "a"])])).schema
    for names, problem in ((("x",), "no column 'x'"), (("struct", "x"), "no column 'struct.x'")):
        with pytest.raises(FormatError, match=problem):
            schema.path(*names)
    with pytest.raises(FormatError, match="2 columns 'a'"):
        twice.path("a")


def test_lists_with_nulls_among_their_numbers() -> None:
    rows = [[1, 2], [3, None], None, [None, None], [5, 6]]
    data = write_file([pa.record_batch({"a": pa.array(rows, pa.list_(pa.int16(), 2))})])
    file, source = parse(data), CheckedSource(data)
    found = drive(cells(drive(batch_layout(file.schema, file.batches[0]), source), (0,)), source)
    assert found.partial is not None
    assert found.partial.tolist() == [False, True, False, True, False]
    assert found.valid.tolist() == [True, True, False, True, True]
