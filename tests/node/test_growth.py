"""Over a dataset with other shards than before, an epoch goes on exactly: what was left once, what is new once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.names import hex_digest
from touchfs.core.token import State, from_json, to_json
from touchfs.node import (
    LazyBatcher,
    LazyFilter,
    LazyIndexedManifestIterator,
    LazyIteratorChain,
    LazyLengthBatcher,
    LazyMapper,
    LazyMixture,
    LazyPrefetcher,
    LazyRepeater,
    LazyShuffler,
    collect_state_dict,
    load_state,
    merge_states,
    restore_state_dict,
    save_state,
    share_of,
)
from touchfs.node.core.iteration import same
from touchfs.node.core.pair_node import PairNode
from touchfs.node.graph.state import extended_state, say_growth
from touchfs.store.shard_lists import ShardList, lists_directory

Item = tuple[str, int]


class Shards(Sequence[Any]):
    """Items of shards: pairs of a shard's name and a number."""

    def __init__(self, shards: dict[str, int]) -> None:
        self.shards = shards
        self.items = [(name, number) for name, count in shards.items() for number in range(count)]

    @property
    def fingerprint(self) -> str:
        return hex_digest(repr(self.shards).encode())

    def shard_list(self) -> ShardList:
        return ShardList("items", tuple((name, count) for name, count in self.shards.items() if count))

    def lengths(self, measure: str) -> NDArray[np.int64]:
        return np.ones(len(self), np.int64)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, position: Any) -> Any:
        return self.items[position]


def leaf(shards: dict[str, int], seed: int | None = 3, **options: Any) -> LazyIndexedManifestIterator:
    return LazyIndexedManifestIterator(Shards(shards), seed is not None, seed or 0, **options)


def stated(state: State) -> Any:
    return from_json(to_json(state))


def over(node: Any, state: State) -> str:
    """Have a node go on over its own data; what is told of that."""
    with pytest.warns(UserWarning) as warnings:
        restore_state_dict(node, stated(state), extend=True)
    (warning,) = warnings
    return str(warning.message)


A = {"a": 5, "b": 4, "c": 6}
GROWN = {"x": 3, "a": 5, "b": 4, "c": 6, "y": 2}

SHARDS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 9), max_size=6)
ORDERS = st.sampled_from([{"seed": None}, {"seed": 3}, {"seed": 3, "window": 9}, {"seed": 3, "window": 12, "lanes": 2}])
KINDS = st.sampled_from(["stride", "block", "batches"])
PASSES = st.lists(st.tuples(SHARDS, st.integers(1, 3), KINDS, st.lists(st.integers(0, 9), min_size=3, max_size=3)))


def items_of(shards: dict[str, int]) -> set[Item]:
    return set(Shards(shards).items)


def chain_of(shards: dict[str, int], seed: int | None, **options: Any) -> LazyIteratorChain:
    """Two datasets and a map of one, shuffled together."""
    first, second = ({name: shards[name] for name in shards if (name < "d") is is_first} for is_first in (True, False))
    return LazyIteratorChain(leaf(first), LazyMapper(leaf(second), same), shuffle_iters=True, seed=seed or 0, **options)


@given(SHARDS, PASSES, SHARDS, ORDERS, st.sampled_from([leaf, chain_of]))
def test_each_sample_comes_once_whatever_grows_and_is_lost(
    before: dict[str, int],
    passes: list[tuple[dict[str, int], int, str, list[int]]],
    last: dict[str, int],
    order: dict[str, Any],
    leaf: Callable[..., PairNode],
) -> None:
    """Each pass is over other shards, by other ranks, and ends somewhere; the last one goes to the end."""
    owed, state = items_of(before), collect_state_dict(leaf(before, **order))
    for number, (shards, ranks, kind, taken) in enumerate([*passes, (last, 1, "stride", [1000] * 3)]):
        shards = {**shards, f"only {number}": 1}
        options = {**order, "world_size": ranks, "partition": kind}
        if kind == "batches":
            options |= {"global_batch": 2 * ranks, "tail": "drop"}
            taken = [2 * taken[0]] * 3
        nodes = [leaf(shards, rank=rank, **options) for rank in range(ranks)]
        extended = [extended_state(node, stated(state)) for node in nodes]
        assert all(each == extended[0] for each in extended)
        kept = {item for item in owed if shards.get(item[0]) == before.get(item[0])}
        new = {item for item in items_of(shards) if shards.get(item[0]) != before.get(item[0])}
        if stages := extended[0]["state"]["stages"]:
            assert [stages[-1][name] for name in ("left", "new", "lost")] == [len(kept), len(new), len(owed - kept)]
        else:
            assert kept | new == items_of(shards)  # nothing has come
        owed, before, parts = kept | new, shards, []
        for node, count in zip(nodes, taken, strict=False):
            restore_state_dict(node, stated(extended[0]))
            if extended[0]["state"].get("ended"):
                assert list(node) == []
            parts.append(list(islice(iter(node), count)))
        came = [*chain.from_iterable(parts)]
        assert len(set(came)) == len(came) and set(came) <= owed
        if stages and ranks == 1 and kind == "stride":
            assert sorted(came, key=new.__contains__) == came
        owed -= set(came)
        state = merge_states([collect_state_dict(node) for node in nodes])
        if state["state"]["epoch"] > extended[0]["state"]["epoch"] and number < len(passes):
            owed = items_of(shards)
    assert not owed


