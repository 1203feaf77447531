import json
import os
import subprocess
import sys
import threading

import lance
import numpy as np
import pyarrow as pa
import pytest
from memory import peak

from touchfs.backend import LanceBackend
from touchfs.caches.writers.lance_rows import write_lance_cache
from touchfs.core.errors import ArgumentTypeError, ArgumentValueError
from touchfs.core.progress import listening
from touchfs.features import ClassLabel, Features, Sequence, Value, Video, features_fingerprint

FEATURES = Features(
    id=Value("int64"), name=Value("string"), label=ClassLabel(["cat", "dog"]), bits=Sequence(Value("int8"))
)


def examples(count):
    for i in range(count):
        yield (
            f"key {i}",
            {"id": np.int64(i), "name": f"n{i}", "label": ("cat", "dog")[i % 2], "bits": [i % 3], "more": 1},
        )


def expected(count):
    return [{"id": i, "name": f"n{i}", "label": i % 2, "bits": [i % 3]} for i in range(count)]


@pytest.mark.parametrize("workers", [0, 3])
def test_rows_and_metadata(tmp_path, workers):
    meta = write_lance_cache(
        examples(2500), FEATURES, tmp_path / "c", batch_size=300, num_encode_workers=workers, lineage={"from": "test"}
    )
    assert (meta.cache_dir, meta.num_rows) == (tmp_path / "c", 2500)
    assert meta.schema_fingerprint == features_fingerprint(FEATURES)
    members = json.loads((tmp_path / "c" / "_metadata.json").read_text())
    assert members.pop("features") == FEATURES.to_json()
    assert members == {
        "cache_format_version": 1,
        "format": "lance",
        "layout": "lance-rows",
        "schema_fingerprint": meta.schema_fingerprint,
        "num_rows": 2500,
        "lineage": {"from": "test"},
    }
    dataset = lance.dataset(tmp_path / "c")
    assert dataset.to_table().to_pylist() == expected(2500)
    assert dataset.schema.field("label").metadata == {b"stable_datasets.feature": b"ClassLabel"}
    assert not any(b"lance-encoding:blob" in (field.metadata or {}) for field in dataset.schema)
    assert sorted(os.listdir(tmp_path)) == ["c", "c.lock"]
    assert LanceBackend(uri=tmp_path / "c").get_row(2499) == expected(2500)[-1]


def test_no_examples(tmp_path):
    assert write_lance_cache([], FEATURES, tmp_path / "c").num_rows == 0
    backend = LanceBackend(uri=tmp_path / "c")
    assert (backend.num_rows, backend.table.num_rows, list(backend.iter_batches())) == (0, 0, [])
    assert backend.schema == FEATURES.to_arrow_schema()
    with pytest.raises(IndexError):
        backend.get_row(0)


def test_a_generator_that_raises_leaves_the_old_cache(tmp_path):
    class OwnError(Exception):
        pass

    def failing(count):
        yield from examples(count)
        raise OwnError("of the caller")

    for count in (0, 5, 5000):
        with pytest.raises(OwnError, match="of the caller"):
            write_lance_cache(failing(count), FEATURES, tmp_path / "c", batch_size=100)
        assert os.listdir(tmp_path) == []
    write_lance_cache(examples(3), FEATURES, tmp_path / "c")
    with pytest.raises(OwnError):
        write_lance_cache(failing(5000), FEATURES, tmp_path / "c", batch_size=100)
    assert LanceBackend(uri=tmp_path / "c").num_rows == 3


def test_values_that_do_not_fit(tmp_path):
    with pytest.raises(ArgumentValueError, match="column 'id' of the examples 100 to 199"):
        write_lance_cache(
            ((i, {"id": "x" if i == 150 else i}) for i in range(300)), FEATURES, tmp_path / "c", batch_size=100
        )
    with pytest.raises(ValueError, match="write_lance_video_frames_cache"):
        write_lance_cache([], Features(v=Video("frames")), tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_the_generator_runs_in_the_thread_of_the_caller_and_progress_is_reported(tmp_path):
    threads, heard = set(), []

    def watched():
        for example in examples(1000):
            threads.add(threading.get_ident())
            yield example

    with listening(heard.append, 1000):
        write_lance_cache(watched(), FEATURES, tmp_path / "c", batch_size=100)
    assert threads == {threading.get_ident()}
    assert sum(heard) == 1000


def test_a_reader_goes_on_while_the_cache_is_replaced(tmp_path):
    write_lance_cache(examples(2000), FEATURES, tmp_path / "c")
    old = LanceBackend(uri=tmp_path / "c")
    first = next(iter(old.iter_batches()))
    for count in (3, 4, 5):
        write_lance_cache(examples(count), FEATURES, tmp_path / "c")
        assert old.get_row(1999) == expected(2000)[1999]
        assert pa.Table.from_batches(old.iter_batches()).to_pylist() == expected(2000)
        assert LanceBackend(uri=tmp_path / "c").num_rows == count
    assert first["id"][0].as_py() == 0


@pytest.mark.soak
def test_memory_is_that_of_a_few_batches(tmp_path):
    """Batches of 8 MB: ten times as many take no more memory."""
    code = """
import sys
from touchfs.features import Features, Value
from touchfs.caches.writers.lance_rows import write_lance_cache
data = ((i, {"data": bytes([i % 256]) * 80_000}) for i in range(100 * int(sys.argv[1])))
write_lance_cache(data, Features(data=Value("binary")), sys.argv[2], batch_size=100)
"""
    used = []
    for batches in (10, 100):
        done, megabytes = peak(tmp_path, sys.executable, "-c", code, str(batches), str(tmp_path / f"c{batches}"))
        assert done.returncode == 0, done.stderr
        used.append(megabytes)
    assert used[1] < used[0] + 150


@pytest.mark.parametrize("missing", ["lance", "pyarrow"])
def test_a_missing_extra_is_named(tmp_path, missing):
    code = f"""
import sys
sys.modules[{missing!r}] = None
from touchfs.core.errors import MissingExtraError
from touchfs.features import Features, Value
from touchfs.caches.writers.lance_rows import write_lance_cache
try:
    write_lance_cache([], Features(n=Value("int8")), {str(tmp_path / "c")!r})
except MissingExtraError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert f"touchfs-shards[{'lance' if missing == 'lance' else 'arrow'}]" in done.stdout
    assert not (tmp_path / "c").exists()


def test_features_may_be_a_plain_dict(tmp_path):
    meta = write_lance_cache(examples(3), dict(FEATURES), tmp_path / "c")
    assert (meta.num_rows, meta.schema_fingerprint) == (3, features_fingerprint(FEATURES))
    with pytest.raises(
        ArgumentTypeError, match="features are a mapping from names of columns to feature types, not list"
    ):
        write_lance_cache(examples(3), list(FEATURES), tmp_path / "d")
    assert not (tmp_path / "d").exists()


def test_a_column_with_a_dot_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ArgumentValueError, match=r"^Lance allows no dot in the name of a column: rename 'a\.b'$"):
        write_lance_cache(iter([]), Features({"a.b": Value("int64")}), tmp_path / "c")
    assert not os.listdir(tmp_path)
