"""Batches of both readers: their sizes, their lineage, resuming behind any of them, and the memory that they take."""

import json
import random
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interleaved_tars import WdsSample, make_wds_tar
from memory import peak

from touchfs.core.errors import ArgumentValueError, FormatError
from touchfs.interleaved.items.sizes import row_bytes
from touchfs.interleaved.read.files import ItemPartition
from touchfs.interleaved.read.parquet import InterleavedParquetReader
from touchfs.interleaved.read.webdataset import InterleavedWebdatasetReader

# Files of samples, each with the sizes of its images.
SHARDS = st.lists(
    st.lists(st.lists(st.one_of(st.integers(0, 30), st.integers(200, 900)), max_size=3), max_size=6),
    min_size=1,
    max_size=3,
)


def write_tars(place, shards):
    """Tars of these samples, whose images are some bytes."""
    paths = []
    for shard, samples in enumerate(shards):
        found = []
        for number, sizes in enumerate(samples):
            key = f"{shard}-{number}"
            members = {f"{key}.{i}.png": random.Random(size).randbytes(size) for i, size in enumerate(sizes)}
            found.append(WdsSample(key, ["text"], [None, *members], members, {"number": number} if number % 2 else {}))
        paths.append(str(make_wds_tar(place / f"{shard}.tar", found)))
    return InterleavedWebdatasetReader, paths


def write_parquet(place, shards, order):
    """The same samples as Parquet files, whose rows are in any order."""
    tables = []
    for shard, samples in enumerate(shards):
        rows = [
            {"sample_id": f"{shard}-{number}", "position": i, "modality": "image", "binary_content": bytes(size)}
            for number, sizes in enumerate(samples)
            for i, size in enumerate([0, *sizes])
        ]
        schema = pa.schema(
            [
                ("sample_id", pa.string()),
                ("position", pa.int32()),
                ("modality", pa.string()),
                ("binary_content", pa.binary()),
            ]
        )
        tables.append(pa.Table.from_pylist(rows, schema))
    sizes = [table.num_rows for table in tables]
    rows = pa.concat_tables(tables)
    rows = rows.take(pa.array(order(range(rows.num_rows)), pa.int64()))
    paths = []
    for shard, size in enumerate(sizes):
        paths.append(str(place / f"{shard}.parquet"))
        pq.write_table(rows.slice(sum(sizes[:shard]), size), paths[-1], row_group_size=5)
    return InterleavedParquetReader, paths


def in_order(numbers):
    return list(numbers)


def shuffled(numbers):
    return random.Random(1).sample(numbers, len(numbers))


WRITERS = {
    "tars": write_tars,
    "parquet": lambda place, shards: write_parquet(place, shards, in_order),
    "shuffled parquet": lambda place, shards: write_parquet(place, shards, shuffled),
}


def identity(batch):
    """All that makes a batch."""
    return batch.table.to_pydict(), batch.table.schema, batch.source_files, batch.reencoded_frames


