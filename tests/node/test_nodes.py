"""What each node yields, what it decodes, and what its tokens may be."""

from __future__ import annotations

import gc
import pickle
import threading
from collections import Counter
from concurrent.futures import CancelledError
from itertools import islice
from typing import Any

import pytest
from node import data
from node.graphs import Doubler, Thing, Things, leaf, numbers, odd, several, shuffled, text

from touchfs.core.errors import UsageError
from touchfs.core.token import State
from touchfs.node import (
    DynamicSampler,
    IteratorNode,
    LazyBatcher,
    LazyFilter,
    LazyFlattener,
    LazyGlobalShuffle,
    LazyIndexedManifestIterator,
    LazyInfiniteApproximateMultiplexer,
    LazyIteratorChain,
    LazyIteratorMultiplexer,
    LazyMapper,
    LazyPrefetcher,
    LazyRepeater,
    LazyShuffler,
    LazySlicer,
    PairNode,
    get_graph_origin,
    resolve_iterator_source,
    supports_graph_restore,
)
from touchfs.node.core.saved import Saved


def plain(count: int, start: int = 0) -> LazyIndexedManifestIterator:
    return LazyIndexedManifestIterator(range(start, start + count))


def test_what_nodes_yield() -> None:
    assert list(plain(3)) == [0, 1, 2]
    assert list(LazyMapper(plain(3), str)) == ["0", "1", "2"]
    assert list(LazyMapper(plain(4), str, apply_fn=lambda number: number % 2)) == [0, "1", 2, "3"]
    assert list(LazyFilter(plain(6), lambda number: number % 2)) == [1, 3, 5]
    assert list(LazySlicer(plain(8), 1, 3)) == [1, 4, 7]
    assert list(LazyIteratorChain(plain(2), plain(2, 10))) == [0, 1, 10, 11]
    assert sorted(LazyIteratorChain(plain(2), plain(2, 10), shuffle_iters=True)) == [0, 1, 10, 11]
    assert list(LazyFlattener(LazyIndexedManifestIterator([[1, 2], [], "ab"]))) == [1, 2, "a", "b"]
    assert list(LazyRepeater(plain(2), 2)) == [0, 1, 0, 1]
    assert list(islice(LazyRepeater(plain(2)), 5)) == [0, 1, 0, 1, 0]
    assert list(LazyRepeater(plain(0))) == list(LazyRepeater(plain(0), 2_000_000_000)) == []
    assert list(LazyBatcher(plain(5), 2)) == [[0, 1], [2, 3], [4]]
    assert list(LazyBatcher(plain(5), 2, drop_last=True)) == [[0, 1], [2, 3]]
    assert list(LazyPrefetcher(plain(9), ahead=2)) == list(range(9))
    assert sorted(LazyShuffler(plain(50), 10)) == list(range(50))
    assert sorted(LazyIteratorMultiplexer(plain(3), plain(3, 10))) == [0, 1, 2, 10, 11, 12]


def test_the_path_of_an_item_is_that_of_its_first_file() -> None:
    samples = LazyIndexedManifestIterator(data.speech())
    paths = [sample.first_path() for sample in samples]
    graphs: list[PairNode] = [
        samples,
        LazyMapper(samples, lambda sample: sample),
        LazyRepeater(samples, 2),
        LazyGlobalShuffle(samples, 3),
        LazyIteratorMultiplexer(samples, LazyRepeater(samples)),
    ]
    for graph in graphs:
        tokens = [token for token, _ in islice(graph.pairs(), len(paths)) if token is not None]
        found = graph.paths(tokens)
        assert found == [graph[token].first_path() for token in tokens]
        assert set(found) <= set(paths)


def test_progress_is_that_of_the_data_below() -> None:
    repeated = LazyRepeater(LazyIteratorMultiplexer(leaf(3), LazyRepeater(leaf(2), 2)), 3)
    for taken, epoch, position in ((0, 0, 0), (5, 0, 5), (7, 0, 7), (8, 1, 1)):
        state = repeated.begin(saved=Saved(after(repeated, taken))).state()
        assert (repeated.epoch_of(state), repeated.progress(state)) == (epoch, (position, 7))
        assert repeated.total_progress(state) == (taken, 21)
    assert LazyRepeater(leaf(3)).total_progress(after(LazyRepeater(leaf(3)), 4)) == (4, None)
    with pytest.raises(UsageError, match="a LazyBatcher do not tell"):
        LazyBatcher(leaf(), 2).progress(LazyBatcher(leaf(), 2).state_dict())


def after(node: PairNode, taken: int) -> State:
    """A state after so many items."""
    iteration = node.begin()
    iteration.take(taken)
    return iteration.state()


