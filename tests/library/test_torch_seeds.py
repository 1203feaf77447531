"""Loaders of graphs whose seeds were drawn: workers have one seed, and go on with that of the state they load."""

from __future__ import annotations

import copy
from functools import partial
from itertools import islice
from typing import Any

import pytest
from node.graphs import Things
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from touchfs.core.errors import UsageError
from touchfs.core.token import from_json, to_json
from touchfs.node import (
    IteratorNode,
    LazyIndexedManifestIterator,
    LazyMapper,
    LazyShuffler,
    collect_state_dict,
    restore_state_dict,
)
from touchfs.torch import NodeDataset, NodeIterableDataset, NodeSampler

pytestmark = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create:UserWarning",
    "ignore:'set_vital' is deprecated:UserWarning",
    "ignore:.*multi-threaded, use of fork:DeprecationWarning",
)
COUNT = 24


def value(thing: Any) -> Any:
    return thing.value


def drawn(given: Any = None) -> IteratorNode:
    leaf = LazyIndexedManifestIterator(Things(COUNT), shuffle=True, seed=given)
    return LazyMapper(LazyShuffler(leaf, 5, given), value)


def iterable(**options: Any) -> StatefulDataLoader:
    return StatefulDataLoader(NodeIterableDataset(drawn()), batch_size=None, **options)


def mapped(**options: Any) -> StatefulDataLoader:
    node = drawn("randomized")
    return StatefulDataLoader(NodeDataset(node), sampler=NodeSampler(node), batch_size=None, **options)


def test_workers_share_what_was_drawn() -> None:
    loader = DataLoader(NodeIterableDataset(drawn()), batch_size=None, num_workers=2)
    epochs = [list(loader) for _ in range(2)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(COUNT))] * 2
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (iterable, {}),
        (mapped, {}),
        (iterable, {"num_workers": 2, "persistent_workers": True}),
        (mapped, {"num_workers": 1}),
        pytest.param(iterable, {"num_workers": 2}, marks=pytest.mark.variant),
    ],
)
def test_a_loader_goes_on_with_the_seed_of_its_state_in_later_epochs_too(make: Any, options: dict[str, Any]) -> None:
    loader = make(**options)
    first = list(loader)
    iterator = iter(loader)
    taken = list(islice(iterator, 9))
    state = to_json(loader.state_dict())
    epochs = [taken + list(iterator), list(loader), list(loader)]
    assert [sorted(epoch) for epoch in [first, *epochs]] == [list(range(COUNT))] * 4
    restored = make(**options)
    restored.load_state_dict(from_json(state))
    assert [taken + list(restored), list(restored), list(restored)] == epochs


def test_a_graphs_own_state_brings_its_seed_into_workers() -> None:
    node = drawn()
    items = iter(node)
    taken = list(islice(items, 7))
    state = collect_state_dict(node)
    rest = [list(items), list(node)]
    told = drawn()
    restore_state_dict(told, state)
    for dataset in (NodeIterableDataset(told), NodeIterableDataset(drawn(), state=state)):
        loader = DataLoader(dataset, batch_size=None, num_workers=1)
        assert [list(loader), list(loader)] == rest
    assert sorted(taken + rest[0]) == list(range(COUNT))


def test_a_copy_of_a_loaders_dataset_has_its_seed() -> None:
    dataset = NodeIterableDataset(drawn())
    assert list(copy.deepcopy(dataset)) == list(dataset)


@pytest.mark.parametrize("given", [None, "randomized", "trng"])
def test_ranks_of_the_environment_are_refused_seeds_that_each_would_draw(
    given: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match=f"seed={given!r} is drawn"):
        NodeIterableDataset(drawn(given), distributed=True)
    NodeIterableDataset(drawn(7), distributed=True)
    assert sorted(NodeIterableDataset(drawn(given))) == list(range(COUNT))


def test_states_of_workers_whose_seeds_were_drawn_are_those_of_one_graph() -> None:
    make = partial(iterable, num_workers=2)
    loader = make()
    next(iter(loader))
    state = loader.state_dict()
    seeds = {
        part["fetcher_state"]["dataset_iter_state"]["graph"]["state"]["source"]["config"]["seed"]
        for part in state["_snapshot"]["_worker_snapshots"].values()
    }
    assert len(seeds) == 1
