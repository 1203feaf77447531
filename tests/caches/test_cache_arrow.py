"""Caches of Arrow shards are opened: as they were written, and with a clear error when they are damaged."""

import itertools
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading

import pyarrow as pa
import pytest
from caches.pet_caches import METADATA, NAMES, PETS, change, pets, stored

from touchfs.backend import ArrowBackend, StorageBackend
from touchfs.cache import (
    CacheOpenResult,
    ClassLabel,
    Features,
    ShardedCacheMeta,
    Value,
    Video,
    VideoRef,
    cache_fingerprint,
    detect_cache_format,
    detect_cache_layout,
    encode_example,
    open_cache,
    read_shard,
    read_sharded_cache_meta,
    validate_sharded_cache,
    write_sharded_arrow_cache,
)
from touchfs.core.errors import ArgumentTypeError, TouchfsError
from touchfs.tables.shards.files import listed_shards

NUMBERS = Features({"x": Value("int64")})


def write(place, count=60, start=0, **options):
    return write_sharded_arrow_cache(
        pets(count, start), PETS, place, **{"shard_size_bytes": 40_000, "batch_size": 10} | options
    )


def write_numbers(place, first, count=4000):
    rows = ((i, {"x": i}) for i in range(first, first + count))
    write_sharded_arrow_cache(rows, NUMBERS, place, batch_size=100, shard_size_bytes=8000)


@pytest.fixture
def place(tmp_path):
    write(tmp_path / "cache")
    return tmp_path / "cache"


@pytest.mark.parametrize("options", [{}, {"compression": "zstd"}, {"compression": "lz4", "payload": "uncompressed"}])
def test_an_open_cache(tmp_path, options):
    meta = write(tmp_path / "cache", **options)
    opened = open_cache(tmp_path / "cache", PETS)
    assert isinstance(opened, CacheOpenResult) and isinstance(opened.backend, StorageBackend)
    assert (opened.num_rows, opened.layout, opened.metadata) == (60, "arrow-shards", meta)
    assert isinstance(opened.metadata, ShardedCacheMeta)
    assert (opened.backend.num_rows, opened.backend.num_shards) == (60, 2)
    assert opened.backend.schema == PETS.to_arrow_schema()
    rows = [stored(i) for i in range(60)]
    assert [opened.backend.get_row(i) for i in range(60)] == rows
    assert opened.backend.take([50, 3, 3]).to_pylist() == [rows[50], rows[3], rows[3]]
    assert opened.backend.table.to_pylist() == rows
    assert pickle.loads(pickle.dumps(opened.backend)).get_row(31) == rows[31]


def test_a_cache_is_opened_without_features(place):
    assert open_cache(place, None).backend.get_row(7) == stored(7)


def test_features_may_be_a_plain_dict(tmp_path):
    plain = dict(PETS)
    meta = write_sharded_arrow_cache(pets(3), plain, tmp_path / "x")
    assert meta == validate_sharded_cache(tmp_path / "x", plain)
    assert open_cache(tmp_path / "x", plain).backend.table.to_pylist() == [stored(i) for i in range(3)]
    assert encode_example({"label": "dog", "score": 1}, plain) == {"label": 1, "score": 1}
    for call in (
        lambda given: write_sharded_arrow_cache(pets(3), given, tmp_path / "y"),
        lambda given: validate_sharded_cache(tmp_path / "x", given),
        lambda given: open_cache(tmp_path / "x", given),
        lambda given: encode_example({"label": "dog"}, given),
    ):
        with pytest.raises(ArgumentTypeError, match="Feature 'label' must be a FeatureType, got str"):
            call({**PETS, "label": "int64"})
        with pytest.raises(ArgumentTypeError, match=r"features are a mapping from .*, not list"):
            call(["label"])
    assert not (tmp_path / "y").exists()


def test_backend_kwargs_are_ignored(place):
    """Options that only other layouts have, as in the original tool."""
    assert open_cache(place, PETS, backend_kwargs={"batch_readahead": 3, "window_length": 16}).num_rows == 60


