"""What only Arrow files have: record batches, mappings, damage, replacement."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from caches.cases import SCHEMA, arrow, as_stored, read_all, rows, write_shard
from hypothesis import given
from hypothesis import strategies as st

from touchfs.backend import ArrowBackend
from touchfs.cache import Features, Image, Value, write_sharded_arrow_cache
from touchfs.core.errors import ChangedError, FormatError, NotFoundError, UsageError


def resident(path: Path) -> int:
    """How many bytes of a file are in the page cache."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        pages = np.zeros(-(-len(mapped) // mmap.PAGESIZE), np.uint8)
        whole = np.frombuffer(mapped, np.uint8)
        arguments = ctypes.c_void_p(whole.ctypes.data), ctypes.c_size_t(len(mapped)), ctypes.c_void_p(pages.ctypes.data)
        assert ctypes.CDLL(None).mincore(*arguments) == 0
        del whole
        return int((pages & 1).sum()) * mmap.PAGESIZE


def drop_from_cache(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_constructors_refuse_what_does_not_fit(tmp_path: Path):
    path = write_shard(tmp_path / "a.arrow", rows(3), 2)
    for wrong in (
        {},
        {"shard_paths": [path], "table": pa.table({})},
        {"shard_paths": [path], "shard_row_counts": [1, 2]},
    ):
        with pytest.raises(UsageError):
            ArrowBackend(**wrong)
    with pytest.raises(NotFoundError):
        ArrowBackend(shard_paths=[tmp_path / "none.arrow"])


def test_counts_and_schema_come_from_the_files_if_they_are_not_given(tmp_path: Path):
    paths = [write_shard(tmp_path / f"{i}.arrow", rows(5 + i), 2) for i in range(2)]
    backend = ArrowBackend(shard_paths=paths)
    assert backend.num_rows == 11 and backend.schema == SCHEMA
    assert backend.get_row(10) == as_stored(rows(6))[5]


def test_a_cache_without_shards(tmp_path: Path):
    backend = ArrowBackend(shard_paths=[], shard_row_counts=[], schema=SCHEMA)
    assert backend.num_rows == backend.num_shards == 0 and backend.is_file_backed
    assert list(backend.iter_batches()) == [] and backend.take([]).schema == SCHEMA and backend.table.num_rows == 0
    with pytest.raises(IndexError):
        backend.get_row(0)


def test_take_is_one_chunk(tmp_path: Path):
    backend = arrow(tmp_path, [9, 14], batch=1).backend
    for chosen in ([5, 3, 20], range(4, 12), [2, 2]):
        assert all(column.num_chunks == 1 for column in backend.take(chosen).columns)


def test_slices_copy_nothing(tmp_path: Path):
    data = [{"id": i, "image": bytes(100_000)} for i in range(40)]
    schema = pa.schema({"id": pa.int64(), "image": pa.large_binary()})
    paths = [write_shard(tmp_path / f"{i}.arrow", data, 10, schema=schema) for i in range(3)]
    backend = ArrowBackend(shard_paths=paths, shard_row_counts=[40] * 3)
    before = pa.total_allocated_bytes()
    table = backend.slice(35, 50)
    assert table.num_rows == 50 and pa.total_allocated_bytes() - before < 100_000


def test_the_whole_table_has_large_binary(tmp_path: Path):
    schema = pa.schema({"data": pa.binary(), "text": pa.string()})
    path = write_shard(tmp_path / "a.arrow", [{"data": b"x", "text": "y"}], 1, schema=schema)
    backend = ArrowBackend(shard_paths=[path])
    assert backend.table.schema.types == [pa.large_binary(), pa.string()] and backend.schema == schema


def test_wrong_counts_with_the_right_sum_are_an_error(tmp_path: Path):
    paths = [write_shard(tmp_path / f"{i}.arrow", rows(count), 2) for i, count in enumerate((4, 6))]
    backend = ArrowBackend(shard_paths=paths, shard_row_counts=[5, 5])
    with pytest.raises(FormatError, match=r"0.arrow.* 4 rows.* 5\b"):
        backend.get_row(4)
    with pytest.raises(FormatError, match=r"1.arrow.* 6 rows.* 5\b"):
        list(backend.iter_batches([1]))


def test_a_shard_of_another_schema_is_an_error(tmp_path: Path):
    other = pa.schema({"id": pa.int32()})
    paths = [
        write_shard(tmp_path / "a.arrow", rows(2), 2),
        write_shard(tmp_path / "b.arrow", [{"id": 1}], 2, schema=other),
    ]
    with pytest.raises(FormatError, match=r"b.arrow.*'id' of int32"):
        ArrowBackend(shard_paths=paths, shard_row_counts=[2, 1]).get_row(2)


def test_a_replaced_shard_is_not_read_with_old_counts(tmp_path: Path):
    case = arrow(tmp_path, [9, 14])
    opened = pickle.loads(pickle.dumps(case.backend))
    assert opened.get_row(0) == case.rows[0]
    for path in sorted(tmp_path.iterdir()):
        write_shard(tmp_path / "new", rows(9), 3)
        (tmp_path / "new").rename(path)
    # What is mapped stays what it was.
    assert opened.get_row(8) == case.rows[8]
    with pytest.raises(ChangedError, match="shard-00001"):
        opened.get_row(9)


def test_maps_are_bounded_and_closed(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("touchfs.caches.backends.arrow_shards.SHARDS_MAPPED", 2)
    case = arrow(tmp_path, [3] * 12)
    gc.collect()
    gc.disable()
    try:
        for i in range(36):
            assert case.backend.get_row(i) == case.rows[i]
        assert len(set(re.findall(r"shard-\d+", Path("/proc/self/maps").read_text()))) <= 3
    finally:
        gc.enable()


def test_iterating_maps_one_shard_at_a_time(tmp_path: Path):
    case = arrow(tmp_path, [5] * 9, batch=2)
    gc.collect()
    gc.disable()
    try:
        for batch in case.backend.iter_batches(shuffle=True, seed=1):
            # That of the batch is the last one, or the one before it.
            assert len(set(re.findall(r"shard-\d+", Path("/proc/self/maps").read_text()))) <= 2
            assert len(batch)
    finally:
        gc.enable()


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A directory on a disk, which the directory for temporary files may not be on."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        yield Path(place)


def test_one_cell_touches_little_of_a_cold_file(on_disk: Path):
    schema = pa.schema({"id": pa.int64(), "image": pa.large_binary()})
    blob = np.random.default_rng(0).bytes(20_000)
    path = write_shard(on_disk / "a.arrow", [{"id": i, "image": blob} for i in range(1000)], 50, schema=schema)
    drop_from_cache(path)
    assert resident(path) < path.stat().st_size // 10, "/var/tmp is kept in memory: this test needs it on a disk"
    backend = ArrowBackend(shard_paths=[path], shard_row_counts=[1000])
    assert backend.get_row(734)["image"] == blob and backend.take([7, 977]).num_rows == 2
    assert resident(path) < 2_000_000


def test_compressed_batches_are_decoded_one_at_a_time(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("touchfs.caches.backends.arrow.batch_cache.DECODED_BYTES", 6_000_000)
    schema = pa.schema({"id": pa.int64(), "image": pa.large_binary()})
    data = [{"id": i, "image": bytes([i % 256]) * 100_000} for i in range(200)]
    path = write_shard(tmp_path / "a.arrow", data, 10, "zstd", schema)
    del data
    backend = ArrowBackend(shard_paths=[path], shard_row_counts=[200])
    before, most = pa.total_allocated_bytes(), 0
    for i in range(0, 200, 5):
        assert backend.get_row(i)["image"][:1] == bytes([i % 256])
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 10_000_000  # 20 MB decoded


def test_a_payload_that_is_not_compressed_is_not_decoded(tmp_path: Path):
    features = Features({"image": Image(), "text": Value("string")})
    examples = ((i, {"image": bytes([i]) * 100_000, "text": f"text {i}"}) for i in range(250))
    meta = write_sharded_arrow_cache(
        examples, features, tmp_path / "cache", batch_size=50, compression="zstd", payload="uncompressed"
    )
    backend = ArrowBackend(shard_paths=meta.shard_paths, shard_row_counts=meta.shard_row_counts)
    before = pa.total_allocated_bytes()
    for i in range(0, 250, 25):
        assert backend.get_row(i) == {"image": bytes([i]) * 100_000, "text": f"text {i}"}
    assert pa.total_allocated_bytes() - before < 1_000_000  # a batch has 5 MB


def test_small_integers_do_not_overflow(tmp_path: Path):
    backend = ArrowBackend(shard_paths=[write_shard(tmp_path / "a.arrow", rows(250), 250)])
    backend.get_row(0)
    for kind in (np.uint8, np.int16, np.uint64):
        assert backend.get_row(kind(240))["id"] == 240
        assert backend.take(np.array([240, 3], kind))["id"].to_pylist() == [240, 3]
    for wrong in (1.0, "1", None):
        with pytest.raises(TypeError):
            backend.get_row(wrong)
    with pytest.raises(TypeError):
        backend.take([1.0])


def test_the_stream_format(tmp_path: Path):
    expected = as_stored(rows(11))
    for codec in (None, "lz4"):
        with pa.ipc.new_stream(
            tmp_path / "a.arrow", SCHEMA, options=pa.ipc.IpcWriteOptions(compression=codec)
        ) as writer:
            writer.write_table(pa.Table.from_pylist(expected, SCHEMA), max_chunksize=4)
        backend = ArrowBackend(shard_paths=[tmp_path / "a.arrow"])
        assert [backend.get_row(i) for i in range(11)] == expected == backend.slice(0, 99).to_pylist()
        assert backend.take([9, 2, 2]).to_pylist() == [expected[i] for i in (9, 2, 2)]


TYPES = {
    "int8": (pa.int8(), [-128, None, 127]),
    "uint64": (pa.uint64(), [2**64 - 1, 0, None]),
    "float16": (pa.float16(), [None, 0.5, -2.0]),
    "float64": (pa.float64(), [1e300, None, -0.0]),
    "bool": (pa.bool_(), [True, None, False, True]),
    "binary": (pa.binary(), [b"", None, b"\0x"]),
    "large_string": (pa.large_string(), ["", None, "ä"]),
    "string_view": (pa.string_view(), ["short", None, "longer than twelve bytes"]),
    "fixed": (pa.binary(2), [b"ab", None]),
    "decimal": (pa.decimal128(5, 2), [None]),
    "timestamp": (pa.timestamp("ms", "UTC"), [None]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", None, "b"]),
    "null": (pa.null(), [None, None]),
    "list": (pa.list_(pa.int64()), [[1, None], None, []]),
    "struct": (pa.struct({"bytes": pa.large_binary(), "path": pa.string()}), [{"bytes": b"x", "path": None}, None]),
    "map": (pa.map_(pa.string(), pa.int32()), [[("a", 1)], None]),
}


@given(data=st.data())
def test_every_type_is_read_as_pyarrow_reads_it(data, tmp_path_factory: pytest.TempPathFactory):
    names = data.draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=4, unique=True))
    schema = pa.schema([(name, TYPES[name][0]) for name in names])
    count = data.draw(st.integers(1, 12))
    columns = [
        pa.array(data.draw(st.lists(st.sampled_from(TYPES[n][1]), min_size=count, max_size=count)), t)
        for n, t in zip(names, schema.types, strict=True)
    ]
    table = pa.table(columns, schema=schema)
    path = tmp_path_factory.mktemp("types") / "a.arrow"
    codec = data.draw(st.sampled_from([None, "zstd"]))
    with pa.ipc.new_file(str(path), schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table, max_chunksize=data.draw(st.integers(1, 5)))
    backend, expected = ArrowBackend(shard_paths=[path]), table.to_pylist()
    assert [backend.get_row(i) for i in range(count)] == expected
    chosen = data.draw(st.lists(st.integers(0, count - 1), max_size=9))
    taken = backend.take(chosen)
    taken.validate(full=True)
    assert taken.schema == schema and taken.to_pylist() == [expected[i] for i in chosen]


@pytest.mark.parametrize("codec", [None, "zstd"])
def test_a_file_cut_anywhere_is_an_error_with_its_name(tmp_path: Path, codec: str | None):
    whole = write_shard(tmp_path / "a.arrow", rows(9), 3, codec).read_bytes()
    cut = tmp_path / "cut.arrow"
    for size in range(0, len(whole), 41):
        cut.write_bytes(whole[:size])
        with pytest.raises(FormatError, match=r"cut\.arrow"):
            read_all(cut)


@pytest.mark.parametrize("count", [70, pytest.param(2100, marks=pytest.mark.soak)])
def test_damage_is_an_error_and_never_a_crash(tmp_path: Path, count: int):
    """In a process of its own: damage that pyarrow does not notice would kill it."""
    write_shard(tmp_path / "file.arrow", rows(9), 3)
    write_shard(tmp_path / "zstd.arrow", rows(9), 3, "zstd")
    with pa.ipc.new_stream(tmp_path / "stream.arrow", SCHEMA) as writer:
        writer.write_table(pa.Table.from_pylist(rows(9), SCHEMA), max_chunksize=3)
    code = f"""
import random, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from pathlib import Path
from caches.cases import read_all
from touchfs.core.errors import FormatError
place, draw = Path({str(tmp_path)!r}), random.Random(7)
whole = [path.read_bytes() for path in sorted(place.iterdir())]
path = place / "damaged.arrow"
found = 0
for number in range({count}):
    data = bytearray(whole[number % 3])
    for _ in range(draw.choice((1, 1, 3))):
        data[draw.randrange(len(data))] = draw.choice((0, 255, 127, draw.randrange(256)))
    path.write_bytes(data)
    try:
        read_all(path)
    except FormatError as error:
        assert error.path == str(path)
        found += 1
assert found > {count} // 10, found
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_offsets_that_decrease(tmp_path: Path):
    schema = pa.schema({"text": pa.large_string()})
    whole = bytearray(
        write_shard(tmp_path / "a.arrow", [{"text": t} for t in ("ab", "cd", "ef")], 3, schema=schema).read_bytes()
    )
    offsets = whole.index(np.array([0, 2, 4, 6], "<i8").tobytes())
    whole[offsets : offsets + 32] = np.array([0, 4, 2, 6], "<i8").tobytes()
    (tmp_path / "b.arrow").write_bytes(whole)
    backend = ArrowBackend(shard_paths=[tmp_path / "b.arrow"])
    reads = (
        lambda: backend.get_row(1),
        lambda: backend.take([1, 0]),
        lambda: backend.take([1]),
        lambda: backend.slice(1, 2),
        lambda: list(backend.iter_batches()),
        lambda: backend.table,
    )
    for read in reads:
        with pytest.raises(FormatError, match=r"b\.arrow.*[Oo]ffset"):
            read()
    assert backend.get_row(0) == {"text": "abcd"}


def test_the_fingerprint_is_that_of_the_data_wherever_it_is(tmp_path: Path):
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir(), (tmp_path / "c").mkdir()
    one, two, three = (arrow(tmp_path / name, [9, count]).backend for name, count in (("a", 14), ("b", 14), ("c", 13)))
    assert one.fingerprint == two.fingerprint != three.fingerprint
    tables = [ArrowBackend(table=pa.table({"x": [1, value]})) for value in (2, 2, 3)]
    assert tables[0].fingerprint == tables[1].fingerprint != tables[2].fingerprint