def test_what_nodes_yield_over_plain_iterables() -> None:
    assert sorted(LazyShuffler([3, 1, 2], 2)) == [1, 2, 3]
    assert list(LazyIteratorChain([1], iter([2]), plain(1))) == [1, 2, 0]
    assert get_graph_origin(next(iter(LazyIteratorChain([1], plain(1))))) is None


def test_an_endless_repeater_goes_on_over_epochs_that_are_empty() -> None:
    def make() -> IteratorNode:
        # In about half of the epochs the first draw is of the empty source, which ends it.
        return LazyRepeater(LazyIteratorMultiplexer(plain(0), plain(9), stop_early=True, seed=1))

    source = make().source  # type: ignore[attr-defined]
    epochs = [list(source) for _ in range(80)]
    assert 20 < epochs.count([]) < 60
    for epoch in range(12):
        begun = make().begin(epoch)  # type: ignore[attr-defined]
        state = begun.state()
        following = [number for items in epochs[epoch:] for number in items][:9]
        assert [make_item() for _, make_item in islice(begun.pairs, 9)] == following
        for taken in range(9):
            restored = make()
            restored.load_state_dict(state)
            first = list(islice(restored, taken))
            again = make()
            again.load_state_dict(restored.state_dict())
            assert first + list(islice(again, 9 - taken)) == following


def test_an_endless_repeater_of_nothing_ends() -> None:
    source = LazyFilter(plain(3), lambda number: False)
    for nothing in (plain(0), source, LazyRepeater(source), LazyRepeater(source, 2)):
        node = LazyRepeater(nothing)
        assert list(node) == []
        restored = LazyRepeater(nothing)
        restored.load_state_dict(node.state_dict())
        assert list(restored) == []


def test_lengths() -> None:
    assert len(plain(3)) == len(LazyMapper(plain(3), str)) == 3
    assert len(LazyIteratorChain(plain(3), plain(2))) == len(LazyIteratorMultiplexer(plain(3), plain(2))) == 5
    assert len(LazyRepeater(plain(3), 2)) == 6
    assert len(LazyRepeater(plain(0))) == 0
    for node in (LazyRepeater(plain(3)), LazyMapper(LazyFilter(plain(3), bool), str)):
        with pytest.raises(TypeError):
            len(node)  # type: ignore[arg-type]
        assert node


def test_weights_decide_and_stop_early_stops() -> None:
    weighted = LazyIteratorMultiplexer(plain(1000), plain(1000, 1000), weights=[9, 1])
    picks = Counter(number < 1000 for number in islice(weighted, 500))
    assert 420 < picks[True] < 480
    mux = list(LazyIteratorMultiplexer(plain(3), plain(100, 10), stop_early=True))
    assert {0, 1, 2} <= set(mux)
    assert len(mux) < 50
    assert mux != list(LazyIteratorMultiplexer(plain(3), plain(100, 10), stop_early=True, seed=1))


@pytest.mark.parametrize("streams", [None, 1, 2])
def test_the_infinite_mux_has_no_end_and_no_state(streams: int | None) -> None:
    sources = [plain(2), plain(0), plain(3, 10)]
    node = LazyInfiniteApproximateMultiplexer(*sources, weights=[1, 1, 2], max_open_streams=streams)
    seen = Counter(islice(node, 2000))
    assert set(seen) == {0, 1, 10, 11, 12}
    assert not supports_graph_restore(node)
    assert get_graph_origin(next(iter(node))) is None
    for call in (node.state_dict, lambda: node.load_state_dict({})):
        with pytest.raises(UsageError, match="not checkpointable"):
            call()
    assert list(LazyInfiniteApproximateMultiplexer(plain(0), max_open_streams=streams)) == []


# -- tokens