def test_an_empty_cache(tmp_path):
    write(tmp_path / "cache", 0)
    opened = open_cache(tmp_path / "cache", PETS)
    assert (opened.num_rows, opened.backend.num_shards) == (0, 0)
    assert opened.backend.table.to_pylist() == [] and opened.backend.table.schema == PETS.to_arrow_schema()
    with pytest.raises(IndexError):
        opened.backend.get_row(0)


def test_a_cache_that_the_original_wrote(tmp_path):
    """Its metadata lack what is ours, and its shards are pyarrow's."""
    place = tmp_path / cache_fingerprint("TinyPets", "1.0.0", "default", "train")
    place.mkdir()
    schema = PETS.to_arrow_schema()
    for shard in range(2):
        with pa.OSFile(str(place / f"shard-{shard:05d}.arrow"), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for start in range(30 * shard, 30 * shard + 30, 10):
                part = [stored(i) for i in range(start, start + 10)]
                arrays = [pa.array([row[name] for row in part], PETS[name].to_arrow_type()) for name in PETS]
                writer.write_batch(pa.record_batch(arrays, schema=schema))
    (place / "_metadata.json").write_text(json.dumps(METADATA, indent=2))
    assert [open_cache(place, PETS).backend.get_row(i) for i in range(60)] == [stored(i) for i in range(60)]
    # We write the same files.
    ours = write(tmp_path / "ours")
    for name in ours.shard_filenames:
        assert (place / name).read_bytes() == (tmp_path / "ours" / name).read_bytes()
    written = json.loads((tmp_path / "ours" / "_metadata.json").read_text())
    del written["features"]
    assert json.dumps(written, indent=2) == (place / "_metadata.json").read_text()


def test_a_cache_of_staged_videos(tmp_path):
    features = Features({"video": Video(), "label": Value("int32")})
    for i in range(3):
        (tmp_path / f"{i}.mp4").write_bytes(b"video %d" % i)
    examples = [(i, {"video": str(tmp_path / f"{i}.mp4"), "label": i}) for i in range(3)]
    meta = write_sharded_arrow_cache(examples, features, tmp_path / "cache")
    assert meta.schema_fingerprint == "4c4a543d27b81b25"
    for i in range(3):
        (tmp_path / f"{i}.mp4").unlink()
        row = open_cache(tmp_path / "cache", features).backend.get_row(i)
        assert VideoRef(row["video"], tmp_path / "cache").bytes == b"video %d" % i and row["label"] == i


def test_metadata_are_read(place):
    meta = read_sharded_cache_meta(place)
    assert meta == validate_sharded_cache(place, PETS) == validate_sharded_cache(str(place), PETS)
    assert (meta.cache_dir, meta.num_rows, meta.num_shards) == (place, 60, 2)
    assert (meta.shard_row_counts, meta.schema_fingerprint, meta.compression) == ([30, 30], "39cb9288bb800052", None)
    assert [path.is_file() for path in meta.shard_paths] == [True, True]
    assert (detect_cache_layout(place), detect_cache_format(place)) == ("arrow-shards", "arrow")
    table = read_shard(meta.shard_paths[1])
    assert table.to_pylist() == [stored(i) for i in range(30, 60)]


# From section to section of what can be wrong: how the cache is damaged, the type of the error, its text.
DAMAGES = {
    "no cache": (shutil.rmtree, FileNotFoundError, "No metadata file at .*cache/_metadata.json"),
    "no metadata": (lambda p: (p / "_metadata.json").unlink(), FileNotFoundError, "No metadata file at "),
    "a file": (lambda p: (shutil.rmtree(p), p.touch()), FileNotFoundError, "No metadata file at "),
    "not JSON": (lambda p: (p / "_metadata.json").write_text("{"), ValueError, "is not JSON"),
    "no layout": (lambda p: change(p, layout=None), ValueError, "missing required 'layout'. Rebuild the cache"),
    "unknown layout": (lambda p: change(p, layout="x"), ValueError, "Unknown cache layout 'x' in .*cache"),
    "no format": (lambda p: change(p, format=None), ValueError, r"Not an Arrow sharded cache: .* \(format=None\)"),
    "version": (lambda p: change(p, cache_format_version=2), ValueError, "Unsupported cache format version 2 "),
    "shards": (lambda p: change(p, num_shards=3), ValueError, "Metadata claims 3 shards but lists 2 filenames"),
    "row counts": (
        lambda p: change(p, shard_row_counts=[60]),
        ValueError,
        "Metadata claims 2 shards but has 1 row counts",
    ),
    "sum": (lambda p: change(p, num_rows=61), ValueError, r"Sum of shard_row_counts \(60\) != num_rows \(61\)"),
    "missing key": (lambda p: change(p, num_rows=None), ValueError, "is missing 'num_rows'"),
    "missing shard": (
        lambda p: (p / "shard-00001.arrow").unlink(),
        ValueError,
        "Missing shard file: .*cache/shard-00001.arrow",
    ),
    "truncated shard": (
        lambda p: os.truncate(p / "shard-00001.arrow", 30_000),
        ValueError,
        "Not an Arrow file, or one that was cut short: .*shard-00001.arrow",
    ),
    "empty shard": (lambda p: os.truncate(p / "shard-00001.arrow", 0), ValueError, "Not an Arrow file"),
    "fingerprint": (
        lambda p: change(p, schema_fingerprint="0123456789abcdef"),
        ValueError,
        "Schema fingerprint mismatch: cache has 0123456789abcdef, expected 39cb9288bb800052. Delete the cache and",
    ),
    "a directory": (
        lambda p: ((p / "shard-00001.arrow").unlink(), (p / "shard-00001.arrow").mkdir()),
        ValueError,
        "Missing shard file",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_caches_are_named(place, damage):
    do, kind, text = DAMAGES[damage]
    do(place)
    with pytest.raises(kind, match=text) as raised:
        open_cache(place, PETS)
    assert isinstance(raised.value, TouchfsError) and "\n" not in str(raised.value)


def test_other_functions_name_the_same(place):
    change(place, format=None)
    with pytest.raises(ValueError, match="missing required 'format'"):
        detect_cache_format(place)
    change(place, layout=None, format="arrow")
    with pytest.raises(ValueError, match=r"Not an Arrow sharded cache: .* \(layout=None\)"):
        read_sharded_cache_meta(place)
    with pytest.raises(FileNotFoundError, match="No metadata file at"):
        detect_cache_layout(place / "none")
    with pytest.raises(FileNotFoundError, match="Missing shard file"):
        read_shard(place / "none.arrow")
    os.truncate(place / "shard-00000.arrow", 500)
    with pytest.raises(ValueError, match="Not an Arrow file"):
        read_shard(place / "shard-00000.arrow")


def test_an_empty_fingerprint_is_not_checked(place):
    change(place, schema_fingerprint="", features=None)
    assert open_cache(place, Features({**PETS, "label": ClassLabel(num_classes=99)})).num_rows == 60


def test_row_counts_are_checked_against_the_files(place):
    """The original gives wrong rows of such a cache."""
    change(place, shard_row_counts=[29, 31])
    with pytest.raises(TouchfsError, match="has 30 rows, and the cache says"):
        open_cache(place, PETS).backend.get_row(29)


def test_names_of_many_labels_are_checked(tmp_path):
    """Fingerprints are of the number of labels only, from six on."""
    names = [*NAMES, "ant", "bee", "cow"]
    features = Features({"label": ClassLabel(names=names)})
    write_sharded_arrow_cache([(0, {"label": "ant"})], features, tmp_path / "x")
    assert open_cache(tmp_path / "x", features).backend.get_row(0) == {"label": 3}
    with pytest.raises(ValueError, match="other names of the label 'label'"):
        open_cache(tmp_path / "x", Features({"label": ClassLabel(names=names[::-1])}))


@pytest.mark.parametrize("name", ["/etc/hostname", "../outside.arrow", "inner/shard.arrow", "..", ""])
def test_shards_lie_in_the_cache(place, name):
    shutil.copy(place / "shard-00001.arrow", place.parent / "outside.arrow")
    change(place, shard_filenames=["shard-00000.arrow", name])
    with pytest.raises(ValueError, match="not the bare name of a file in the cache"):
        open_cache(place, PETS)


@pytest.mark.parametrize("target", ["../outside.arrow", "{outside}"])
def test_links_do_not_lead_out_of_the_cache(place, target):
    outside = place.parent / "outside.arrow"
    shutil.move(place / "shard-00001.arrow", outside)
    (place / "shard-00001.arrow").symlink_to(target.format(outside=outside))
    with pytest.raises(ValueError, match=r"Missing shard file: .*leads out of"):
        open_cache(place, PETS)
    shutil.move(place / "_metadata.json", place.parent / "outside.json")
    (place / "_metadata.json").symlink_to("../outside.json")
    with pytest.raises(TouchfsError, match="leads out of"):
        open_cache(place, PETS)


def test_a_pipe_in_a_cache_is_not_waited_for(place):
    shard = place / "shard-00001.arrow"
    shard.unlink()
    os.mkfifo(shard)
    with pytest.raises(ValueError, match=r"Missing shard file: .*is not a regular file"):
        open_cache(place, PETS)
    with pytest.raises(TouchfsError, match="is not a regular file"):
        _ = ArrowBackend(shard_paths=[shard]).num_rows
    (place / "_metadata.json").unlink()
    os.mkfifo(place / "_metadata.json")
    with pytest.raises(TouchfsError, match="is not a regular file"):
        open_cache(place, PETS)
    assert listed_shards(str(place)) is None


def test_metadata_of_any_size_are_not_read(place):
    os.truncate(place / "_metadata.json", 1 << 40)
    with pytest.raises(TouchfsError, match="metadata of 1,099,511,627,776 bytes"):
        open_cache(place, PETS)


def test_an_open_cache_stays_what_it_was(tmp_path):
    """Opened, but no row read, before it is replaced; read afterwards, here and in another process."""
    place = tmp_path / "cache"
    write(place)
    opened = open_cache(place, PETS)
    write(place, 20, 1000, shard_size_bytes=1)
    write(place, 20, 2000, shard_size_bytes=1)
    assert [opened.backend.get_row(i) for i in range(60)] == [stored(i) for i in range(60)]
    (tmp_path / "pickle").write_bytes(pickle.dumps(opened.backend))
    script = "import pickle; print(pickle.load(open({!r}, 'rb')).get_row(31)['caption'])".format(
        str(tmp_path / "pickle")
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "row 31 é中"
    assert open_cache(place, PETS).backend.get_row(0) == stored(2000)
    assert len(list(tmp_path.glob(".cache_tmp_*"))) == 1
    del opened
    write(place, 20, 3000)
    assert sorted(os.listdir(tmp_path)) == ["cache", "cache.lock", "pickle"]


def test_readers_run_while_the_cache_is_rebuilt(tmp_path):
    """Each opens the cache and reads it whole, over and over. The rows of a cache are those of one generation."""
    place = tmp_path / "cache"
    write_numbers(place, 0)
    problems, rounds, done = [], [], threading.Event()

    def read():
        while not done.is_set():
            try:
                backend = open_cache(place, NUMBERS).backend
                first = backend.get_row(0)["x"]
                found = [row["x"] for row in backend.take(range(0, 4000, 7)).to_pylist()]
                assert first % 10_000 == 0 and found == list(range(first, first + 4000, 7))
                rounds.append(first)
            except Exception as error:
                problems.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for generation in itertools.count(1):
        write_numbers(place, generation * 10_000)
        if len(set(rounds)) > 3 or problems:
            break
    done.set()
    for reader in readers:
        reader.join(60)
    assert problems == []
    write_numbers(place, 0)
    assert sorted(os.listdir(tmp_path)) == ["cache", "cache.lock"]


def test_a_shard_with_damaged_offsets_is_an_error(tmp_path):
    path = tmp_path / "x.arrow"
    with pa.ipc.new_file(path, pa.schema([("x", pa.binary())])) as writer:
        writer.write_batch(pa.record_batch({"x": pa.array([b"abcd", b"efgh"], pa.binary())}))
    offsets = pa.array([0, 4, 8], pa.int32()).buffers()[1].to_pybytes()
    damaged = pa.array([0, 0x70000000, 8], pa.int32()).buffers()[1].to_pybytes()
    path.write_bytes(path.read_bytes().replace(offsets, damaged))
    with pytest.raises(ValueError, match="damaged"):
        read_shard(path)
