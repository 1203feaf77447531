"""Seeds that are not given are drawn once, kept with the graph, and told by its states."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest
from node import data
from node.graphs import Doubler, Things, leaf
from node.test_cut_mixer import equal, mixer, noise, speech

from touchfs import SampleSet
from touchfs.core.errors import FormatError, UsageError
from touchfs.core.token import from_json, to_json
from touchfs.node import (
    BucketingSampler,
    DynamicSampler,
    IteratorNode,
    LazyCutMixer,
    LazyFilter,
    LazyIndexedManifestIterator,
    LazyIndexedSharIterator,
    LazyInfiniteApproximateMultiplexer,
    LazyIteratorChain,
    LazyIteratorMultiplexer,
    LazyManifestIterator,
    LazyMapper,
    LazyRepeater,
    LazySharIterator,
    LazyShuffler,
    collect_state_dict,
    merge_states,
    restore_state_dict,
    share_of,
)
from touchfs.testing import check_restore

COUNT = 40


def length(thing: Any) -> float:
    return float(1 + thing.value % 5)


def numbers(seed: Any, **ranks: int) -> LazyIndexedManifestIterator:
    return LazyIndexedManifestIterator(Things(COUNT), shuffle=True, seed=seed, **ranks)


def several(seed: Any, count: int = COUNT) -> LazyRepeater:
    first, second = (LazyIndexedManifestIterator(Things(count), shuffle=True, seed=seed) for _ in range(2))
    return LazyRepeater(LazyIteratorMultiplexer(first, Doubler(LazyShuffler(second, 5, seed)), seed=seed), 2)


# Each kind of node that draws, by its seed.
DRAWING: dict[str, Callable[[Any], IteratorNode]] = {
    "leaf": numbers,
    "shar": lambda seed: LazyIndexedSharIterator(in_dir=data.shar_directory(), shuffle=True, seed=seed),
    "streamed shar": lambda seed: LazySharIterator(in_dir=data.shar_directory(), shuffle_shards=True, seed=seed),
    "streamed shards": lambda seed: LazyManifestIterator(data.speech(), shuffle_shards=True, seed=seed),
    "chain": lambda seed: LazyIteratorChain(leaf(20), leaf(20), shuffle_iters=True, seed=seed),
    "chain of mixers": lambda seed: LazyIteratorChain(mixer(seed=seed), mixer(seed=seed), shuffle_iters=True, seed=1),
    "mux": lambda seed: LazyIteratorMultiplexer(leaf(20), leaf(20), seed=seed),
    "shuffler": lambda seed: LazyShuffler(leaf(COUNT), 10, seed),
    "mixer": lambda seed: mixer(seed=seed),
    "noise of a mixer": lambda seed: LazyCutMixer(speech(), mixer(seed=seed), seed=1),
    "dynamic sampler": lambda seed: DynamicSampler(leaf(COUNT), max_items=3, shuffle=True, seed=seed, buffer_size=9),
    "bucketing sampler": lambda seed: BucketingSampler(
        leaf(COUNT), max_items=3, num_buckets=2, buffer_size=9, shuffle=True, seed=seed, duration=length
    ),
    "sample set": lambda seed: SampleSet(leaf(COUNT)).shuffle(seed).data,
    "sample set, mapped before": lambda seed: SampleSet(leaf(COUNT)).map(str).shuffle(seed).data,
    "sample set, a buffer": lambda seed: SampleSet(leaf(COUNT)).shuffle(seed, buffer_size=10).data,
    "several": several,
}
# So few shards that seeds often agree.
FEW = ("streamed shar", "streamed shards", "shar")


def alike(some: list[Any], others: list[Any]) -> bool:
    return len(some) == len(others) and all(
        equal(one, other) if hasattr(one, "sampling_rate") else one == other
        for one, other in zip(some, others, strict=True)
    )


@pytest.mark.parametrize("given", [None, "randomized", "trng"])
@pytest.mark.parametrize("name", DRAWING)
def test_a_seed_that_is_not_given_shuffles_each_graph_otherwise(name: str, given: Any) -> None:
    make = DRAWING[name]
    if name in FEW:
        first = list(map(repr, make(given)))
        assert any(list(map(repr, make(given))) != first for _ in range(40))
    else:
        assert not alike(list(make(given)), list(make(given)))


def test_a_seed_of_python_counts_for_what_is_drawn() -> None:
    random.seed(3)
    first = list(numbers(None))
    random.seed(3)
    assert list(numbers(None)) == first
    random.seed(3)
    assert list(numbers("randomized")) == first
    random.seed(3)
    assert list(numbers("trng")) != first


@pytest.mark.parametrize("name", DRAWING)
def test_pickled_copies_and_workers_share_what_was_drawn(name: str) -> None:
    node = DRAWING[name](None)
    pickled = pickle.loads(pickle.dumps(node))
    for worker in range(3):
        assert alike(list(share_of(pickled, worker, 3)), list(share_of(node, worker, 3)))
    assert alike(list(pickled), list(node))


def test_shares_of_a_drawn_order_are_the_whole() -> None:
    node = numbers(None)
    whole = [thing for worker in range(3) for thing in share_of(node, worker, 3)]
    assert sorted(thing.value for thing in whole) == list(range(COUNT))


@pytest.mark.parametrize("name", DRAWING)
def test_a_graph_without_seeds_goes_on_from_the_state_of_another_one(name: str) -> None:
    make = DRAWING[name]
    node = make(None)
    epochs, states = [], []
    for _ in range(3):
        iterator = iter(node)
        first = list(islice(iterator, 2))
        states.append(to_json(collect_state_dict(node)))
        epochs.append(first + list(iterator))
    for epoch, state in enumerate(states):
        restored = make("trng")
        restore_state_dict(restored, from_json(state))
        told = collect_state_dict(restored)
        assert without_given(told) == without_given(from_json(state))
        assert alike(list(restored), epochs[epoch][2:])
        if epoch < 2:
            assert alike(list(restored), epochs[epoch + 1])


def without_given(state: Any) -> Any:
    if isinstance(state, dict):
        return {name: without_given(value) for name, value in state.items() if name != "given_seed"}
    return list(map(without_given, state)) if isinstance(state, list) else state


@pytest.mark.parametrize("name", DRAWING)
def test_states_of_given_and_drawn_seeds_are_of_one_kind(name: str) -> None:
    """A graph without a seed goes on from the state of one with a seed, and the other way round."""
    make = DRAWING[name]
    given = make(11)
    items = iter(given)
    list(islice(items, 2))
    drawn = make(None)
    restore_state_dict(drawn, collect_state_dict(given))
    taken = iter(drawn)
    assert alike(list(islice(taken, 1)), list(islice(items, 1)))
    restored = make(11)
    restore_state_dict(restored, collect_state_dict(drawn))
    assert alike(list(restored), list(items))
    other = make(12)
    with pytest.raises(UsageError, match="11"):
        restore_state_dict(other, collect_state_dict(drawn))


def test_an_iteration_keeps_its_seed_when_another_state_is_loaded() -> None:
    for name in ("leaf", "mux", "shuffler", "sample set", "streamed shards"):
        node = DRAWING[name](None)
        iterator = iter(node)
        first = list(islice(iterator, 2))
        before = collect_state_dict(node)
        restore_state_dict(node, collect_state_dict(DRAWING[name](None)))
        second = list(islice(iterator, 1))
        after = collect_state_dict(node)
        rest = list(iterator)
        restored = DRAWING[name](None)
        restore_state_dict(restored, before)
        assert [*first, *list(restored)] == [*first, *second, *rest]
        restored = DRAWING[name](None)
        restore_state_dict(restored, after)
        assert list(restored) == rest


@pytest.mark.parametrize(
    "make",
    [
        lambda: LazyIndexedManifestIterator(Things(8), shuffle=True, seed=None),
        lambda: LazyIteratorMultiplexer(leaf(4), leaf(4), seed=None),
        lambda: LazyShuffler(leaf(8), 4, None),
        lambda: several(None, 3),
    ],
)
def test_the_checks_of_nodes_hold_for_seeds_that_a_generator_draws(make: Callable[[], IteratorNode]) -> None:
    def draw() -> IteratorNode:
        random.seed(5)
        return make()

    check_restore(draw)


# -- what is refused


@pytest.mark.parametrize("name", DRAWING)
@pytest.mark.parametrize("wrong", ["7", 1.0, True, b"7", [7], "random", np.float64(7), np.array([1, 2])])
def test_a_seed_of_a_wrong_type_is_refused_when_a_graph_is_made(name: str, wrong: Any) -> None:
    with pytest.raises(UsageError, match="a seed is one of an integer, None, 'randomized', 'trng'"):
        DRAWING[name](wrong)


def test_a_seed_of_a_wrong_type_is_refused_where_nothing_is_shuffled_too() -> None:
    for make in (
        lambda: LazyIndexedManifestIterator(range(3), seed="7"),  # type: ignore[arg-type]
        lambda: LazyIteratorChain(leaf(), seed="7"),  # type: ignore[arg-type]
        lambda: LazyManifestIterator(data.speech(), seed=1.5),  # type: ignore[arg-type]
        lambda: DynamicSampler(leaf(), max_items=2, seed="7"),  # type: ignore[arg-type]
        lambda: LazyInfiniteApproximateMultiplexer(leaf(), seed=1.5),  # type: ignore[arg-type]
    ):
        with pytest.raises(UsageError, match="a seed is"):
            make()
    unshuffled = LazyIndexedManifestIterator(range(3), seed=None, rank=0, world_size=2)
    assert list(unshuffled) == [0, 2]
    assert list(LazyIteratorChain(leaf(2), seed=None)) == list(LazyIteratorChain(leaf(2)))


def test_integers_of_numpy_are_seeds() -> None:
    assert list(numbers(np.int64(7))) == list(numbers(7))
    assert to_json(collect_state_dict(numbers(np.uint8(7)))) == to_json(collect_state_dict(numbers(7)))


RANKED: dict[str, Callable[[Any], Any]] = {
    "leaf": lambda seed: numbers(seed, rank=1, world_size=2),
    "shar": lambda seed: LazyIndexedSharIterator(
        in_dir=data.shar_directory(), shuffle=True, seed=seed, rank=1, world_size=2
    ),
    "streamed": lambda seed: LazyManifestIterator(data.speech(), shuffle_shards=True, seed=seed, rank=0, world_size=2),
    "chain": lambda seed: LazyIteratorChain(leaf(), leaf(), shuffle_iters=True, seed=seed, rank=0, world_size=2),
    "sample set": lambda seed: SampleSet(leaf()).shuffle(seed, rank=0, world_size=2),
    "file": lambda seed: SampleSet.from_file(data.speech(), shuffle=True, seed=seed, rank=0, world_size=2),
    "mux": lambda seed: LazyIteratorMultiplexer(numbers(1, rank=0, world_size=2), leaf(), seed=seed),
    "endless mux": lambda seed: LazyInfiniteApproximateMultiplexer(numbers(1, rank=0, world_size=2), seed=seed),
    "shuffler": lambda seed: LazyShuffler(LazyFilter(numbers(1, rank=0, world_size=2), bool), 5, seed),
    "bucketing": lambda seed: BucketingSampler(
        numbers(1, rank=0, world_size=2), max_items=2, seed=seed, duration=length
    ),
    "dynamic": lambda seed: DynamicSampler(numbers(1, rank=0, world_size=2), max_items=2, shuffle=True, seed=seed),
    "mixer": lambda seed: LazyCutMixer(speech(rank=0, world_size=2), noise(), seed=seed),
}


@pytest.mark.parametrize("name", RANKED)
@pytest.mark.parametrize("given", [None, "randomized", "trng"])
def test_ranks_are_refused_seeds_that_each_would_draw(name: str, given: Any) -> None:
    with pytest.raises(UsageError, match=f"seed={given!r} is drawn .* each rank .* give an integer"):
        RANKED[name](given)
    RANKED[name](7)


@pytest.mark.parametrize("given", [None, "randomized", "trng"])
def test_states_of_drawn_seeds_are_not_merged(given: Any) -> None:
    for graph in (
        numbers(given),
        LazyMapper(numbers(given), abs),
        LazyIteratorChain(leaf(3), leaf(4), shuffle_iters=True, seed=given),
        LazyIteratorMultiplexer(numbers(1), leaf(), seed=given),
        LazyCutMixer(speech(), mixer(seed=given), seed=1),
    ):
        with pytest.raises(UsageError, match=f"seed={given!r}, which was drawn"):
            merge_states([collect_state_dict(graph)])


@pytest.mark.parametrize("damaged", ["7", True, 1.5, [7], 1 << 70])
def test_damaged_seeds_of_states_are_refused(damaged: Any) -> None:
    for name in ("leaf", "mux", "shuffler", "mixer"):
        state = collect_state_dict(DRAWING[name](7))
        state["state"]["config"]["seed"] = damaged
        with pytest.raises(FormatError, match=r"config\.seed"):
            restore_state_dict(DRAWING[name](None), state)


def test_a_pass_that_was_not_shuffled_is_not_taken_for_one_that_is() -> None:
    """As it once was written for shuffle=True, seed=None."""
    plain = LazyIndexedManifestIterator(Things(COUNT))
    next(iter(plain))
    state = collect_state_dict(plain)
    with pytest.raises(UsageError, match="not shuffled: resume without shuffle"):
        restore_state_dict(numbers(None), state)
    again = LazyIndexedManifestIterator(Things(COUNT))
    restore_state_dict(again, state)
    assert len(list(again)) == COUNT - 1


# -- generators


def test_one_seed_is_drawn_from_a_generator() -> None:
    first, second = (LazyShuffler(leaf(COUNT), 10, rng=random.Random(3)) for _ in range(2))
    assert list(first) == list(second) != list(LazyShuffler(leaf(COUNT), 10, rng=random.Random(4)))
    assert list(first) == list(second) != list(LazyShuffler(leaf(COUNT), 10, rng=random.Random(3)))
    rng = random.Random(3)
    assert list(LazyShuffler(leaf(COUNT), 10, rng)) != list(LazyShuffler(leaf(COUNT), 10, rng))
    random.seed(3)
    once = list(LazyShuffler(leaf(COUNT), 10, rng=random))  # type: ignore[arg-type]
    assert once == list(LazyShuffler(leaf(COUNT), 10, rng=random.Random(3)))
    for options in ({}, {"buffer_size": 10}):
        shuffled, restored = (
            SampleSet(leaf(COUNT)).shuffle(rng=random.Random(seed), **options)  # type: ignore[arg-type]
            for seed in (3, 4)
        )
        saved = iter(shuffled)
        list(islice(saved, 5))
        restored.load_state_dict(from_json(to_json(shuffled.state_dict())))
        assert list(restored) == list(saved)
    with pytest.raises(UsageError, match="rng"):
        SampleSet(leaf()).shuffle(rng=random.Random(3), world_size=2)
    ranked = LazyShuffler(numbers(1, rank=0, world_size=2), 5, rng=random.Random(3))
    assert len(list(ranked)) == COUNT // 2
