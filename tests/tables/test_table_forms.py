"""Forms of cells and columns of Arrow files: what pyarrow wrote, read from files through the forms."""

import fcntl
import io
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from conformance import MemorySource, check_reads

from touchfs.core.errors import FormatError
from touchfs.core.extent import Content, Extent, drive
from touchfs.form.arrays import Npy
from touchfs.format.arrow.batch import batch_layout
from touchfs.format.arrow.cells import cells
from touchfs.format.arrow.column import ColumnPart, column_parts, numbers_of
from touchfs.format.arrow.file import parse_arrow
from touchfs.limits import LIMITS, Limits
from touchfs.registry.forms import parse_form
from touchfs.source.data import DATA
from touchfs.source.scratch.store import Scratch
from touchfs.tables.arrow.decoded_buffer import KEPT_BUFFERS
from touchfs.tables.arrow.packed import packed_detail
from touchfs.tables.rows.column import column_content

RANDOM = np.random.default_rng(0)
# Larger than a window of SMALL, and not compressible
BIG = [RANDOM.bytes(30_000), b"", RANDOM.bytes(50_000), b"tail" * 5]
SMALL = Limits(window=10_000)


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scratch:
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    return Scratch.configured()


def write(path: Path, batches: list[pa.RecordBatch], codec: str | None) -> Path:
    with pa.ipc.new_file(path, batches[0].schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return path


def packed_cells(path: Path, limits: Limits) -> list[Content]:
    """The files of the first column of the first batch."""
    source = DATA.open(str(path))
    file = drive(parse_arrow(source.size), source)
    found = drive(cells(drive(batch_layout(file.schema, file.batches[0]), source), (0,)), source)
    assert found.buffers is not None and found.ranges is not None
    form = parse_form(f"packed/{found.codec}")
    made = []
    for start, length, buffer in zip(found.offsets, found.lengths, found.buffers, strict=True):
        offset, size = map(int, found.ranges[buffer])
        detail = packed_detail(int(start), int(length))
        assert form.size(size, detail) == length
        made.append(form.content(Extent(DATA.open(str(path)), offset, size), detail, limits))
    return made


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
@pytest.mark.parametrize("kept", [True, False])
def test_cells_of_compressed_buffers(
    codec: str, kept: bool, tmp_path: Path, scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.arrow", [pa.record_batch({"a": BIG})], codec)
    for made, value in zip(packed_cells(path, LIMITS), BIG, strict=True):
        check_reads(made, value)
    assert not scratch.stored()
    path = write(tmp_path / "b.arrow", [pa.record_batch({"a": BIG})], codec)
    if not kept:
        monkeypatch.setenv("TOUCHFS_SCRATCH_SIZE", "1k")
    for made, value in zip(packed_cells(path, SMALL), BIG, strict=True):
        check_reads(made, value)
    assert len(scratch.stored()) == kept


def test_a_buffer_that_was_removed_from_the_store_is_read(tmp_path: Path, scratch: Scratch) -> None:
    path = write(tmp_path / "a.arrow", [pa.record_batch({"a": BIG})], "zstd")
    first, *_ = packed_cells(path, SMALL)
    assert bytes(first.read(0, 10)) == BIG[0][:10]
    scratch.remove(scratch.stored())
    assert bytes(first.read(20_000, 10_000)) == BIG[0][20_000:]
    *_, last = packed_cells(path, SMALL)
    assert bytes(last.read(0, 20)) == BIG[-1]


def test_the_store_may_evict_all_but_the_last_buffers(tmp_path: Path, scratch: Scratch) -> None:
    made = {}
    for number in range(KEPT_BUFFERS + 5):
        path = write(tmp_path / f"{number}.arrow", [pa.record_batch({"a": BIG})], "zstd")
        content, *_ = packed_cells(path, SMALL)
        known = set(scratch.stored())
        assert bytes(content.read(0, 10)) == BIG[0][:10]
        (made[number],) = set(scratch.stored()) - known
        del content
    free = []
    for number, name in made.items():
        with open(name, "rb") as file, suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free.append(number)
    assert free == [0, 1, 2, 3, 4]


def test_threads_decompress_a_buffer_once(tmp_path: Path, scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    from touchfs.tables.arrow import decoded_buffer

    path, made = write(tmp_path / "a.arrow", [pa.record_batch({"a": BIG})], "zstd"), []
    pieces, barrier = decoded_buffer.decompressed_pieces, threading.Barrier(8)
    monkeypatch.setattr(decoded_buffer, "decompressed_pieces", lambda *about: made.append(about) or pieces(*about))

    def read(_: int) -> bytes:
        barrier.wait()
        return bytes(packed_cells(path, SMALL)[0].read(0, 30_000))

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(read, range(8))) == {BIG[0]}
    assert len(made) == 1


def compressed(data: bytes, claimed: int) -> bytes:
    return struct.pack("<q", claimed) + pa.compress(data, "zstd", asbytes=True)


@pytest.mark.parametrize("limits", [LIMITS, SMALL])
def test_buffers_that_lie_about_their_size(limits: Limits) -> None:
    data = BIG[0]
    for damaged in (
        compressed(data, len(data) - 1),
        compressed(data, len(data) + 1),
        compressed(data, 2**60),
        compressed(data, -2),
        compressed(data, len(data))[:-100],
        compressed(data, 0),
        struct.pack("<q", 100) + data,
        b"\0\0",
        b"",
    ):
        made = parse_form("packed/zstd").content(
            Extent(MemorySource(b"xx" + damaged), 2, len(damaged)), packed_detail(10, 10), limits
        )
        with pytest.raises(FormatError):
            made.read(0, 10)
    made = parse_form("packed/zstd").content(
        Extent(MemorySource(compressed(data, len(data))), 0, len(compressed(data, len(data)))),
        packed_detail(len(data) - 5, 10),
        limits,
    )
    with pytest.raises(FormatError, match="outside its compressed"):
        made.read(0, 10)


def test_buffers_that_the_writer_did_not_compress() -> None:
    stored = struct.pack("<q", -1) + b"some bytes"
    for limits in (LIMITS, SMALL):
        extent = Extent(MemorySource(b"x" + stored), 1, len(stored))
        check_reads(parse_form("packed/lz4").content(extent, packed_detail(5, 3), limits), b"byt")


@pytest.mark.parametrize("shape", [(), (6,), (2, 3), (1, 2, 3, 1), (6, 1)])
@pytest.mark.parametrize("packed", ["", "packed/zstd/"])
def test_arrays_have_their_shape(shape: tuple[int, ...], packed: str) -> None:
    array = np.arange(6, dtype="<f4").reshape(shape or (6,))
    data = array.tobytes()
    stored = compressed(b"??" + data, 2 + len(data)) if packed else data
    detail = packed_detail(2, len(data)) if packed else b""
    form = parse_form(packed + "/".join(("npy", "<f4", *map(str, shape))))
    made = form.content(Extent(MemorySource(stored), 0, len(stored)), detail, LIMITS)
    assert form.size(len(stored), detail) == made.size
    loaded = np.load(io.BytesIO(made.read(0, made.size)))
    assert loaded.dtype == array.dtype and loaded.shape == array.shape and (loaded == array).all()


def test_an_array_of_another_size_than_its_shape() -> None:
    with pytest.raises(FormatError, match="20 bytes where an array of float32 of the shape"):
        Npy("<f4", (2, 3)).content(Extent(MemorySource(bytes(20)), 0, 20), b"", LIMITS)


@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
@pytest.mark.parametrize("limits", [LIMITS, SMALL])
def test_whole_columns(codec: str | None, limits: Limits, tmp_path: Path) -> None:
    pairs = [[[1, 2], [3, 4], [5, 6]], [[7, 8], [9, 10], [11, 12]]]
    rows = pa.array(pairs * 2000, pa.list_(pa.list_(pa.int16(), 2), 3))
    numbers = pa.array(RANDOM.random(4000))
    struct_of = pa.StructArray.from_arrays([numbers.cast(pa.float32())], ["x"])
    some_null = pa.array([1, None] * 2000)
    batch = pa.record_batch({"n": numbers, "rows": rows, "in": struct_of, "null": some_null, "text": ["a"] * 4000})
    batches = [batch, batch.slice(10, 0), batch.slice(4, 1), batch.slice(100)]
    path = write(tmp_path / "a.arrow", batches, codec)
    source = DATA.open(str(path))
    file = drive(parse_arrow(source.size), source)
    layouts = [drive(batch_layout(file.schema, each), source) for each in file.batches]
    whole = pa.Table.from_batches(batches)
    for names, expected in (
        (("n",), np.array(whole["n"])),
        (("rows",), np.array(whole["rows"].to_pylist(), np.int16)),
        (("in", "x"), np.array([each["x"] for each in whole["in"].to_pylist()], np.float32)),
    ):
        at = file.schema.path(*names)
        described = numbers_of(file.schema.chain(at))
        assert described is not None
        parts = column_parts(layouts, at)
        assert parts is not None
        made = column_content(Npy(described[0].str, described[1]), parts, source, limits)
        loaded = np.load(io.BytesIO(made.read(0, made.size)))
        assert loaded.dtype == expected.dtype and loaded.shape == expected.shape and (loaded == expected).all()
        check_reads(made, bytes(made.read(0, made.size)))
    null = file.schema.path("null")
    assert [column_parts([layout], null) is None for layout in layouts] == [True, False, False, True]
    assert column_parts(layouts, null) is None
    assert numbers_of(file.schema.chain(file.schema.path("text"))) is None
    with pytest.raises(FormatError, match="no numbers"):
        column_parts(layouts, file.schema.path("text"))


def test_a_column_of_no_batches() -> None:
    made = column_content(Npy("<i2", (3,)), [], MemorySource(b""), LIMITS)
    assert np.load(io.BytesIO(made.read(0, made.size))).shape == (0, 3)


def test_parts_that_are_no_rows() -> None:
    for row, length in ((Npy("<i2"), 7), (Npy("<i2", (3,)), 8), (Npy("<i2", (0,)), 8)):
        with pytest.raises(FormatError, match=r"a column of \d bytes"):
            column_content(row, [ColumnPart(0, length, length)], MemorySource(bytes(100)), LIMITS)