@pytest.mark.parametrize("kind", WRITERS)
@settings(max_examples=settings().max_examples // 4)
@given(shards=SHARDS, limit=st.integers(1, 3000), on_read=st.booleans())
def test_batches(tmp_path_factory, kind, shards, limit, on_read):
    place = tmp_path_factory.mktemp("shards")
    reader, paths = WRITERS[kind](place, shards)
    parameters = {"materialize_on_read": on_read} if kind == "tars" else {}
    whole = reader(paths, **parameters)
    partition = ItemPartition(tuple(paths))
    (together,) = whole.batches(partition)

    divided = reader(paths, max_batch_bytes=limit, **parameters)
    steps = list(divided.steps(partition))
    batches = [batch for batch, _ in steps]

    # All rows are there, each sample is in one batch, and its rows are in order.
    seen = [set(batch.table["sample_id"].to_pylist()) for batch in batches]
    assert sum(map(len, seen)) == together.num_items
    by_sample = lambda rows: sorted(rows, key=lambda row: row["sample_id"])  # noqa: E731
    rows = [row for batch in batches for row in batch.table.to_pylist()]
    assert by_sample(rows) == by_sample(together.table.to_pylist())
    assert {batch.table.schema for batch in batches} == {together.table.schema}

    # Only a sample alone is larger than the limit, and a batch takes what fits.
    sizes = [int(row_bytes(batch.table).sum()) for batch in batches]
    assert all(size <= limit or len(ids) == 1 for size, ids in zip(sizes, seen, strict=True))
    for batch, size in zip(batches[1:], sizes, strict=False):
        first = batch.table["sample_id"][0].as_py()
        rows_of_first = batch.table.filter(pa.compute.equal(batch.table["sample_id"], first))
        assert size + int(row_bytes(rows_of_first).sum()) > limit

    # The files that a batch names are those that its rows are from.
    if len(batches) == 1:
        assert batches[0].source_files == tuple(paths)
    elif kind != "shuffled parquet":
        for number, (batch, ids) in enumerate(zip(batches, seen, strict=True)):
            files = sorted({int(sample_id.partition("-")[0]) for sample_id in ids})
            assert batch.source_files == tuple(f"{paths[file]}::split_{number:05d}" for file in files)

    # Resuming behind any batch gives exactly those that follow.
    expected = [identity(batch) for batch in batches]
    for number, (_, cursor) in enumerate(steps):
        again = reader(paths, max_batch_bytes=limit, **parameters)
        follow = list(again.steps(partition, json.loads(json.dumps(cursor))))
        assert [identity(batch) for batch, _ in follow] == expected[number + 1 :]
        assert [cursor for _, cursor in follow] == [cursor for _, cursor in steps[number + 1 :]]


@pytest.mark.parametrize("kind", WRITERS)
def test_cursors_of_something_else(tmp_path, kind):
    reader, paths = WRITERS[kind](tmp_path, [[[1, 2], [3]], [[4]]])
    partition = ItemPartition(tuple(paths))
    one = reader(paths, max_batch_bytes=1)
    good = [cursor for _, cursor in one.steps(partition)][-1]
    for wrong in (
        3,
        {},
        good | {"number": 1000},
        good | {"file": 7},
        good | {"file": 2, "number": 1},
        good | {"number": -1},
        good | {"number": True},
        good | {"number": 1.0},
        good | {"more": 1},
    ):
        with pytest.raises(FormatError):
            list(one.steps(partition, wrong))


@pytest.mark.parametrize("reader", [InterleavedParquetReader, InterleavedWebdatasetReader])
@pytest.mark.parametrize("limit", [0, -1])
def test_limits_are_positive(reader, limit):
    with pytest.raises(ArgumentValueError, match="max_batch_bytes must be > 0"):
        reader("x", max_batch_bytes=limit)


READ = """
import sys
from touchfs.interleaved.read.parquet import InterleavedParquetReader
from touchfs.interleaved.read.webdataset import InterleavedWebdatasetReader
import pyarrow.dataset
kind, limit, *paths = sys.argv[1:]
def open_tars(**parameters):
    return InterleavedWebdatasetReader(materialize_on_read=True, **parameters)
reader = {"tar": open_tars, "parquet": InterleavedParquetReader}[kind]
rows = 0
for path in paths:
    for batch in reader(file_paths=path, max_batch_bytes=int(limit)):
        rows += batch.count()
print(rows)
"""


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["tar", "parquet"])
def test_memory_is_bounded_by_the_limit_and_not_by_the_file(tmp_path, kind):
    """A file of 100 MB, in batches of 8 MB; one row group of Parquet has all of it."""
    image = random.Random(0).randbytes(1 << 20)
    count = 100
    path = tmp_path / f"x.{kind}"
    if kind == "tar":
        samples = (WdsSample(f"s{i}", ["t"], [f"s{i}.png"], {f"s{i}.png": image}) for i in range(count))
        make_wds_tar(path, samples)
    else:
        table = pa.table(
            {
                "sample_id": [f"s{i}" for i in range(count)],
                "position": pa.array([0] * count, pa.int32()),
                "modality": ["image"] * count,
                "binary_content": pa.array([image] * count, pa.large_binary()),
            }
        )
        pq.write_table(table, path, use_dictionary=False, compression="none", write_batch_size=1)
    nothing, base = peak(tmp_path, sys.executable, "-c", READ, kind, "8000000")
    read, used = peak(tmp_path, sys.executable, "-c", READ, kind, "8000000", path)
    assert (nothing.stdout, read.stdout) == (b"0\n", b"300\n" if kind == "tar" else b"100\n"), read.stderr
    assert used - base < 70