def test_tokens_have_the_contracts_shapes() -> None:
    def tokens(node: Any) -> list[Any]:
        return [token for token, _ in node.pairs()]

    assert tokens(plain(2)) == tokens(LazyMapper(plain(2), str)) == tokens(LazySlicer(plain(2), 0, 1)) == [0, 1]
    assert tokens(LazyIteratorChain(plain(1), plain(2))) == [(0, 0), (1, 0), (1, 1)]
    assert sorted(tokens(LazyIteratorMultiplexer(plain(1), plain(2)))) == [(0, 0), (1, 0), (1, 1)]
    assert tokens(LazyRepeater(plain(2), 2)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert tokens(LazyFlattener(LazyIndexedManifestIterator([[5], [6, 7]]))) == [(0, 0), (1, 0), (1, 1)]
    assert tokens(LazyBatcher(plain(3), 2)) == [(0, 1), (2,)]
    assert sorted(tokens(LazyIteratorChain(plain(1), plain(2), shuffle_iters=True))) == [(0, 0), (1, 0), (1, 1)]


PAIRS = [
    LazyIteratorChain(plain(2), plain(2)),
    LazyIteratorMultiplexer(plain(2), plain(2)),
    LazyRepeater(plain(2), 2),
    LazyFlattener(LazyIndexedManifestIterator([[1, 2], [3, 4]])),
]


@pytest.mark.parametrize("node", PAIRS)
def test_wrong_tokens_of_pairs(node: IteratorNode) -> None:
    for token in (0, "a", (0,), (0, 0, 0), [[0, 0], 0], ["a", 0]):
        with pytest.raises(TypeError, match="expects tokens"):
            node[token]
    for token in ([2, 0], [-1, 0], [0, 2], [0, -1]):
        with pytest.raises(IndexError, match="out of range"):
            node[token]
    assert node[[1, 0]] == node[1, 0]


def test_wrong_tokens() -> None:
    for token in ((0, 1), "0"):
        with pytest.raises(TypeError, match="expects tokens that are integers"):
            plain(3)[token]
    for token in (None, 1.0, True, {}):
        with pytest.raises(TypeError, match="a token is"):
            plain(3)[token]
    for token in (3, -1, 10**30):
        with pytest.raises(IndexError, match="out of range"):
            plain(3)[token]
    for token in (0, [], [0, 1, 2]):
        with pytest.raises(TypeError, match=r"shaped like \(source_token"):
            LazyBatcher(plain(3), 2)[token]
    with pytest.raises(UsageError, match="drops the item of token 0"):
        LazyFilter(plain(3), bool)[0]
    with pytest.raises(UsageError, match="cannot rebuild"):
        LazyMapper([1, 2], str)[0]


def test_a_foreign_node_that_loses_tokens_is_an_error_not_a_gap() -> None:
    class Loses(Doubler):
        def __iter__(self) -> Any:
            for item in self.source:
                yield Thing(item)

    class CannotCarry(Doubler):
        def __iter__(self) -> Any:
            for _ in self.source:
                yield None

    for kind in (Loses, CannotCarry):
        node = LazyShuffler(kind(leaf()), 3)
        with pytest.raises(UsageError, match=f"{kind.__name__} yields .* without a token"):
            next(iter(node))


def test_wrong_parameters_are_refused() -> None:
    for make in (
        lambda: LazySlicer(plain(1), 2, 2),
        lambda: LazyShuffler(plain(1), 0),
        lambda: LazyRepeater(plain(1), 0),
        lambda: LazyBatcher(plain(1), 0),
        lambda: LazyPrefetcher(plain(1), 0),
        lambda: LazyIteratorMultiplexer(plain(1), weights=[1, 2]),
        lambda: LazyIteratorMultiplexer(plain(1), weights=[0]),
        lambda: LazyIteratorMultiplexer(plain(1), weights=[float("nan")]),
        lambda: LazyInfiniteApproximateMultiplexer(plain(1), max_open_streams=0),
    ):
        with pytest.raises(UsageError):
            make()


# -- what is decoded


def test_resuming_makes_nothing_again() -> None:
    data = Things(1000)
    make = lambda: LazyShuffler(LazyMapper(LazyIndexedManifestIterator(data, shuffle=True), text), 100)  # noqa: E731
    node = make()
    list(islice(node, 500))
    assert len(data.made) == 500
    state = node.state_dict()
    data.made.clear()
    restored = make()
    restored.load_state_dict(state)
    assert data.made == []
    next(iter(restored))
    assert len(data.made) == 1


def test_resuming_a_flattener_makes_the_open_collection_only() -> None:
    data = Things(100)
    make = lambda: LazyFlattener(LazyMapper(LazyIndexedManifestIterator(data), several))  # noqa: E731
    node = make()
    list(islice(node, 50))
    open_ = data.made[-1]
    data.made.clear()
    restored = make()
    restored.load_state_dict(node.state_dict())
    next(iter(restored))
    assert data.made in ([open_], [open_, open_ + 1], [open_, open_ + 1, open_ + 2])


def test_what_is_passed_over_is_not_made() -> None:
    data = Things(10)
    assert len(list(LazySlicer(LazyMapper(LazyIndexedManifestIterator(data), text), 2, 5))) == 2
    assert data.made == [2, 7]
    data.made.clear()
    assert len([token for token, _ in LazyBatcher(LazyIndexedManifestIterator(data), 3).pairs()]) == 4
    assert data.made == []


def test_a_prefetcher_makes_items_in_threads_and_again_what_was_in_flight() -> None:
    names = set[str]()
    data = Things(40)

    def note(thing: Thing) -> Thing:
        names.add(threading.current_thread().name)
        return thing

    make = lambda: LazyPrefetcher(LazyMapper(LazyFilter(LazyIndexedManifestIterator(data), odd), note), 8)  # noqa: E731
    whole = list(make())
    assert whole == [Thing(value) for value in range(40) if odd(Thing(value))]
    assert all(name.startswith("touchfs-prefetch") for name in names)
    node = make()
    first = list(islice(node, 5))
    restored = make()
    restored.load_state_dict(node.state_dict())
    assert first + list(restored) == whole


# Each takes pairs of its source before it asks for an item.
HOLDERS = {
    "batcher": lambda node: LazyFlattener(LazyBatcher(node, 64)),
    "shuffler": lambda node: LazyShuffler(node, 64),
    "sampler": lambda node: LazyFlattener(DynamicSampler(node, max_items=64)),
    "prefetcher": lambda node: LazyPrefetcher(node, 64, 2),
    "batcher of a mapper of a mux": lambda node: LazyFlattener(
        LazyBatcher(LazyMapper(LazyIteratorMultiplexer(node, plain(0)), int), 64)
    ),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_a_node_above_a_prefetcher_asks_for_items_after_its_end(name: str) -> None:
    ended = threading.Event()

    class Behind(IteratorNode):
        def __iter__(self) -> Any:
            ended.set()
            return iter(())

    def slow(number: int) -> int:
        assert ended.wait(30)
        return number

    prefetcher = LazyPrefetcher(LazyMapper(list(range(50)), slow), 60, 1)
    assert sorted(HOLDERS[name](LazyIteratorChain(prefetcher, Behind()))) == list(range(50))


def test_items_of_an_abandoned_prefetcher_are_still_made() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(number: int) -> int:
        begun.set()
        assert go_on.wait(30)
        return number

    pairs = LazyPrefetcher(LazyMapper(plain(50), slow), 8, 1).pairs()
    makes = [make for _, make in islice(pairs, 20)]
    assert begun.wait(30)
    del pairs
    gc.collect()
    go_on.set()
    assert [make() for make in makes] == list(range(20))


def test_an_item_that_was_cancelled_itself_is_an_error() -> None:
    def cancelled(number: int) -> int:
        raise CancelledError("of its own")

    with pytest.raises(CancelledError, match="of its own"):
        list(LazyPrefetcher(LazyMapper(plain(3), cancelled)))


def fails_at_3(number: int) -> bool:
    return 1 // (number - 3) < 2


@pytest.mark.parametrize("kind", [lambda node: node, LazyPrefetcher])
def test_the_next_sample_follows_one_that_cannot_be_made(kind: Any) -> None:
    items = iter(kind(LazyMapper(plain(6), fails_at_3)))
    assert list(islice(items, 3)) == [True] * 3
    with pytest.raises(ZeroDivisionError):
        next(items)
    assert list(items) == [True, True]


def test_an_iteration_that_broke_does_not_look_like_the_end_of_an_epoch() -> None:
    node = LazyShuffler(LazyFilter(plain(6), fails_at_3), 2)
    items = iter(node)
    next(items)
    next(items)
    with pytest.raises(ZeroDivisionError):
        next(items)
    for _ in range(2):
        with pytest.raises(UsageError, match="failed at an earlier item"):
            next(items)
    assert node.state_dict()["epoch"] == 0


# -- nodes as objects


def test_a_wrapper_is_looked_through() -> None:
    class Wrapper:
        def __init__(self, data: Any) -> None:
            self.data = data

    node = plain(2)
    assert resolve_iterator_source(Wrapper(node)) is node
    assert resolve_iterator_source(node) is node
    assert LazyMapper(Wrapper(node), str).source is node
    eager = Wrapper([1])
    assert resolve_iterator_source(eager) is eager


def test_a_pickled_node_begins_where_it_was_told_to() -> None:
    node = shuffled()
    epochs = [list(node), list(node)]
    next(iter(node))
    assert list(pickle.loads(pickle.dumps(shuffled()))) == epochs[0]
    told = shuffled()
    told.load_state_dict(node.state_dict())
    copy = pickle.loads(pickle.dumps(told))
    assert list(copy) == list(told)
    assert list(copy) == list(told)


def test_unpickling_begins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may happen in a process that cannot read the data, and must not wait for it."""
    node = shuffled()
    next(iterator := iter(node))
    told = shuffled()
    told.load_state_dict(node.state_dict())
    with monkeypatch.context() as patched:
        patched.setattr(PairNode, "begin", lambda *_, **__: pytest.fail("it has begun"))
        copy = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(told))))
    assert copy.state_dict() == told.state_dict()
    assert list(copy) == list(iterator)


def test_a_loaded_state_is_begun_once_and_is_not_changed() -> None:
    node = numbers()
    iterator = iter(node)
    next(iterator)
    state = node.state_dict()
    before = repr(state)
    other = numbers()
    other.load_state_dict(state)
    assert other.state_dict() == state
    assert list(other) == list(iterator)
    assert list(other) == list(node)
    assert repr(state) == before