def test_a_chain_that_is_shuffled_goes_on_as_one_dataset() -> None:
    node, whole, longer = chain_of(A, 3), list(chain_of(A, 3)), chain_of(GROWN | {"d": 2}, 3)
    came = list(islice(node, 7))
    with pytest.raises(UsageError, match=r"length = 15, here it is 22: .*extend=True"):
        restore_state_dict(longer, collect_state_dict(node))
    assert over(longer, collect_state_dict(node)) == "8 samples of the old order left, then 7 new samples"
    rest = list(longer)
    assert [*came, *rest[:8]] == whole
    assert sorted(rest[8:]) == [("d", 0), ("d", 1), ("x", 0), ("x", 1), ("x", 2), ("y", 0), ("y", 1)]


A_CHAIN = st.tuples(SHARDS, SHARDS, SHARDS)


@given(A_CHAIN, st.lists(st.tuples(A_CHAIN, st.integers(0, 40)), max_size=3), A_CHAIN, st.integers(0, 40))
def test_a_chain_goes_on_source_by_source(before: Any, passes: list[tuple[Any, int]], last: Any, taken: int) -> None:
    """What is left of each comes, and what is new; that of sources which have ended comes last."""

    def chain_of(data: Any) -> LazyIteratorChain:
        inner = LazyIteratorChain(leaf(data[1]), LazyMapper(leaf(data[2], seed=None), same))
        return LazyIteratorChain(LazyFilter(leaf(data[0]), bool), inner)

    def item_sets(data: Any) -> list[set[Any]]:
        return [{(i, *item) for item in items_of(shards)} for i, shards in enumerate(data)]

    def pulled(node: Any, count: int) -> list[Any]:
        pairs = ((token, make()) for token, make in islice(node.pairs(), count))
        return [(token[0] if token[0] == 0 else 1 + token[1][0], *item) for token, item in pairs]

    node = chain_of(before)
    came = pulled(node, taken)
    owed = item_sets(before)
    for data, count in [*passes, (last, 1000)]:
        state = stated(collect_state_dict(node))
        if state["state"].get("ended"):
            return
        owed = [each - {*came} for each in owed]
        gone = [{name for name in old if new.get(name) != old[name]} for old, new in zip(before, data, strict=True)]
        fresh = [{name for name in new if new[name] != old.get(name)} for old, new in zip(before, data, strict=True)]
        owed = [
            {item for item in each if item[1] not in gone[i]} | {item for item in now if item[1] in fresh[i]}
            for i, (each, now) in enumerate(zip(owed, item_sets(data), strict=True))
        ]
        with warnings.catch_warnings(action="ignore"):
            restore_state_dict(node := chain_of(data), state, extend=True)
        state = stated(collect_state_dict(node))
        restore_state_dict(node := chain_of(data), state)
        more = pulled(node, count)
        assert len({*more}) == len(more) and {*more} <= set().union(*owed)
        before, came = data, more
    assert {*more} == set().union(*owed)


