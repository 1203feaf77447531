"""Map-style and iterable datasets over a backend, alone and in PyTorch's DataLoader."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from caches.cases import SCHEMA, arrow, arrow_in_memory
from torch.utils.data import DataLoader

from touchfs.backend import ArrowBackend, BackendDataset, BackendIterableDataset
from touchfs.core.errors import UsageError

torch.set_num_threads(1)


def as_list(batch: list) -> list:
    return batch


def number(row: dict) -> int:
    return row["id"]


class Counting:
    """A backend that counts calls."""

    def __init__(self, backend: ArrowBackend, prefer: bool) -> None:
        self.backend, self.calls, self.prefer_batched_take = backend, Counter(), prefer

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        self.calls[name] += 1
        return getattr(self.backend, name)


def test_items_by_index(tmp_path: Path):
    case = arrow(tmp_path, [9, 14])
    dataset = BackendDataset(case.backend)
    assert len(dataset) == 23 and dataset[3] == case.rows[3] and dataset[-1] == case.rows[-1]
    assert dataset[torch.tensor(5)] == case.rows[5]
    assert dataset.__getitems__([22, -23, 3, 3]) == [case.rows[i] for i in (22, 0, 3, 3)]
    assert dataset.__getitems__([]) == []
    for wrong in (23, -24):
        with pytest.raises(IndexError, match=str(wrong)):
            dataset[wrong]
        with pytest.raises(IndexError):
            dataset.__getitems__([0, wrong])
    assert BackendDataset(case.backend, decode=number).__getitems__([4, -1]) == [4, 22]
    assert pickle.loads(pickle.dumps(BackendDataset(case.backend, decode=number)))[-2] == 21


@pytest.mark.parametrize("prefer", [True, False])
def test_a_batch_is_one_take_if_the_backend_prefers_it(tmp_path: Path, prefer: bool):
    backend = Counting(arrow(tmp_path, [23]).backend, prefer)
    assert [row["id"] for row in BackendDataset(backend).__getitems__([5, 1])] == [5, 1]
    assert (backend.calls["take"], backend.calls["get_row"]) == ((1, 0) if prefer else (0, 2))


@pytest.mark.parametrize(("workers", "method"), [(0, None), (2, "fork")])
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:lance is not fork-safe")  # said where another test has imported it
def test_map_style_in_a_loader(tmp_path: Path, workers: int, method: str | None):
    case = arrow(tmp_path, [9, 14])
    case.backend.get_row(0)
    loader = DataLoader(
        BackendDataset(case.backend), 4, shuffle=True, num_workers=workers, collate_fn=as_list,
        multiprocessing_context=method,
    )  # fmt: skip
    assert sorted((row for batch in loader for row in batch), key=number) == case.rows


@pytest.mark.parametrize(("workers", "method"), [(0, None), (2, "fork"), (1, "spawn")])
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:lance is not fork-safe")  # said where another test has imported it
def test_iterable_in_a_loader(tmp_path: Path, workers: int, method: str | None):
    case = arrow(tmp_path, [9, 3, 11])
    dataset = BackendIterableDataset(case.backend, number, shuffle=True, buffer_size=4)
    loader = DataLoader(
        dataset, None, num_workers=workers, multiprocessing_context=method, persistent_workers=bool(workers)
    )
    first, again = list(loader), list(loader)
    dataset.set_epoch(1)
    assert first == again != list(loader)
    assert sorted(first) == sorted(loader) == list(range(23))


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8])
def test_any_number_of_workers_and_ranks_reads_each_row_once(tmp_path: Path, workers: int, shuffle: bool):
    backend = arrow(tmp_path, [7, 11, 0, 5], batch=3).backend
    for epoch in range(3):
        seen = []
        for rank in range(workers):
            dataset = BackendIterableDataset(backend, number, shuffle=shuffle, rank=rank, world_size=workers)
            dataset.set_epoch(epoch)
            seen += list(dataset)
        assert sorted(seen) == list(range(23))


@pytest.mark.parametrize("prefer", [True, False])
def test_workers_read_only_their_rows_of_one_shard(tmp_path: Path, prefer: bool):
    backend = Counting(arrow(tmp_path, [23]).backend, prefer)
    assert list(BackendIterableDataset(backend, number, rank=1, world_size=4)) == list(range(1, 23, 4))
    assert (backend.calls["take"], backend.calls["get_row"], backend.calls["iter_batches"]) == (
        (1, 0, 0) if prefer else (0, 6, 0)
    )


def test_workers_take_shards(tmp_path: Path):
    case = arrow(tmp_path, [4, 4, 4, 4, 4])
    parts = [list(BackendIterableDataset(case.backend, number, rank=w, world_size=2)) for w in range(2)]
    assert parts == [[*range(4), *range(8, 12), *range(16, 20)], [*range(4, 8), *range(12, 16)]]


def test_orders_of_epochs(tmp_path: Path):
    backend = arrow(tmp_path, [5, 5, 5], batch=2).backend

    def order(seed: int, epoch: int, **options) -> list[int]:
        dataset = BackendIterableDataset(backend, number, seed=seed, **options)
        dataset.set_epoch(epoch)
        return list(dataset)

    assert order(0, 5) == list(range(15))
    assert order(3, 1, shuffle=True) == order(3, 1, shuffle=True) == order(4, 0, shuffle=True)
    assert len({tuple(order(0, epoch, shuffle=True)) for epoch in range(9)}) == 9
    # Shards only, in some order.
    alone = order(0, 0, shuffle=True, buffer_size=1)
    assert sorted(alone[i : i + 5] for i in (0, 5, 10)) == [list(range(i, i + 5)) for i in (0, 5, 10)]


def test_a_table_in_memory_and_an_empty_cache(tmp_path: Path):
    case = arrow_in_memory(tmp_path)
    for workers in (1, 3):
        parts = [list(BackendIterableDataset(case.backend, rank=w, world_size=workers)) for w in range(workers)]
        assert sorted((row for part in parts for row in part), key=number) == case.rows
    nothing = ArrowBackend(shard_paths=[], shard_row_counts=[], schema=SCHEMA)
    assert list(BackendIterableDataset(nothing, shuffle=True)) == [] and len(BackendDataset(nothing)) == 0


def test_wrong_options_are_refused(tmp_path: Path):
    backend = arrow(tmp_path, [3]).backend
    for wrong in ({"rank": 1}, {"rank": -1, "world_size": 2}, {"buffer_size": 0}, {"seed": -1}):
        with pytest.raises(UsageError):
            BackendIterableDataset(backend, **wrong)


def test_both_work_without_torch(tmp_path: Path):
    case = arrow(tmp_path, [9, 14])
    (tmp_path / "pickled").write_bytes(pickle.dumps(case.backend))
    code = """
import json, pickle, sys
sys.modules["torch"] = None
from touchfs.backend import BackendDataset, BackendIterableDataset
backend = pickle.load(open(sys.argv[1], "rb"))
rows = BackendIterableDataset(backend, shuffle=True)
print(json.dumps([BackendDataset(backend)[-1]["id"], sorted(row["id"] for row in rows)]))
"""
    told = subprocess.check_output([sys.executable, "-c", code, tmp_path / "pickled"])
    assert json.loads(told) == [22, list(range(23))]
