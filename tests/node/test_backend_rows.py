"""A storage backend as the leaf of an iterator graph."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from caches.cases import SCHEMA, arrow, rows

from touchfs.backend import ArrowBackend
from touchfs.core.errors import UsageError
from touchfs.node import (
    LazyBatcher,
    LazyGlobalShuffle,
    LazyIndexedManifestIterator,
    LazyIteratorChain,
    collect_state_dict,
    restore_state_dict,
)
from touchfs.testing import check_merge, check_restore, check_shares


def test_rows_are_items(tmp_path: Path):
    case = arrow(tmp_path, [9, 14])
    leaf = LazyIndexedManifestIterator(case.backend)
    assert list(leaf) == case.rows and len(leaf) == 23 and leaf[4] == case.rows[4]
    with pytest.raises(IndexError):
        leaf[23]


@pytest.mark.parametrize("shuffle", [False, True])
def test_it_is_restored_exactly(tmp_path: Path, shuffle: bool):
    backend = arrow(tmp_path, [3, 6]).backend
    check_restore(lambda: LazyIndexedManifestIterator(backend, shuffle=shuffle, seed=3))
    check_restore(lambda: LazyBatcher(LazyIndexedManifestIterator(backend, shuffle=shuffle, seed=3), 2))


def row_id(row: dict) -> int:
    return row["id"]


def test_workers_and_ranks_share_it(tmp_path: Path):
    backend = arrow(tmp_path, [5, 6]).backend
    check_shares(lambda: LazyIndexedManifestIterator(backend, shuffle=True, seed=3))
    check_merge(
        lambda rank, world_size: LazyIndexedManifestIterator(
            backend, shuffle=True, seed=3, rank=rank, world_size=world_size
        )
    )


def test_several_are_shuffled_globally(tmp_path: Path):
    (tmp_path / "a").mkdir()
    backends = [arrow(tmp_path / "a", [5, 6]).backend, ArrowBackend(table=pa.Table.from_pylist(rows(4), SCHEMA))]

    def make() -> LazyGlobalShuffle:
        return LazyGlobalShuffle(LazyIteratorChain(*map(LazyIndexedManifestIterator, backends)), seed=5)

    assert sorted(map(row_id, make())) == sorted([*range(11), *range(4)])
    check_restore(make)


def test_a_state_over_other_rows_is_refused(tmp_path: Path):
    for name in "ab":
        (tmp_path / name).mkdir()
    one, other = arrow(tmp_path / "a", [9, 14]).backend, arrow(tmp_path / "b", [10, 13]).backend
    node = LazyIndexedManifestIterator(one)
    next(iter(node))
    state = collect_state_dict(node)
    with pytest.raises(UsageError, match="fingerprint"):
        restore_state_dict(LazyIndexedManifestIterator(other), state)
    restore_state_dict(LazyIndexedManifestIterator(arrow(tmp_path / "a", [9, 14]).backend), state)


def test_building_a_graph_opens_nothing(tmp_path: Path):
    backend = arrow(tmp_path, [9, 14]).backend
    for path in tmp_path.iterdir():
        path.unlink()
    assert len(LazyIndexedManifestIterator(backend, shuffle=True)) == 23