def test_the_sources_of_a_chain_take_turns_and_what_is_new_of_those_that_ended_comes_last() -> None:
    def chain_of(*data: dict[str, int]) -> LazyIteratorChain:
        return LazyIteratorChain(*(leaf(shards, seed=None) for shards in data))

    node = chain_of({"a": 2}, {"b": 2}, {"c": 1})
    assert list(islice(node, 3)) == [("a", 0), ("a", 1), ("b", 0)]
    longer = chain_of({"a": 2, "x": 1}, {"b": 2, "y": 1}, {"z": 1, "c": 1})
    assert over(longer, collect_state_dict(node)) == (
        "source 0: 0 samples of the old order left, then 1 new sample; source 1: 1 sample of the old order left, then "
        "1 new sample; source 2: epoch 0 begins, and is one of all 2 samples"
    )
    rest = [("b", 1), ("y", 0), ("z", 0), ("c", 0), ("x", 0)]
    for taken in range(6):
        assert list(islice(longer, taken)) == rest[:taken]
        state = stated(collect_state_dict(longer))
        restore_state_dict(again := chain_of({"a": 2, "x": 1}, {"b": 2, "y": 1}, {"z": 1, "c": 1}), state)
        assert list(again) == rest[taken:]
        assert list(again) == [("a", 0), ("a", 1), ("x", 0), ("b", 0), ("b", 1), ("y", 0), ("z", 0), ("c", 0)]
        over(longer, collect_state_dict(node))


def test_what_is_left_comes_in_the_old_order_and_then_what_is_new() -> None:
    node, whole = leaf(A), list(leaf(A))
    assert list(islice(node, 7)) == whole[:7]
    longer = leaf(GROWN)
    assert over(longer, collect_state_dict(node)) == ("8 samples of the old order left, then 5 new samples")
    rest, new = list(longer), [("x", 0), ("x", 1), ("x", 2), ("y", 0), ("y", 1)]
    assert rest[:8] == whole[7:]
    assert rest[8:] == [new[i] for i in LazyIndexedManifestIterator(range(5), True, 3)]


def test_a_drawn_seed_is_that_of_the_state() -> None:
    node = LazyIndexedManifestIterator(Shards(A), True, "trng")
    next(pairs := iter(node))
    state = collect_state_dict(node)
    longer = LazyIndexedManifestIterator(Shards(GROWN), True, "trng")
    over(longer, state)
    assert list(islice(longer, 14)) == list(pairs)


def test_the_next_epoch_is_one_of_all_samples() -> None:
    node, longer, ordinary = leaf(A), leaf(GROWN), leaf(GROWN)
    next(iter(node))
    over(longer, collect_state_dict(node))
    assert len(list(longer)) == 19
    list(ordinary)
    assert list(longer) == list(ordinary)


def test_samples_of_lost_shards_are_counted_if_they_had_not_come() -> None:
    node = leaf(A, seed=None)
    list(islice(node, 7))
    shorter = leaf({"c": 6, "d": 1}, seed=None)
    assert over(shorter, collect_state_dict(node)) == (
        "6 samples of the old order left, then 1 new sample; 2 samples lost with their shards before they came"
    )
    assert list(shorter) == [*Shards({"c": 6, "d": 1}).items]


@pytest.mark.parametrize("order", [{}, {"window": 4}, {"partition": "batches", "global_batch": 2}])
def test_a_state_of_an_epoch_that_went_on_resumes_anywhere(order: dict[str, Any]) -> None:
    node = leaf(A, **order)
    list(islice(node, 4))
    longer, whole = leaf(GROWN, **order), leaf(GROWN, **order)
    over(whole, collect_state_dict(node))
    items = list(whole)
    for taken in range(len(items) + 1):
        over(longer, collect_state_dict(node))
        assert list(islice(longer, taken)) == items[:taken]
        again = leaf(GROWN, **order)
        restore_state_dict(again, stated(collect_state_dict(longer)))
        assert list(again) == items[taken:]


def test_what_has_come_of_an_epoch_that_went_on_is_listed() -> None:
    node, longer = leaf(A), leaf(GROWN)
    came = list(islice(node, 4))
    over(longer, collect_state_dict(node))
    came += islice(longer, 5)
    assert sorted(make() for _, make in longer.seen(longer.state_dict())) == sorted(came)


def test_maps_filters_batches_and_repeats_go_on() -> None:
    def graph(shards: dict[str, int]) -> Any:
        even = LazyFilter(LazyMapper(leaf(shards), name_twice), is_early)
        return LazyRepeater(LazyBatcher(even, 2), 2)

    old, new = graph(A), graph(GROWN)
    came = [*chain.from_iterable(islice(old, 2))]
    over(new, collect_state_dict(old))
    came += chain.from_iterable(new)
    expected = [name_twice(item) for item in GROWN_ITEMS for _ in range(2) if is_early(name_twice(item))]
    assert sorted(came) == sorted(expected)


