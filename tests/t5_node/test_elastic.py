"""With other ranks than before, each remaining sample comes exactly once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import chain, islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from t5_node.graphs import Doubler, places

from touchfs.errors import FormatError, UsageError
from touchfs.node import (
    IteratorNode,
    LazyFilter,
    LazyIndexedManifestIterator,
    LazyIteratorChain,
    LazyIteratorMultiplexer,
    LazyMapper,
    LazyShuffler,
    LazySlicer,
    collect_state_dict,
    merge_states,
    restore_state_dict,
)
from touchfs.node.partition import KINDS, TAILS
from touchfs.token import from_json, to_json

Make = Callable[[int, int], IteratorNode]


def numbers(first: int, end: int, rank: int, world_size: int, **options: Any) -> LazyIndexedManifestIterator:
    return LazyIndexedManifestIterator(range(first, end), rank=rank, world_size=world_size, **options)


def go(make: Make, merged: Any, taken: list[int | None]) -> tuple[list[Any], list[Any]]:
    """What these ranks saw, each so many samples or all, and their states."""
    seen, states = [], []
    for rank, count in enumerate(taken):
        node = make(rank, len(taken))
        if merged is not None:
            restore_state_dict(node, from_json(to_json(merged)))
        seen += list(islice(node, count))
        states.append(collect_state_dict(node))
    return seen, states


@settings(deadline=None, max_examples=200)
@given(
    st.integers(0, 40),
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=9), min_size=1, max_size=3),
    st.integers(1, 5),
    st.sampled_from(KINDS),
    st.sampled_from(TAILS),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_any_ranks_after_any_others(
    size: int, stages: list[list[int]], last: int, kind: str, tail: str, shuffle: bool, random: Any
) -> None:
    def make(rank: int, world_size: int, tail: str = tail) -> IteratorNode:
        return numbers(0, size, rank, world_size, shuffle=shuffle, partition=kind, tail=tail)

    seen: list[int] = []
    merged = None
    for taken in stages:
        more, states = go(make, merged, list(taken))
        seen += more
        if all(state["state"]["epoch"] == 1 for state in states):
            break
        random.shuffle(states)
        merged = merge_states(states)
    else:
        seen += go(lambda rank, world_size: make(rank, world_size, "keep"), merged, [None] * last)[0]
        tail = "pad" if tail == "pad" else "keep"
    if tail == "keep":
        assert sorted(seen) == list(range(size))
    elif tail == "pad":
        assert set(seen) == set(range(size))
    else:
        assert len(set(seen)) == len(seen) > size - len(taken)


GRAPHS: dict[str, Make] = {
    "mapper": lambda r, w: LazyMapper(numbers(0, 23, r, w, shuffle=True), abs),
    "filter": lambda r, w: LazyFilter(numbers(0, 23, r, w, shuffle=True), lambda number: True),
    "chain": lambda r, w: LazyIteratorChain(
        numbers(0, 10, r, w, shuffle=True), numbers(10, 13, r, w), numbers(13, 23, r, w, partition="block")
    ),
    "chain, shuffled": lambda r, w: LazyIteratorChain(
        numbers(0, 10, 0, 1), numbers(10, 23, 0, 1), shuffle_iters=True, rank=r, world_size=w
    ),
    "mux": lambda r, w: LazyIteratorMultiplexer(
        numbers(0, 10, r, w, shuffle=True), numbers(10, 13, r, w), numbers(13, 23, r, w, partition="block")
    ),
    "foreign": lambda r, w: Doubler(numbers(0, 23, r, w, shuffle=True)),
    "chain of a foreign": lambda r, w: LazyIteratorChain(Doubler(numbers(0, 9, r, w)), numbers(9, 23, r, w)),
}


@pytest.mark.parametrize("name", GRAPHS)
@settings(deadline=None, max_examples=30)
@given(
    before=st.lists(st.integers(0, 8), min_size=1, max_size=5),
    between=st.lists(st.integers(0, 5), min_size=1, max_size=5),
    last=st.integers(1, 5),
)
def test_graphs_go_on_with_other_ranks(name: str, before: list[int], between: list[int], last: int) -> None:
    # One rank at least has not seen the end, or the next epoch would have begun.
    before[0] = between[0] = 0
    make = GRAPHS[name]
    seen, states = go(make, None, list(before))
    for taken in ([*between], [None] * last):
        more, states = go(make, merge_states(states), taken)
        seen += more
    flat = [number[0] if isinstance(number, list) else number for number in seen]
    assert sorted(flat) == list(range(23))


def test_the_epoch_after_is_the_new_ranks_own() -> None:
    make = GRAPHS["mapper"]
    _, states = go(make, None, [3, 2, 4])
    for rank in range(2):
        node, fresh = make(rank, 2), make(rank, 2)
        restore_state_dict(node, merge_states(states))
        assert list(node)
        assert list(fresh)
        assert list(node) == list(fresh)


def test_the_state_stays_small() -> None:
    make = lambda r, w: numbers(0, 10**9, r, w, shuffle=True)  # noqa: E731
    _, states = go(make, None, [50, 40, 30, 20])
    merged = merge_states(states)
    assert len(to_json(merged)) < 500
    node = make(1, 3)
    restore_state_dict(node, merged)
    assert len(list(islice(node, 10))) == 10


def test_in_lock_step_one_state_is_enough() -> None:
    make = GRAPHS["mapper"]
    seen, states = go(make, None, [3, 3, 3])
    for state in states:
        merged = merge_states([state], cursor="global")
        assert sorted(seen + go(make, merged, [None, None])[0]) == list(range(23))
    with pytest.raises(UsageError, match="one with cursor='global'"):
        merge_states(states, cursor="global")
    for name in ("filter", "chain", "mux"):
        with pytest.raises(UsageError, match="cannot go on with cursor='global'"):
            merge_states([collect_state_dict(GRAPHS[name](0, 2))], cursor="global")


def test_one_ranks_state_is_refused_at_another_world_size() -> None:
    for name, make in GRAPHS.items():
        _, (state, _) = go(make, None, [2, 2])
        for rank, world_size in ((0, 1), (0, 3), (1, 2)):
            with pytest.raises(UsageError, match="merge_states"):
                restore_state_dict(make(rank, world_size), state)
        assert name


def test_states_that_do_not_fit_together_are_refused() -> None:
    make = GRAPHS["mapper"]
    _, states = go(make, None, [1, 2, 3])
    for some, why in (
        ([], "0 states"),
        (states[:2], "each is needed, once"),
        ([*states, states[0]], "each is needed, once"),
        ([states[0], states[0], states[1]], "each is needed, once"),
        ([merge_states(states)] * 3, "merged already"),
        ([*states[:2], collect_state_dict(GRAPHS["filter"](2, 3))], "different graphs"),
        ([*states[:2], collect_state_dict(LazyMapper(numbers(0, 24, 2, 3, shuffle=True), abs))], "different"),
    ):
        with pytest.raises(UsageError, match=why):
            merge_states(some)


def test_ranks_in_different_epochs_are_refused() -> None:
    make = GRAPHS["mapper"]
    ahead = make(0, 2)
    list(ahead)
    next(iter(ahead))
    with pytest.raises(UsageError, match="has begun epoch 1"):
        merge_states([collect_state_dict(ahead), collect_state_dict(make(1, 2))])


def test_nodes_that_hold_back_are_refused() -> None:
    for make in (
        lambda r, w: LazyShuffler(numbers(0, 9, r, w), 3),
        lambda r, w: LazySlicer(numbers(0, 9, r, w), 0, 2),
        lambda r, w: LazyIteratorChain(LazyShuffler(numbers(0, 9, r, w), 3)),
    ):
        _, states = go(make, None, [1, 1])
        with pytest.raises(UsageError, match="cannot go on with another number of ranks"):
            merge_states(states)


@pytest.mark.parametrize(
    "stage",
    [
        {"kind": "stride", "tail": "keep", "cursors": []},
        {"kind": "stride", "tail": "keep", "cursors": [10**30]},
        {"kind": "stride", "tail": "keep", "cursors": [24]},
        {"kind": "stride", "tail": "keep", "cursors": [-1]},
        {"kind": "striped", "tail": "keep", "cursors": [1]},
        {"kind": "block", "tail": "keep"},
        None,
        [],
    ],
)
def test_damaged_stages_are_refused(stage: Any) -> None:
    make = GRAPHS["mapper"]
    merged = merge_states(go(make, None, [2, 2])[1])
    merged["state"]["source"]["stages"] = [stage]
    with pytest.raises(FormatError):
        restore_state_dict(make(0, 1), merged)


def test_nothing_is_lost_over_many_topologies() -> None:
    make = GRAPHS["chain"]
    for old in range(1, 8):
        for new in range(1, 8):
            seen, states = go(make, None, [3] * old)
            if any(state["state"]["epoch"] == 0 for state in states):
                seen += go(make, merge_states(states), [None] * new)[0]
            assert sorted(chain(seen)) == list(range(23)), (old, new)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(sorted(GRAPHS)),
    st.randoms(use_true_random=False),
    st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers()) | st.just({}) | st.just(1.5),
)
def test_damaged_states_are_refused_or_go_on(name: str, random: Any, value: Any) -> None:
    make = GRAPHS[name]
    states = copy.deepcopy(go(make, merge_states(go(make, None, [2, 1])[1]), [1, 2, 0])[1])
    where, key = random.choice(list(places(states)))
    where[key] = value
    try:
        merged = merge_states(states)
        for rank in range(2):
            node = make(rank, 2)
            restore_state_dict(node, merged)
            list(islice(node, 50))
    except (FormatError, UsageError):
        return
