"""Caches of Arrow shards: each parameter of the writer, what is in the files, and how much memory it takes."""

import json
import os
import subprocess
import sys
import threading

import numpy as np
import pyarrow as pa
import pytest
from caches.pet_caches import METADATA, PETS, pets, stored
from checked_source import CheckedSource
from memory import peak

from touchfs.caches.writers.arrow import DEFAULT_SHARD_SIZE_BYTES, write_sharded_arrow_cache
from touchfs.caches.writers.encode import encode_example
from touchfs.core.errors import NotFoundError
from touchfs.core.extent import drive
from touchfs.core.progress import listening
from touchfs.features import ClassLabel, Features, Image, Sequence, Value, Video
from touchfs.format.arrow.batch import batch_layout
from touchfs.format.arrow.cells import cells
from touchfs.format.arrow.file import parse_arrow

NUMBERS = Features({"x": Value("int64")})


def numbers(count):
    return ((i, {"x": i}) for i in range(count))


def rows(place):
    """All rows, read by pyarrow alone."""
    metadata = json.loads((place / "_metadata.json").read_text())
    found = []
    for name, count in zip(metadata["shard_filenames"], metadata["shard_row_counts"], strict=True):
        table = pa.ipc.open_file(place / name).read_all()
        table.validate(full=True)
        assert table.num_rows == count
        found += table.to_pylist()
    return found


def batch_sizes(place):
    with pa.ipc.open_file(place / "shard-00000.arrow") as reader:
        return [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]


def test_a_cache_as_the_original_writes_it(tmp_path):
    meta = write_sharded_arrow_cache(pets(60), PETS, tmp_path / "cache", shard_size_bytes=40_000, batch_size=10)
    assert rows(tmp_path / "cache") == [stored(i) for i in range(60)]
    metadata = json.loads((tmp_path / "cache" / "_metadata.json").read_text())
    assert metadata.pop("features") == PETS.to_json()
    assert metadata == METADATA
    assert sorted(os.listdir(tmp_path / "cache")) == ["_metadata.json", *metadata["shard_filenames"]]
    assert (meta.cache_dir, meta.num_rows, meta.num_shards) == (tmp_path / "cache", 60, 2)
    assert (meta.shard_filenames, meta.shard_row_counts) == (metadata["shard_filenames"], [30, 30])
    assert (meta.schema_fingerprint, meta.compression) == ("39cb9288bb800052", None)
    assert meta.shard_paths == [tmp_path / "cache" / name for name in metadata["shard_filenames"]]
    with pa.ipc.open_file(meta.shard_paths[0]) as reader:
        assert reader.schema.equals(PETS.to_arrow_schema(), check_metadata=True)
    assert batch_sizes(tmp_path / "cache") == [10, 10, 10]