def name_twice(item: Item) -> Item:
    return item[0] * 2, item[1]


def is_early(item: Item) -> bool:
    return item[1] < 4


GROWN_ITEMS = Shards(GROWN).items
ALIKE_NOW = ShardList("items", (("a?", 5), ("a?", 5)))


def test_without_asking_it_is_refused_and_the_way_on_is_named(tmp_path: Path) -> None:
    node = leaf(A)
    next(iter(node))
    save_state(node, tmp_path / "state")
    with pytest.raises(UsageError, match=r"length = 15, here it is 20: .*load_state_dict\(state, extend=True\)"):
        load_state(leaf(GROWN), tmp_path / "state")
    with pytest.warns(UserWarning, match="14 samples of the old order"):
        load_state(leaf(GROWN), tmp_path / "state", extend=True)
    with pytest.raises(UsageError, match="use seed 3"):
        load_state(leaf(GROWN, seed=4), tmp_path / "state", extend=True)


def test_the_same_shards_are_no_growth() -> None:
    node, again = leaf(A), leaf(A)
    came = [next(iter(node))]
    restore_state_dict(again, collect_state_dict(node), extend=True)
    assert say_growth(collect_state_dict(again)) == "the dataset has the same shards as before"
    assert [*came, *again] == list(leaf(A))
    kinds: list[Callable[[], PairNode]] = [
        lambda: LazyLengthBatcher(leaf(A), max_tokens=4),
        lambda: LazyMixture(leaf(A), leaf(A), by="tokens"),
    ]
    for make in kinds:
        one, other = make(), make()
        came = [next(iter(one))]
        restore_state_dict(other, collect_state_dict(one), extend=True)
        assert [*came, *other] == list(make())


def test_what_cannot_go_on_says_so() -> None:
    def state(node: Any) -> State:
        next(iter(node))
        return collect_state_dict(node)

    def refused(node: Any, state: State, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            restore_state_dict(node, state, extend=True)

    rank = state(leaf(A, rank=1, world_size=2))
    refused(leaf(GROWN, rank=1, world_size=2), rank, "one of several ranks' own: merge")
    for kind in (
        lambda shards: LazyShuffler(leaf(shards), 4),
        lambda shards: LazyPrefetcher(leaf(shards), 4),
    ):
        refused(kind(GROWN), state(kind(A)), "cannot go on over a dataset with other shards")
    plain = LazyIndexedManifestIterator(range(9))
    refused(LazyIndexedManifestIterator(range(10)), state(plain), "does not say which shards it is over")
    alike = leaf({"a": 5, "a?": 5})
    alike.samples.shard_list = lambda: ALIKE_NOW
    refused(alike, state(leaf(A)), "2 shards have the name, size and number of samples that 1 had")
    left_out = state(leaf({"a": 5, "q": 1}))
    path = Path(lists_directory()) / f"{left_out['state']['config']['fingerprint']}.json"
    for shards in ("", "[" * 100_000, f'[["a", {1 << 63}]]', '[["a", 1e400]]'):
        path.write_text(f'{{"what": "items", "shards": {shards}}}')
        with pytest.raises(FormatError, match="the list of shards is damaged"):
            restore_state_dict(leaf(GROWN), left_out, extend=True)
    path.unlink()
    refused(leaf(GROWN), left_out, "not known here: copy this file")


@pytest.mark.parametrize("field", ["left", "new", "lost", "length"])
def test_a_damaged_growth_is_refused(field: str) -> None:
    node, longer = leaf(A), leaf(GROWN)
    next(iter(node))
    over(longer, collect_state_dict(node))
    state = stated(collect_state_dict(longer))
    state["state"]["stages"][-1][field] += 1
    with pytest.raises(FormatError):
        restore_state_dict(leaf(GROWN), state)


def test_workers_share_what_is_left_and_what_is_new() -> None:
    node, longer = leaf(A), leaf(GROWN)
    came = list(islice(node, 6))
    over(longer, collect_state_dict(node))
    came += chain.from_iterable(share_of(longer, worker, 3) for worker in range(3))
    assert sorted(came) == sorted(GROWN_ITEMS)
