"""The states of graphs in the states of loaders, with which other workers and ranks go on."""

from __future__ import annotations

import copy
from itertools import islice
from typing import Any

import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from touchfs.core.errors import UsageError
from touchfs.core.token import from_json, to_json
from touchfs.node import IteratorNode, LazyIndexedManifestIterator, merge_states
from touchfs.torch import NodeDataset, NodeIterableDataset, NodeSampler, graph_states

pytestmark = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create:UserWarning",
    "ignore:'set_vital' is deprecated:UserWarning",
    "ignore:.*multi-threaded, use of fork:DeprecationWarning",
)
COUNT = 23


def leaf() -> IteratorNode:
    return LazyIndexedManifestIterator(range(COUNT), shuffle=True, seed=3)


def iterable(**options: Any) -> StatefulDataLoader:
    return StatefulDataLoader(NodeIterableDataset(leaf(), distributed=True), **{"batch_size": None, **options})


def mapped(**options: Any) -> StatefulDataLoader:
    node = leaf()
    return StatefulDataLoader(NodeDataset(node), sampler=NodeSampler(node), **{"batch_size": None, **options})


def as_rank(monkeypatch: pytest.MonkeyPatch, rank: int, world_size: int) -> None:
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", str(world_size))


def flat(batches: Any) -> list[int]:
    return [int(number) for batch in batches for number in (batch if isinstance(batch, list) else [batch])]


BATCHES = {"batch_size": 2, "collate_fn": list}


@pytest.mark.parametrize(
    ("ranks", "workers", "options"),
    [
        (1, 0, {}),
        (1, 2, BATCHES),
        (2, 2, {}),
        *(pytest.param(ranks, *more, marks=pytest.mark.variant) for ranks, *more in [(1, 0, BATCHES), (1, 2, {})]),
        pytest.param(2, 2, BATCHES, marks=pytest.mark.variant),
    ],
)
def test_other_workers_and_ranks_go_on_from_the_states_of_loaders(
    monkeypatch: pytest.MonkeyPatch, ranks: int, workers: int, options: dict[str, Any]
) -> None:
    taken, states = [], []
    for rank in range(ranks):
        as_rank(monkeypatch, rank, ranks)
        loader = iterable(num_workers=workers, **options)
        taken += flat(islice(iter(loader), 3 + rank))
        found = graph_states(from_json(to_json(loader.state_dict())))
        assert len(found) == max(workers, 1)
        states += found
    merged = merge_states(states)
    for new_ranks, new_workers in ((1, 3), (2, 0)):
        rest = []
        for rank in range(new_ranks):
            as_rank(monkeypatch, rank, new_ranks)
            dataset = NodeIterableDataset(leaf(), state=merged, distributed=True)
            rest += list(DataLoader(dataset, batch_size=None, num_workers=new_workers))
        assert sorted(taken + rest) == list(range(COUNT))


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"batch_size": 3, "collate_fn": list, "num_workers": 2}])
def test_a_samplers_state_is_one_graphs(options: dict[str, Any]) -> None:
    loader = mapped(**options)
    taken = flat(islice(iter(loader), 4))
    (state,) = graph_states(copy.deepcopy(loader.state_dict()))
    dataset = NodeIterableDataset(leaf(), state=merge_states([state]))
    rest = list(DataLoader(dataset, batch_size=None, num_workers=2))
    assert sorted(taken + rest) == list(range(COUNT))


def test_behind_the_last_item_nothing_is_left_of_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    as_rank(monkeypatch, 0, 1)
    loader = iterable(num_workers=2)
    assert sorted(loader) == list(range(COUNT))
    merged = merge_states(graph_states(loader.state_dict()))
    dataset = NodeIterableDataset(leaf(), state=merged)
    # A worker tells that it ended one step behind its last item, so it may be the end that is left.
    assert sorted([*dataset] or [*dataset]) == list(range(COUNT))


def test_states_that_are_behind_the_loader_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    as_rank(monkeypatch, 0, 1)
    loader = iterable(num_workers=2, snapshot_every_n_steps=4)
    iterator = iter(loader)
    list(islice(iterator, 6))
    with pytest.raises(UsageError, match=r"2 steps .* snapshot_every_n_steps=1"):
        graph_states(loader.state_dict())
    list(islice(iterator, 2))
    assert len(graph_states(loader.state_dict())) == 2


def test_what_has_no_graphs_state_is_refused() -> None:
    for state in ({}, StatefulDataLoader(list(range(3))).state_dict()):
        with pytest.raises(UsageError, match="no graph's state"):
            graph_states(state)