def test_shards_are_files_that_other_writers_make(tmp_path):
    """Byte for byte what pyarrow writes of the same batches, so what the original tool wrote."""
    write_sharded_arrow_cache(pets(25), PETS, tmp_path / "cache", batch_size=10)
    schema = PETS.to_arrow_schema()
    with pa.OSFile(str(tmp_path / "theirs"), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for start in (0, 10, 20):
            part = [stored(i) for i in range(start, min(start + 10, 25))]
            arrays = [pa.array([row[name] for row in part], PETS[name].to_arrow_type()) for name in PETS]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
    assert (tmp_path / "cache" / "shard-00000.arrow").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_an_empty_generator_is_a_cache_of_no_shards(tmp_path):
    meta = write_sharded_arrow_cache(iter(()), PETS, tmp_path / "cache")
    assert (meta.num_rows, meta.num_shards, meta.shard_paths) == (0, 0, [])
    assert os.listdir(tmp_path / "cache") == ["_metadata.json"] and rows(tmp_path / "cache") == []


def test_shard_size_bytes(tmp_path):
    assert float("inf") == DEFAULT_SHARD_SIZE_BYTES
    for size, counts in (
        (DEFAULT_SHARD_SIZE_BYTES, [100]),
        (1, [10] * 10),  # at least a batch, and no empty one at the end
        (80, [10] * 10),
        (81, [20] * 5),
        (240, [30, 30, 30, 10]),
    ):
        meta = write_sharded_arrow_cache(numbers(100), NUMBERS, tmp_path / "x", shard_size_bytes=size, batch_size=10)
        assert meta.shard_row_counts == counts
        assert meta.shard_filenames == [f"shard-{i:05d}.arrow" for i in range(len(counts))]
        written = json.loads((tmp_path / "x" / "_metadata.json").read_text())["shard_size_target_bytes"]
        assert written == (None if size == DEFAULT_SHARD_SIZE_BYTES else size)
        assert rows(tmp_path / "x") == [{"x": i} for i in range(100)]


def test_single_file(tmp_path):
    meta = write_sharded_arrow_cache(
        numbers(100), NUMBERS, tmp_path / "x", shard_size_bytes=1, batch_size=10, single_file=True
    )
    assert meta.shard_row_counts == [100]
    assert json.loads((tmp_path / "x" / "_metadata.json").read_text())["shard_size_target_bytes"] is None


def test_batch_size(tmp_path):
    write_sharded_arrow_cache(numbers(2500), NUMBERS, tmp_path / "x")
    assert batch_sizes(tmp_path / "x") == [1000, 1000, 500]
    write_sharded_arrow_cache(numbers(7), NUMBERS, tmp_path / "x", batch_size=3)
    assert batch_sizes(tmp_path / "x") == [3, 3, 1]
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        write_sharded_arrow_cache(numbers(7), NUMBERS, tmp_path / "x", batch_size=0)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compression(tmp_path, codec):
    plain = write_sharded_arrow_cache(numbers(5000), NUMBERS, tmp_path / "plain")
    meta = write_sharded_arrow_cache(numbers(5000), NUMBERS, tmp_path / "x", compression=codec)
    assert meta.compression == codec
    assert rows(tmp_path / "x") == rows(tmp_path / "plain")
    assert meta.shard_paths[0].stat().st_size < plain.shard_paths[0].stat().st_size * 0.7
    assert json.loads((tmp_path / "x" / "_metadata.json").read_text())["compression"] == codec
    assert "compression" not in json.loads((tmp_path / "plain" / "_metadata.json").read_text())


def test_options_that_do_not_exist(tmp_path):
    with pytest.raises(ValueError, match="compression must be None, 'zstd' or 'lz4', got 'gzip'"):
        write_sharded_arrow_cache(iter(()), NUMBERS, tmp_path / "x", compression="gzip")
    with pytest.raises(ValueError, match="payload must be"):
        write_sharded_arrow_cache(iter(()), NUMBERS, tmp_path / "x", payload="raw")
    with pytest.raises(TypeError, match="lineage must be JSON"):
        write_sharded_arrow_cache(iter(()), NUMBERS, tmp_path / "x", lineage={"x": object()})
    with pytest.raises(ValueError, match="at least one column"):
        write_sharded_arrow_cache(iter(()), Features(), tmp_path / "x")
    with pytest.raises(ValueError, match="requires storage_format='lance'"):
        write_sharded_arrow_cache(iter(()), Features({"v": Video("frames")}), tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_uncompressed_payloads_are_ranges_of_the_file(tmp_path, codec):
    features = Features(
        {
            **PETS,
            "video": Video(storage="bytes"),
            "flag": Value("bool"),
            "text": Value("string"),
            "short": Value("binary"),
            "images": Sequence(Image()),
        }
    )

    def example(i):
        return {
            "video": None if i % 7 == 0 else b"video%d" % i * 100,
            "flag": i % 2 == 0,
            "text": "long " * 1000,
            "short": None if i % 3 == 0 else b"x" * i,
            "images": [b"a" * i, b"b"][: i % 3],
        }

    examples = [(key, value | example(i)) for i, (key, value) in enumerate(pets(25))]
    meta = write_sharded_arrow_cache(
        examples, features, tmp_path / "x", batch_size=10, compression=codec, payload="uncompressed"
    )
    plain = write_sharded_arrow_cache(examples, features, tmp_path / "plain", batch_size=10)
    assert rows(tmp_path / "x") == rows(tmp_path / "plain")
    with pa.ipc.open_file(meta.shard_paths[0]) as reader:
        assert reader.schema.equals(features.to_arrow_schema(), check_metadata=True)
    data = meta.shard_paths[0].read_bytes()
    assert len(data) < plain.shard_paths[0].stat().st_size
    expected = rows(tmp_path / "x")
    source = CheckedSource(data)
    file = drive(parse_arrow(len(data)), source)
    assert not file.is_stream and len(file.batches) == 3
    for path, value_of in (
        ([0], lambda row: row["image"]),
        ([5], lambda row: row["cube"]),
        ([6, 2], lambda row: row["video"] and row["video"]["bytes"]),
        ([9], lambda row: row["short"]),
    ):
        row = 0
        for place in file.batches:
            layout = drive(batch_layout(file.schema, place), source)
            assert layout.codec == codec
            found = drive(cells(layout, path), source)
            for offset, length, valid in zip(found.offsets, found.lengths, found.valid, strict=True):
                value = data[offset : offset + length] if valid else None
                assert value == value_of(expected[row])
                row += 1
        assert row == 25


def test_uncompressed_payloads_in_other_readers(tmp_path):
    import polars
    from pyarrow import dataset

    meta = write_sharded_arrow_cache(
        pets(25), PETS, tmp_path / "x", batch_size=10, compression="zstd", payload="uncompressed"
    )
    read = dataset.dataset(meta.shard_paths, format="ipc").to_table().to_pylist()
    assert read == [stored(i) for i in range(25)]
    theirs = polars.read_ipc(meta.shard_paths[0])
    assert theirs.to_dicts() == read


def test_duckdb_reads_what_we_wrote(tmp_path):
    import duckdb
    from pyarrow import dataset

    for number, options in enumerate(({}, {"compression": "zstd"}, {"compression": "lz4", "payload": "uncompressed"})):
        meta = write_sharded_arrow_cache(
            pets(60), PETS, tmp_path / str(number), shard_size_bytes=1, batch_size=20, **options
        )
        assert meta.num_shards == 3
        pets_table = dataset.dataset(meta.shard_paths, format="ipc")
        with duckdb.connect() as connection:
            connection.register("pets", pets_table)
            columns = "label, count(*), sum(octet_length(cube))"
            query = f"select {columns} from pets where score > 1 group by label order by label"
            found = connection.execute(query).fetchall()
        expected = [row for row in map(stored, range(60)) if row["score"] > 1]
        assert found == [
            (label, sum(row["label"] == label for row in expected), 12 * sum(row["label"] == label for row in expected))
            for label in range(3)
        ]


def test_num_encode_workers(tmp_path):
    threads = set()

    class Noted(Value):
        def encode(self, value, *, cache_dir=None):
            threads.add(threading.current_thread().name)
            return value

    noted = Features({"x": Noted("int64")})
    write_sharded_arrow_cache(numbers(1000), noted, tmp_path / "x")
    assert threads == {threading.current_thread().name}
    threads.clear()
    write_sharded_arrow_cache(numbers(1000), noted, tmp_path / "y", batch_size=7, num_encode_workers=3)
    assert threads and all(name.startswith("touchfs-encode") for name in threads)
    assert rows(tmp_path / "y") == [{"x": i} for i in range(1000)]
    first, second = (
        write_sharded_arrow_cache(pets(50), PETS, tmp_path / name, num_encode_workers=workers)
        for name, workers in (("serial", 0), ("parallel", 4))
    )
    assert first.shard_paths[0].read_bytes() == second.shard_paths[0].read_bytes()


def test_lineage(tmp_path):
    lineage = {"operation": "map", "remove_columns": ["a"], "source_num_rows": 7}
    write_sharded_arrow_cache(numbers(1), NUMBERS, tmp_path / "x", lineage=lineage)
    assert json.loads((tmp_path / "x" / "_metadata.json").read_text())["lineage"] == lineage
    write_sharded_arrow_cache(numbers(1), NUMBERS, tmp_path / "x")
    assert "lineage" not in json.loads((tmp_path / "x" / "_metadata.json").read_text())


def test_missing_columns_are_null_and_others_are_dropped(tmp_path):
    features = Features({"a": Value("int8"), "b": Value("string")})
    write_sharded_arrow_cache([(0, {"a": 1, "c": 2}), (1, {"b": "x"}), (2, {})], features, tmp_path / "x")
    assert rows(tmp_path / "x") == [{"a": 1, "b": None}, {"a": None, "b": "x"}, {"a": None, "b": None}]


def test_encode_example():
    encoded = encode_example(
        {"label": "dog", "mine": np.float32(1.5), "one": np.array([7]), "many": np.arange(2), "text": "x"}, PETS
    )
    assert encoded.pop("many").tolist() == [0, 1]
    assert encoded == {"label": 1, "mine": 1.5, "one": 7, "text": "x"}
    assert type(encoded["mine"]) is float and type(encoded["one"]) is int


def test_staged_videos_are_in_the_cache(tmp_path):
    (tmp_path / "a.mp4").write_bytes(b"video")
    features = Features({"video": Video()})
    write_sharded_arrow_cache([(0, {"video": tmp_path / "a.mp4"})] * 3, features, tmp_path / "x", num_encode_workers=2)
    (name,) = os.listdir(tmp_path / "x" / "_assets" / "video")
    assert [row["video"]["path"] for row in rows(tmp_path / "x")] == [name] * 3
    assert (tmp_path / "x" / "_assets" / "video" / name).read_bytes() == b"video"


@pytest.mark.parametrize(
    ("workers", "error"),
    [
        pytest.param(workers, error, marks=() if isinstance(error, kept) else pytest.mark.variant)
        for workers, kept in ((0, KeyboardInterrupt), (2, OSError))
        for error in (RuntimeError("mine"), OSError("mine"), KeyboardInterrupt())
    ],
)
def test_a_generator_that_raises_leaves_nothing_behind(tmp_path, workers, error):
    def failing():
        yield from numbers(50)
        raise error

    write_sharded_arrow_cache(numbers(3), NUMBERS, tmp_path / "x")
    for name in ("x", "y"):
        with pytest.raises(type(error)) as raised:
            write_sharded_arrow_cache(
                failing(), NUMBERS, tmp_path / name, batch_size=10, shard_size_bytes=1, num_encode_workers=workers
            )
        assert raised.value is error
    assert sorted(os.listdir(tmp_path)) == ["x", "x.lock"]
    assert rows(tmp_path / "x") == [{"x": i} for i in range(3)]


@pytest.mark.parametrize("workers", [0, 2])
def test_values_that_do_not_fit_are_named(tmp_path, workers):
    def write(value):
        examples = [(0, {"x": 1})] * 10 + [(1, {"x": value})]
        write_sharded_arrow_cache(examples, NUMBERS, tmp_path / "x", batch_size=5, num_encode_workers=workers)

    with pytest.raises(ValueError, match=r"column 'x' of the examples 10 to 10 does not fit int64"):
        write("text")
    with pytest.raises(ValueError, match="column 'x'"):
        write(2**70)
    with pytest.raises(ValueError, match=r"column 'label' of example 70: 'cow' is not one of the 3 names"):
        labels = [(0, {"label": "cat"})] * 70 + [(0, {"label": "cow"})]
        write_sharded_arrow_cache(labels, PETS, tmp_path / "x", batch_size=67, num_encode_workers=workers)
    with pytest.raises(NotFoundError, match=r"gone\.png: column 'image' of example 1: "):
        write_sharded_arrow_cache([(0, {}), (1, {"image": "gone.png"})], PETS, tmp_path / "x")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("label", [ClassLabel(names=["cat", "dog", "owl"]), ClassLabel(num_classes=3)])
def test_labels_are_numbers_of_classes(tmp_path, label):
    """Exactly those that Hugging Face's `datasets` takes, whose -1 is no label."""
    import datasets

    theirs = datasets.ClassLabel(names=label.names)
    for given in (-2, 3, 7, 2**40, np.int64(-2), np.array([3]), 3.0):
        with pytest.raises((ValueError, TypeError)):
            theirs.encode_example(given)
        examples = [(0, {"x": 1})] * 70 + [(1, {"x": given})]
        with pytest.raises(
            ValueError, match=r"column 'x' of example 70: no class has the number .*: there are 3, and a"
        ):
            write_sharded_arrow_cache(examples, {"x": label}, tmp_path / "x")
        with pytest.raises(ValueError, match="column 'x' of example 0: no class has the number"):
            write_sharded_arrow_cache([(0, {"x": [0, given]})], {"x": Sequence(label)}, tmp_path / "x")
    assert os.listdir(tmp_path) == []
    good = [0, 2, -1, np.int64(2), np.array([-1]), 1.0]
    assert [theirs.encode_example(given) for given in good] == good
    write_sharded_arrow_cache([(0, {"x": given}) for given in [*good, None]], {"x": label}, tmp_path / "x")
    assert [row["x"] for row in rows(tmp_path / "x")] == [0, 2, -1, 2, -1, 1, None]


def test_a_fraction_is_no_integer(tmp_path):
    """pyarrow alone would write 1 for 1.5."""
    for feature, value in (
        (Value("int32"), 1.5),
        (Value("uint8"), float("nan")),
        (Sequence(Sequence(Value("int64"))), [[1, 2], None, [2.5]]),
    ):
        with pytest.raises(ValueError, match="column 'x' of the examples 0 to 1 does not fit"):
            write_sharded_arrow_cache([(0, {}), (1, {"x": value})], Features({"x": feature}), tmp_path / "x")
    whole = [(0, {"x": 2.0}), (1, {"x": None}), (2, {"x": np.float32(3)})]
    write_sharded_arrow_cache(whole, NUMBERS, tmp_path / "x")
    assert [row["x"] for row in rows(tmp_path / "x")] == [2, None, 3]
    mixed = [(0, {"x": np.uint64(1)}), (1, {"x": np.int64(2)})]
    write_sharded_arrow_cache(mixed, NUMBERS, tmp_path / "y")
    assert [row["x"] for row in rows(tmp_path / "y")] == [1, 2]


@pytest.mark.parametrize("given", [{"x": 1, "y": 2}, (0, 5), (0, {"x": 1}, 2), 5, "ab"])
def test_a_generator_yields_pairs(tmp_path, given):
    with pytest.raises(TypeError, match="example 1 is not a pair of a key and a dict: "):
        write_sharded_arrow_cache(iter([(0, {"x": 1}), given]), NUMBERS, tmp_path / "x")
    assert os.listdir(tmp_path) == []


def test_progress_is_reported(tmp_path):
    heard = []
    with listening(heard.append, 2500):
        write_sharded_arrow_cache(numbers(2500), NUMBERS, tmp_path / "x")
    assert heard == [1000, 1000, 500]


def test_a_full_disk(tmp_path):
    """A file over the limit of the process is an error of the system."""
    script = f"""
import resource, signal
from touchfs.core.errors import SourceError
from touchfs.features import Features, Value
from touchfs.caches.writers.arrow import write_sharded_arrow_cache
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
numbers = ((i, {{"x": i}}) for i in range(9999))
try:
    write_sharded_arrow_cache(numbers, Features({{"x": Value("int64")}}), {str(tmp_path / "x")!r})
except SourceError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert "x: the cache cannot be written: " in done.stdout, done.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.soak
@pytest.mark.parametrize("options", [{}, {"num_encode_workers": 2}, {"compression": "zstd", "payload": "uncompressed"}])
def test_memory_is_bounded_by_a_batch(tmp_path, options):
    """400 batches of 4 MB: the peak is some batches, whatever the size of the cache."""
    script = f"""
import sys
from touchfs.features import Features, Image
from touchfs.caches.writers.arrow import write_sharded_arrow_cache
def examples(count):
    for i in range(count):
        yield i, {{"image": i.to_bytes(8, "little") * 5000}}
examples, features = examples(int(sys.argv[1])), Features({{"image": Image()}})
write_sharded_arrow_cache(examples, features, {str(tmp_path / "x")!r}, batch_size=100, **{options!r})
"""
    (small, one), (large, many) = (peak(tmp_path, sys.executable, "-c", script, str(n)) for n in (200, 8_000))
    assert small.returncode == large.returncode == 0, (small.stderr, large.stderr)
    assert (tmp_path / "x" / "shard-00000.arrow").stat().st_size > 300_000_000
    assert many - one < 40
