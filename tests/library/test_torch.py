"""Each sample once in each epoch, whatever the workers, and after any save point too."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from node.graphs import Doubler, Things, odd, several
from torch.utils.data import DataLoader, RandomSampler
from torchdata.stateful_dataloader import StatefulDataLoader

import touchfs.torch
from touchfs.core.errors import FormatError, UsageError
from touchfs.core.token import from_json, to_json
from touchfs.node import (
    BucketingSampler,
    DynamicSampler,
    IteratorNode,
    LazyFilter,
    LazyFlattener,
    LazyIndexedManifestIterator,
    LazyInfiniteApproximateMultiplexer,
    LazyIteratorChain,
    LazyIteratorMultiplexer,
    LazyManifestIterator,
    LazyMapper,
    LazyRepeater,
    LazyShuffler,
    collect_state_dict,
    merge_states,
    restore_state_dict,
    share_of,
)
from touchfs.torch import NodeDataset, NodeIterableDataset, NodeSampler

# Two cores are enough for what is tested; torchdata is behind torch; and from Python 3.12 on, a fork beside torch's
# threads is warned of.
pytestmark = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create:UserWarning",
    "ignore:'set_vital' is deprecated:UserWarning",
    "ignore:.*multi-threaded, use of fork:DeprecationWarning",
)


def value(thing: Any) -> Any:
    return thing.value


def leaf(count: int = 14, shuffle: bool = True, **options: Any) -> IteratorNode:
    return LazyMapper(LazyIndexedManifestIterator(Things(count), shuffle=shuffle, seed=3, **options), value)


def length(number: int) -> float:
    return 1 + number % 5


def bucketing(count: int = 30) -> IteratorNode:
    return BucketingSampler(leaf(count), max_items=3, num_buckets=2, buffer_size=6, shuffle=True, duration=length)


def flat(batches: Any) -> list[Any]:
    return [number for batch in batches for number in (batch if isinstance(batch, list) else [batch])]


def as_list(batch: list[Any]) -> list[Any]:
    return batch


def iterable(make: Callable[[], IteratorNode], **options: Any) -> StatefulDataLoader:
    return StatefulDataLoader(NodeIterableDataset(make()), **{"batch_size": None, **options})


def mapped(make: Callable[[], IteratorNode], **options: Any) -> StatefulDataLoader:
    node = make()
    return StatefulDataLoader(NodeDataset(node), sampler=NodeSampler(node), **{"batch_size": None, **options})


# Within, and after the end was seen. Each place starts the workers again, twice: so all are tried without workers,
# and with them by `make test-all`.
SOME_PLACES = (3, -1)
EVERY_PLACE = pytest.param(None, marks=pytest.mark.variant)


def check_save_points(
    make: Callable[[], StatefulDataLoader], count: int, places: Sequence[int] | None = None, next_epochs: bool = True
) -> None:
    """At these places of the states, which are one more than the batches and the end. Without any: at every place."""
    loader = make()
    states, whole = [copy.deepcopy(make().state_dict())], []
    for batch in loader:
        whole.append(batch)
        states.append(copy.deepcopy(loader.state_dict()))
    states.append(copy.deepcopy(loader.state_dict()))
    assert sorted(flat(whole)) == list(range(count))
    second = list(loader) if next_epochs else None
    saved = list(enumerate(states))
    for taken, state in saved if places is None else [saved[place] for place in places]:
        restored = make()
        restored.load_state_dict(from_json(to_json(state)))
        if taken <= len(whole):
            assert whole[:taken] + list(restored) == whole
        if second is not None:
            assert list(restored) == second


@pytest.mark.parametrize("make", [iterable, mapped])
@pytest.mark.parametrize("node", [leaf, bucketing])
def test_every_save_point_without_workers(make: Any, node: Any) -> None:
    count = 14 if node is leaf else 30
    check_save_points(lambda: make(node), count)
    check_save_points(lambda: make(node, batch_size=3, collate_fn=as_list), count) if node is leaf else None


@pytest.mark.parametrize("places", [SOME_PLACES, EVERY_PLACE])
def test_save_points_with_workers(places: Sequence[int] | None) -> None:
    check_save_points(partial(iterable, partial(bucketing, 20), num_workers=2), 20, places, places is not None)


def test_save_points_of_batches_that_workers_collate() -> None:
    make = partial(iterable, partial(leaf, 11), batch_size=2, collate_fn=as_list, num_workers=2)
    check_save_points(make, 11, (3, -1), next_epochs=False)


def test_save_points_of_a_map_with_workers() -> None:
    check_save_points(lambda: mapped(partial(bucketing, 20), num_workers=2), 20, (3, -1), next_epochs=False)


def test_persistent_workers_that_prefetch() -> None:
    """Saved when one worker has yielded and the other has only worked ahead; the next epochs are not spoilt by it."""
    options: dict[str, Any] = {"num_workers": 2, "prefetch_factor": 4, "persistent_workers": True}
    loader = iterable(partial(leaf, 20), **options)
    epochs = [list(loader) for _ in range(3)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(20))] * 3
    assert len({tuple(epoch) for epoch in epochs}) == 3
    saved = iterable(partial(leaf, 20), **options)
    assert next(iter(saved)) == epochs[0][0]
    state = copy.deepcopy(saved.state_dict())
    restored = iterable(partial(leaf, 20), **options)
    restored.load_state_dict(state)
    assert [list(restored), list(restored)] == [epochs[0][1:], epochs[1]]


@pytest.mark.parametrize(("loader", "workers"), [(DataLoader, 0), (DataLoader, 3), (StatefulDataLoader, 1)])
def test_each_sample_once_in_each_epoch(loader: Any, workers: int) -> None:
    over = loader(NodeIterableDataset(leaf(30)), batch_size=None, num_workers=workers)
    epochs = [list(over) for _ in range(2)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(30))] * 2
    assert epochs[0] != epochs[1]


def drawn() -> IteratorNode:
    """A leaf whose seed is drawn when it is made."""
    return LazyMapper(LazyIndexedManifestIterator(Things(12), shuffle=True, seed=None), value)


def test_a_spawned_worker() -> None:
    """It has the seed that was drawn here. A state does not tell how workers were started."""
    dataset = NodeIterableDataset(drawn())
    here = copy.deepcopy(dataset)
    options: dict[str, Any] = {"batch_size": None, "num_workers": 1}
    loader = StatefulDataLoader(dataset, **options, multiprocessing_context="spawn", persistent_workers=True)
    epochs = []
    for _ in range(2):
        epochs.append([])
        for number in loader:
            epochs[-1].append(number)
            if len(epochs[0]) == 5:
                state = copy.deepcopy(loader.state_dict())
    restored = StatefulDataLoader(NodeIterableDataset(drawn()), **options)
    restored.load_state_dict(state)
    assert [epochs[0][:5] + list(restored), list(restored)] == epochs == [list(here), list(here)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(12))] * 2


def test_a_pass_that_was_broken_off_leaves_workers_in_one_epoch() -> None:
    loader = DataLoader(NodeIterableDataset(leaf(20)), batch_size=None, num_workers=2)
    for _ in range(2):
        assert next(iter(loader)) in range(20)
    assert sorted(loader) == list(range(20))


def test_set_epoch_says_which_comes_next() -> None:
    epochs = [list(node) for node in [leaf()] for _ in range(3)]
    dataset = NodeIterableDataset(leaf())
    for epoch in (2, 0, 1):
        dataset.set_epoch(epoch)
        assert list(dataset) == epochs[epoch]
    assert list(dataset) == epochs[2]
    sampler = NodeSampler(leaf())
    sampler.set_epoch(2)
    assert list(sampler) == epochs[2]
    persistent = NodeIterableDataset(leaf())
    loader = DataLoader(persistent, batch_size=None, num_workers=1, persistent_workers=True)
    assert list(loader) == epochs[0]
    persistent.set_epoch(2)
    assert list(loader) == epochs[2]


@pytest.mark.parametrize(
    "make",
    [
        lambda: LazyIteratorChain(leaf(5), leaf(9)),
        lambda: LazyIteratorChain(leaf(5), LazyIteratorChain(leaf(4), leaf(2)), shuffle_iters=True),
        lambda: LazyIteratorMultiplexer(leaf(7), LazyShuffler(leaf(6), 3)),
        lambda: LazyRepeater(LazyFilter(leaf(40), odd), 2),
        lambda: LazyFlattener(LazyMapper(LazyIndexedManifestIterator(Things(13), shuffle=True), several)),
        lambda: Doubler(leaf(9)),
        lambda: LazyFlattener(DynamicSampler(leaf(17), max_items=4, shuffle=True)),
    ],
)
def test_shares_of_any_graph_are_the_whole(make: Callable[[], IteratorNode]) -> None:
    node = make()
    whole = sorted(map(str, make()))
    for workers in (1, 2, 3, 7):
        shares = [share_of(node, worker, workers) for worker in range(workers)]
        assert sorted(str(item) for share in shares for item in share) == whole
    assert sorted(map(str, node)) == whole


def test_shares_of_one_node_in_two_places() -> None:
    same = leaf(9)
    share = share_of(LazyIteratorChain(same, same), 1, 2)
    assert share.sources[0] is share.sources[1]
    assert len(list(share)) == 8


def test_shards_that_are_streamed_are_shared(tmp_path: Path) -> None:
    for shard in range(5):
        lines = [f'{{"id": "{shard}-{line}"}}\n' for line in range(shard)]
        (tmp_path / f"{shard}.jsonl").write_text("".join(lines))
    make = partial(LazyManifestIterator, tmp_path, shuffle_shards=True)
    whole = sorted(sample["json"] for sample in make())
    assert len(whole) == 10
    for workers in (2, 7):
        shares = [share_of(make(), worker, workers) for worker in range(workers)]
        assert sorted(sample["json"] for share in shares for sample in share) == whole


def test_what_cannot_be_shared_is_refused() -> None:
    def streaming() -> IteratorNode:
        return LazyIteratorChain([1, 2, 3])

    assert list(DataLoader(NodeIterableDataset(streaming()), batch_size=None)) == [1, 2, 3]
    with pytest.raises(UsageError, match="cannot be shared among 2 workers"):
        share_of(streaming(), 0, 2)

    class Own(list[int]):
        def for_worker(self, worker: int, workers: int) -> Own:
            return Own(self[worker::workers])

    shares = [share_of(LazyIteratorChain(Own([1, 2, 3])), worker, 2) for worker in range(2)]
    assert [list(share) for share in shares] == [[1, 3], [2]]


def test_ranks_of_the_environment_count_only_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert sorted(NodeIterableDataset(leaf())) == list(range(14))
    loader = DataLoader(NodeIterableDataset(leaf(), distributed=True), batch_size=None, num_workers=2)
    second = list(loader)
    monkeypatch.setenv("RANK", "0")
    first = list(DataLoader(NodeIterableDataset(leaf(), distributed=True), batch_size=None, num_workers=2))
    assert sorted(first + second) == list(range(14))
    with pytest.raises(UsageError, match="one rank's already"):
        NodeIterableDataset(leaf(rank=0, world_size=2), distributed=True)
    for rank in ("2", "", "x"):
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(UsageError, match="RANK and WORLD_SIZE"):
            NodeIterableDataset(leaf(), distributed=True)


def test_ranks_of_the_graph_are_shared_further() -> None:
    shares = [
        list(DataLoader(NodeIterableDataset(leaf(rank=rank, world_size=2)), batch_size=None, num_workers=2))
        for rank in range(2)
    ]
    assert sorted(shares[0] + shares[1]) == list(range(14))


def test_going_on_with_another_number_of_workers() -> None:
    loader = iterable(partial(leaf, 20), num_workers=2)
    iterator = iter(loader)
    first = [next(iterator) for _ in range(7)]
    merged = merge_states(worker_states(loader))
    for count in (0, 3):
        other = DataLoader(NodeIterableDataset(leaf(20), state=merged), batch_size=None, num_workers=count)
        assert sorted(first + list(other)) == list(range(20))
        assert sorted(other) == list(range(20))


def test_workers_share_what_a_graph_was_restored_to_and_no_state_of_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    node = leaf()
    taken = next(iter(node))
    told = leaf()
    restore_state_dict(told, collect_state_dict(node))
    assert len(list(NodeIterableDataset(told))) == 13
    # As in a worker. In a real one, torch takes 10 seconds to get over an error of a dataset's iter().
    came = [taken]
    for worker in range(2):
        worker_info = SimpleNamespace(id=worker, num_workers=2)
        monkeypatch.setattr(touchfs.torch, "get_worker_info", lambda worker_info=worker_info: worker_info)
        came += NodeIterableDataset(told)
    assert sorted(came) == sorted(leaf())
    with pytest.raises(UsageError, match="merge_states"):
        iter(NodeIterableDataset(leaf(), state=collect_state_dict(node)))


# -- in any epoch


EPOCHS = 5
LOADERS = {
    "iterable": iterable,
    "mapped": mapped,
    "iterable, persistent workers": partial(iterable, num_workers=2, persistent_workers=True),
    "mapped, persistent workers": partial(mapped, num_workers=2, persistent_workers=True),
    "iterable, new workers each time": partial(iterable, num_workers=2),
}


def early(count: int = 9) -> IteratorNode:
    """Of two workers the second has one item, and the first has all others."""
    return LazyFilter(leaf(2 * count - 2, shuffle=False, partition="block"), partial(operator.gt, count))


def shuffled_numbers() -> IteratorNode:
    return leaf(9)


class Passing(Doubler):
    """Written elsewhere, and the root of its graph."""

    def __iter__(self) -> Any:
        yield from self.source

    def __getitem__(self, token: Any) -> Any:
        return self.source[token]


def foreign() -> IteratorNode:
    return Passing(Passing(leaf(9)))


EVERY = list(product(range(EPOCHS), range(11)))


# Each state with workers starts them twice or four times: so it is each place with each loader, and each epoch.
SAVED = [
    ("iterable", shuffled_numbers, EVERY),
    ("iterable", early, EVERY),
    ("mapped", foreign, EVERY),
    ("iterable, persistent workers", early, [(2, 0), (2, 9)]),
    ("mapped, persistent workers", shuffled_numbers, [(2, 4), (2, 10)]),
    *(
        pytest.param(name, node, saved, marks=pytest.mark.variant)
        for name, node, saved in (
            ("mapped", early, EVERY),
            ("iterable, new workers each time", foreign, [(0, 4), (0, 9)]),
            ("iterable, persistent workers", shuffled_numbers, [(0, 4), (1, 10), (3, 0), (4, 9)]),
            ("mapped, persistent workers", early, [(0, 9), (1, 0), (3, 4), (4, 10)]),
            ("iterable, new workers each time", early, [(1, 9), (2, 4), (3, 10), (4, 0)]),
        )
    ),
]


@pytest.mark.parametrize(("name", "node", "saved"), SAVED)
def test_every_epochs_states_resume(
    name: str, node: Callable[[], IteratorNode], saved: Sequence[tuple[int, int]]
) -> None:
    make = partial(LOADERS[name], node)
    loader, epochs, states = make(), [], {}
    for epoch in range(max(saved)[0] + 1):
        iterator = iter(loader)
        epochs.append([])
        for taken in range(11):
            if (epoch, taken) in saved:
                states[epoch, taken] = to_json(loader.state_dict())
            epochs[-1] += islice(iterator, 1)
    epochs += [list(loader) for _ in range(2)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(9))] * len(epochs)
    for (epoch, taken), state in states.items():
        restored = make()
        restored.load_state_dict(from_json(state))
        left = [list(restored), list(restored)]
        # The end of an epoch is seen one step behind its last item.
        expected = [epochs[epoch][taken:], epochs[epoch + 1]] if taken < 10 else epochs[epoch + 1 : epoch + 3]
        assert left == expected, (epoch, taken)


def in_epoch(epoch: int, taken: int, node: IteratorNode) -> IteratorNode:
    """The node, after so many items of an epoch."""
    for _ in range(epoch):
        list(node)
    list(islice(node, taken))
    return node


@pytest.mark.parametrize(
    ("epoch", "workers", "make"),
    [*product(range(EPOCHS), [0], [shuffled_numbers, foreign]), (2, 1, foreign)],
)
def test_passes_go_on_from_a_graphs_state_of_any_epoch(
    epoch: int, workers: int, make: Callable[[], IteratorNode]
) -> None:
    state = collect_state_dict(in_epoch(epoch, 4, make()))
    node = in_epoch(epoch, 0, make())
    epochs = [list(node) for _ in range(2)]
    restored = make()
    restore_state_dict(restored, state)
    loaders = [
        DataLoader(NodeIterableDataset(make(), state=state), batch_size=None, num_workers=workers),
        DataLoader(NodeIterableDataset(restored), batch_size=None, num_workers=workers),
        DataLoader(NodeDataset(make()), sampler=NodeSampler(restored), batch_size=None, num_workers=workers),
    ]
    for loader in loaders:
        assert [list(loader), list(loader)] == [epochs[0][4:], epochs[1]]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", [iterable, mapped])
def test_an_epoch_that_was_set_is_saved_and_resumes(kind: Any, workers: int) -> None:
    def make() -> tuple[StatefulDataLoader, Any]:
        loader = kind(shuffled_numbers, num_workers=workers)
        return loader, loader.sampler if kind is mapped else loader.dataset

    loader, counts = make()
    counts.set_epoch(5)
    iterator = iter(loader)
    first = list(islice(iterator, 4))
    state = to_json(loader.state_dict())
    epochs = [first + list(iterator), list(loader)]
    if not workers or kind is mapped:
        assert epochs[0] == list(in_epoch(5, 0, leaf(9)))
    restored, _ = make()
    restored.load_state_dict(from_json(state))
    assert [list(restored), list(restored)] == [epochs[0][4:], epochs[1]]


def worker_states(loader: StatefulDataLoader) -> list[Any]:
    workers = copy.deepcopy(loader.state_dict())["_snapshot"]["_worker_snapshots"].values()
    return [worker["fetcher_state"]["dataset_iter_state"]["graph"] for worker in workers]


@pytest.mark.parametrize(
    ("epoch", "node"),
    [(0, foreign), (1, early), (4, shuffled_numbers), pytest.param(2, shuffled_numbers, marks=pytest.mark.variant)],
)
def test_other_workers_go_on_in_any_epoch(epoch: int, node: Callable[[], IteratorNode]) -> None:
    loader = iterable(node, num_workers=2)
    loader.dataset.set_epoch(epoch)
    iterator = iter(loader)
    first = list(islice(iterator, 5))
    merged = merge_states(worker_states(loader))
    for count in (0, 1):
        other = DataLoader(NodeIterableDataset(node(), state=merged), batch_size=None, num_workers=count)
        assert sorted(first + list(other)) == list(range(9))
        assert sorted(other) == list(range(9))


# -- by tokens


def test_a_map_has_one_order_whatever_the_workers() -> None:
    def make() -> IteratorNode:
        return LazyShuffler(LazyFilter(LazyIteratorMultiplexer(leaf(9), leaf(8)), odd), 5)

    for workers in (0, 2):
        loader = mapped(make, num_workers=workers)
        node = make()
        assert [list(loader), list(loader)] == [list(node), list(node)]


def test_a_map_takes_ordinals_where_the_graph_has_them() -> None:
    chain = LazyIteratorChain(leaf(5, False), leaf(6, False))
    assert list(DataLoader(NodeDataset(chain), batch_size=None)) == [*range(5), *range(6)]
    for node in (leaf(11), chain):
        dataset = NodeDataset(node)
        assert sorted(DataLoader(dataset, sampler=RandomSampler(dataset), batch_size=None)) == sorted(node)
    assert NodeDataset(chain)[1, 2] == 2
    for node in (LazyFilter(leaf(), bool), LazyShuffler(leaf(), 3), leaf(rank=0, world_size=2)):
        with pytest.raises(UsageError, match="NodeSampler"):
            len(NodeDataset(node))
    ranked = leaf(rank=1, world_size=2)
    assert list(mapped(lambda: ranked)) == list(leaf(rank=1, world_size=2))
    assert len(NodeSampler(ranked)) == 7


def test_the_main_process_decodes_nothing_of_a_map() -> None:
    data = Things(50)
    node = LazyShuffler(LazyIndexedManifestIterator(data), 10)
    assert len(list(DataLoader(NodeDataset(node), sampler=NodeSampler(node), batch_size=None, num_workers=1))) == 50
    assert data.made == []


# -- what is refused


def test_what_is_no_graph_or_has_no_state_is_refused() -> None:
    for kind in (NodeIterableDataset, NodeDataset, NodeSampler):
        with pytest.raises(UsageError, match="not a graph"):
            kind([1, 2])
    endless = LazyInfiniteApproximateMultiplexer(leaf(), leaf())
    for kind in (NodeDataset, NodeSampler):
        with pytest.raises(UsageError, match="use a NodeIterableDataset"):
            kind(endless)
    assert len(list(islice(DataLoader(NodeIterableDataset(endless), batch_size=None), 40))) == 40
    with pytest.raises(UsageError, match="not checkpointable"):
        StatefulDataLoader(NodeIterableDataset(endless), batch_size=None).state_dict()


def test_states_of_others_are_refused() -> None:
    taken = iter(NodeIterableDataset(leaf()))
    next(taken)
    state = taken.state_dict()
    for other, why in ((leaf(15), "length"), (bucketing(), "graph")):
        with pytest.raises(UsageError, match=why):
            iter(NodeIterableDataset(other)).load_state_dict(state)
    for damaged in ({}, {**state, "epoch": 1}, {**state, "ended": 0}, {**state, "ended": True}, {**state, "graph": {}}):
        with pytest.raises(FormatError):
            iter(NodeIterableDataset(leaf())).load_state_dict(damaged)


def test_a_pickled_dataset_is_the_same() -> None:
    dataset = NodeIterableDataset(leaf())
    assert list(pickle.loads(pickle.dumps(dataset))) == list(dataset)


def fails_at_3(number: int) -> int:
    if number == 3:
        raise OSError("3 is gone")
    return number


@pytest.mark.parametrize("workers", [0, 1])
def test_the_next_sample_follows_one_that_cannot_be_made(workers: int) -> None:
    node = LazyMapper(leaf(6, shuffle=False), fails_at_3)
    items = iter(DataLoader(NodeIterableDataset(node), batch_size=None, num_workers=workers))
    assert [next(items) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="3 is gone"):
        next(items)
    assert list(items) == [4, 5]
