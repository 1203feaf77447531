"""What every storage backend does, for each of them: the cases are in `cases`."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from caches.cases import CASES, Case

from touchfs.caches.backends.protocol import StorageBackend
from touchfs.core.token import from_json, to_json
from touchfs.node import LazyIndexedManifestIterator, collect_state_dict, restore_state_dict


@pytest.fixture(scope="module", params=CASES)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return CASES[request.param](tmp_path_factory.mktemp("case"))


@pytest.fixture
def case(written: Case) -> Case:
    return replace(written, backend=pickle.loads(pickle.dumps(written.backend)))


# A process that has read nothing starts others, which read. Tests of Lance have used it in this process, and what
# a fork leaves of its threads may hang.
READ_IN_A_CHILD = """
import multiprocessing, pickle, sys

def read(backends, connection):
    connection.send([backend.take([1, 0]).num_rows for backend in backends])

if __name__ == "__main__":
    backends = pickle.load(sys.stdin.buffer)
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        here, there = context.Pipe(False)
        process = context.Process(target=read, args=(backends, there))
        process.start()
        there.close()
        assert here.recv() == [2] * len(backends), method
        process.join(60)
        assert process.exitcode == 0, method
    assert [backend.take([0]).num_rows for backend in backends] == [1] * len(backends)
"""


def test_shape_and_schema(case: Case):
    backend = case.backend
    assert isinstance(backend, StorageBackend)
    assert backend.num_rows == len(case.rows)
    assert backend.num_shards == len(case.shard_rows)
    assert backend.is_file_backed == bool(case.shard_rows)
    assert isinstance(backend.prefer_batched_take, bool)
    assert isinstance(backend.schema, pa.Schema)


def test_what_lacks_a_member_is_no_backend():
    assert not isinstance([], StorageBackend)


def test_rows(case: Case):
    assert [case.of_row(case.backend.get_row(i)) for i in range(len(case.rows))] == case.expected
    assert case.of_row(case.backend.get_row(np.int64(1))) == case.expected[1]


@pytest.mark.parametrize("where", [-1, 0, 10**6, 2**70])
def test_indices_out_of_range(case: Case, where: int):
    index = where if where < 0 else len(case.rows) + where
    with pytest.raises(IndexError, match=str(index)):
        case.backend.get_row(index)
    with pytest.raises(IndexError):
        case.backend.take([0, index])


def test_take(case: Case):
    last = len(case.rows) - 1
    for indices in ([0], [last, 0], [3, 3, 1, 3], list(range(last, -1, -1)), [2, 3, 4], [last // 2, 0, last // 2 + 1]):
        for given in (indices, np.array(indices), np.array(indices, np.uint8), tuple(indices)):
            table = case.backend.take(given)
            assert case.of_table(table) == [case.expected[i] for i in indices]


def test_take_of_nothing_has_the_schema(case: Case):
    some = case.backend.take([0])
    for nothing in ([], np.array([], np.int64), np.array([])):
        table = case.backend.take(nothing)
        assert table.num_rows == 0 and table.schema.equals(some.schema)


def test_take_of_neighbours_is_a_slice(case: Case):
    taken, sliced = case.backend.take(range(1, 4)), case.backend.slice(1, 3)
    assert case.of_table(taken) == case.of_table(sliced) == case.expected[1:4]
    assert taken.schema.equals(sliced.schema)


def test_slice(case: Case):
    count = len(case.rows)
    for start, length in ((0, count), (0, 1), (count - 2, 2), (1, count - 2), (count - 1, 5), (0, 10**9)):
        assert case.of_table(case.backend.slice(start, length)) == case.expected[start : start + length]
    for start, length in ((0, 0), (1, -2), (count, 3), (count + 5, 1)):
        assert case.backend.slice(start, length).num_rows == 0
    with pytest.raises(IndexError):
        case.backend.slice(-1, 2)


def test_batches(case: Case):
    batches = list(case.backend.iter_batches())
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    assert case.of_table(pa.Table.from_batches(batches)) == case.expected


def test_batches_of_shards(case: Case):
    ends = np.cumsum(case.shard_rows)
    by_shard = [case.expected[end - count : end] for end, count in zip(ends, case.shard_rows, strict=True)]
    order = list(range(len(by_shard)))[::-1]
    found = [row for batch in case.backend.iter_batches(order) for row in case.of_table(pa.Table.from_batches([batch]))]
    assert found == [row for shard in order for row in by_shard[shard]]
    assert list(case.backend.iter_batches([])) == []
    for wrong in (-1, len(by_shard)) if by_shard else ():  # a table in memory has no shards
        with pytest.raises(IndexError):
            list(case.backend.iter_batches([wrong]))


def test_shuffled_batches(case: Case):
    def shuffled(seed: int | None) -> list:
        batches = list(case.backend.iter_batches(shuffle=True, seed=seed))
        return case.of_table(pa.Table.from_batches(batches))

    assert sorted(map(repr, shuffled(None))) == sorted(map(repr, case.expected))
    assert shuffled(5) == shuffled(5)
    if len(case.shard_rows) > 2:
        assert len({repr(shuffled(seed)) for seed in range(20)}) > 1
        # A seed is drawn.
        assert len({repr(shuffled(None)) for _ in range(20)}) > 1


def test_a_pickle_is_small_and_reads_the_same(case: Case):
    unused = pickle.dumps(case.backend)
    case.backend.get_row(0)
    used = pickle.dumps(case.backend)
    if case.backend.is_file_backed:
        assert max(len(unused), len(used)) < 2500
    for pickled in (unused, used):
        copy = pickle.loads(pickled)
        assert copy.num_rows == len(case.rows) and copy.num_shards == len(case.shard_rows)
        assert case.of_row(copy.get_row(2)) == case.expected[2]


@pytest.mark.parametrize("name", CASES)
def test_isinstance_and_pickle_open_nothing(name: str, tmp_path: Path):
    case = CASES[name](tmp_path)
    """A backend that was only counted and sent to workers never opened its files."""
    tmp_path.rename(tmp_path.with_name("away"))
    assert isinstance(case.backend, StorageBackend) and case.backend.num_rows == len(case.rows)
    assert pickle.loads(pickle.dumps(case.backend)).num_shards == len(case.shard_rows)
    tmp_path.with_name("away").rename(tmp_path)


def test_other_processes_read(tmp_path: Path):
    script = tmp_path / "read_in_a_child.py"
    script.write_text(READ_IN_A_CHILD)
    backends = []
    for number, make in enumerate(CASES.values()):
        (tmp_path / str(number)).mkdir()
        backends.append(make(tmp_path / str(number)).backend)
    subprocess.run([sys.executable, str(script)], input=pickle.dumps(backends), check=True, timeout=120)


def test_the_whole_table(case: Case):
    assert case.of_table(case.backend.table) == case.expected


def test_a_graph_over_it_resumes(case: Case):
    def make() -> LazyIndexedManifestIterator:
        return LazyIndexedManifestIterator(case.backend, shuffle=True, seed=3)

    node = make()
    items = iter(node)
    first = [case.of_row(next(items)) for _ in range(3)]
    state = from_json(to_json(collect_state_dict(node)))
    resumed = make()
    restore_state_dict(resumed, state)
    left = [case.of_row(row) for row in resumed]
    assert left == [case.of_row(row) for row in items]
    assert len(first + left) == len(case.rows) and all(row in first + left for row in case.expected)
    assert node.config()["fingerprint"] == make().config()["fingerprint"] is not None
