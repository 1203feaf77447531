"""With other ranks than before, each remaining sample comes exactly once."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from node.graphs import Doubler, places
from node.test_cut_mixer import Plain, Sounds, equal

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.token import State, from_json, to_json
from touchfs.node import (
    IteratorNode,
    LazyCutMixer,
    LazyFilter,
    LazyIndexedManifestIterator,
    LazyIteratorChain,
    LazyIteratorMultiplexer,
    LazyMapper,
    LazyRepeater,
    LazyShuffler,
    LazySlicer,
    PairNode,
    collect_state_dict,
    get_graph_origin,
    merge_states,
    restore_state_dict,
    share_of,
)
from touchfs.node.core.iteration import Pair
from touchfs.node.core.ranks import Ranks
from touchfs.node.core.saved import Saved
from touchfs.node.order.partition import KINDS, TAILS
from touchfs.node.transform.mapper import MapperIteration

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


@settings(max_examples=2 * settings().max_examples)
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
@settings(max_examples=settings().max_examples // 4)
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


# -- noise


def speech(count: int, rank: int, world_size: int, **options: Any) -> LazyIndexedManifestIterator:
    return LazyIndexedManifestIterator(Sounds(f"speech{count}", count, 60), rank=rank, world_size=world_size, **options)


def mixed(source: Any, **options: Any) -> LazyCutMixer:
    return LazyCutMixer(source, Sounds("noise", 3, 50), snr=(5, 15), random_mix_offset=True, mix_prob=0.8, **options)


MIXERS: dict[str, Make] = {
    "mixer": lambda r, w: mixed(speech(11, r, w, shuffle=True)),
    "mixer of blocks": lambda r, w: mixed(speech(11, r, w, shuffle=True, partition="block")),
    "mixer of a mapper of a mixer": lambda r, w: mixed(LazyMapper(mixed(speech(11, r, w)), copy.copy), seed=9),
    "mixer of a chain": lambda r, w: mixed(LazyIteratorChain(speech(6, r, w, shuffle=True), speech(5, r, w))),
    "mixer of a chain, shuffled": lambda r, w: mixed(
        LazyIteratorChain(speech(6, 0, 1), speech(5, 0, 1), shuffle_iters=True, rank=r, world_size=w)
    ),
    "mixer of a filter": lambda r, w: mixed(LazyFilter(speech(11, r, w, shuffle=True), bool)),
    "mixer of a mux": lambda r, w: mixed(LazyIteratorMultiplexer(speech(6, r, w), speech(5, r, w, shuffle=True))),
    "mux of mixers": lambda r, w: LazyIteratorMultiplexer(mixed(speech(6, r, w)), mixed(speech(5, r, w), seed=1)),
    "chain of mixers, shuffled": lambda r, w: LazyIteratorChain(
        mixed(speech(6, 0, 1)), mixed(speech(5, 0, 1), seed=1), shuffle_iters=True, rank=r, world_size=w
    ),
}


@pytest.mark.parametrize(
    ("name", "epoch"),
    [
        *((name, 0) for name in MIXERS),
        *(pytest.param(name, 2, marks=[pytest.mark.variant] if " of " in name else []) for name in MIXERS),
    ],
)
def test_an_item_keeps_its_noise_on_any_rank(name: str, epoch: int) -> None:
    def make(rank: int, world_size: int) -> IteratorNode:
        node = MIXERS[name](rank, world_size)
        for _ in range(epoch):
            list(node)
        return node

    alone = sorted(make(0, 1), key=audio_of)
    assert len(alone) == 11
    assert any(len(item.id) == 36 for item in alone), "an id of a mix"
    for stages in ([[1, 0, 2], [2]], [[0], [1, 1, 1]], [[3, 0], [0, 1, 2, 0]], [[2, 2], [1, 0]], [[0, 1], [0] * 12]):
        seen, states = go(make, None, [*stages[0]])
        more, states = go(make, merge_states(states), [*stages[1]])
        last, _ = go(make, merge_states(states), [None, None])
        together = sorted(seen + more + last, key=audio_of)
        assert all(equal(*pair) for pair in zip(together, alone, strict=True)), stages


def audio_of(sound: Any) -> list[float]:
    return list(sound.audio.tolist())


def test_the_epoch_after_has_its_noise_too() -> None:
    make = MIXERS["mixer"]
    whole = make(0, 1)
    epochs = [sorted(whole, key=audio_of) for _ in range(2)]
    states = go(make, None, [2, 1])[1]
    ranks = [make(rank, 3) for rank in range(3)]
    for node in ranks:
        restore_state_dict(node, merge_states(states))
    list(map(list, ranks))
    assert all(map(equal, sorted(chain(*ranks), key=audio_of), epochs[1]))


def test_noise_in_lock_step() -> None:
    make = MIXERS["mixer of a mapper of a mixer"]
    seen, states = go(make, None, [2, 2, 2])
    for state in states:
        together = seen + go(make, merge_states([state], cursor="global"), [None, None])[0]
        assert all(map(equal, sorted(together, key=audio_of), sorted(make(0, 1), key=audio_of)))


class Tokenless(IteratorNode):
    """Of a source with tokens, it loses them."""

    is_checkpointable = True

    def __init__(self, source: Any) -> None:
        self.source = source

    def __iter__(self) -> Any:
        for sound in self.source:
            yield Plain(sound.id, sound.audio)

    def state_dict(self) -> dict[str, Any]:
        return {"source": self.source.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.source.load_state_dict(state["source"])


def test_noise_that_counts_is_one_ranks_own() -> None:
    for make in (
        lambda r, w: mixed(Tokenless(speech(11, r, w))),
        lambda r, w: mixed(LazyIteratorChain(speech(2, r, w), Tokenless(speech(9, r, w)))),
    ):
        for taken in ([3, 0], [0, 2], [4, 4]):
            states = go(make, None, [*taken])[1]
            with pytest.raises(UsageError, match=r"items had no tokens.*mix into indexed items"):
                merge_states(states)
        _, states = go(make, None, [0, 0])
        again, _ = go(make, merge_states(states), [None] * 3)
        whole, _ = go(make, None, [None] * 3)
        assert len(whole) == 11
        assert all(map(equal, again, whole))


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
        with pytest.raises(UsageError, match="cannot resume with cursor='global'"):
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
        (states[:2], "give each once"),
        ([*states, states[0]], "give each once"),
        ([states[0], states[0], states[1]], "give each once"),
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
    with pytest.raises(UsageError, match="has already begun epoch 1"):
        merge_states([collect_state_dict(ahead), collect_state_dict(make(1, 2))])


def test_nodes_that_hold_back_are_refused() -> None:
    for make in (
        lambda r, w: LazyShuffler(numbers(0, 9, r, w), 3),
        lambda r, w: LazySlicer(numbers(0, 9, r, w), 0, 2),
        lambda r, w: LazyIteratorChain(LazyShuffler(numbers(0, 9, r, w), 3)),
    ):
        _, states = go(make, None, [1, 1])
        with pytest.raises(UsageError, match="cannot resume with another number of ranks"):
            merge_states(states)


class Counting(LazyMapper):
    """Written as outside of this package: its position is that of its source, and a count that ranks sum up."""

    def iteration(self, epoch: int, saved: Saved) -> CountingIteration:
        return CountingIteration(self, epoch, saved)

    @classmethod
    def merge(cls, ranks: Ranks) -> State:
        return {"source": ranks.source(), "count": sum(state.integer("count") for state in ranks.states)}


class CountingIteration(MapperIteration):
    def __init__(self, node: Counting, epoch: int, saved: Saved) -> None:
        super().__init__(node, epoch, saved)
        self.count = saved.integer("count")

    def walk(self) -> Iterator[Pair]:
        for pair in super().walk():
            self.count += 1
            yield pair

    def position(self) -> State:
        return {**super().position(), "count": self.count}


def test_a_node_of_ones_own_says_how_its_states_merge() -> None:
    def make(rank: int, world_size: int) -> IteratorNode:
        return LazyMapper(Counting(numbers(0, 9, rank, world_size), abs), abs)

    seen, states = go(make, None, [2, 3])
    merged = merge_states(states)
    assert merged["state"]["source"]["count"] == 5
    assert sorted(seen + go(make, merged, [None] * 3)[0]) == list(range(9))


def test_a_program_that_only_merges_makes_no_nodes() -> None:
    _, states = go(GRAPHS["mapper"], None, [2, 1])
    program = "import json; from touchfs.node import merge_states; print(json.dumps(merge_states(json.loads(input()))))"
    done = subprocess.run([sys.executable, "-c", program], input=to_json(states), text=True, stdout=subprocess.PIPE)
    assert from_json(done.stdout) == from_json(to_json(merge_states(states)))


def _defined_in(module: str, name: str) -> None:
    """A program's module defines a node class of this name, which refuses to merge, as the base class does."""
    type(LazyMapper)(name, (PairNode,), {"__module__": module})


def test_a_class_of_a_program_that_is_called_as_ours_changes_no_merge() -> None:
    _, states = go(GRAPHS["mapper"], None, [2, 1])
    merged = merge_states(states)
    _defined_in("train", "LazyMapper")
    assert merge_states(states) == merged


def test_two_classes_of_programs_with_one_name_are_refused() -> None:
    _, states = go(GRAPHS["mapper"], None, [1, 1])
    for state in states:
        state["state"]["node"] = "Doubled"
    _defined_in("train", "Doubled")
    with pytest.raises(UsageError, match="cannot resume with another number of ranks"):
        merge_states(states)
    _defined_in("evaluate", "Doubled")
    with pytest.raises(UsageError, match="the modules evaluate, train each define a Doubled: rename all but one"):
        merge_states(states)


def test_states_of_a_class_that_is_not_imported_are_refused() -> None:
    _, states = go(GRAPHS["mapper"], None, [1, 1])
    for state in states:
        state["state"]["node"] = "Elsewhere"
    with pytest.raises(UsageError, match="'Elsewhere' is imported: import the module"):
        merge_states(states)


def test_what_a_merged_state_has_seen_is_what_ranks_took() -> None:
    seen, merged = [], None
    for taken in ([3, 5, 2], [4, 1], [2]):
        more, states = go(lambda r, w: numbers(0, 40, r, w, shuffle=True, seed=3), merged, list(taken))
        seen += more
        merged = merge_states(states)
        whole = numbers(0, 40, 0, 1, shuffle=True, seed=3)
        listed = [make() for _, make in whole.seen(merged["state"])]
        assert sorted(listed) == sorted(seen)
        # In the order of the epoch.
        assert listed == [number for number in numbers(0, 40, 0, 1, shuffle=True, seed=3) if number in seen]


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


def test_positions_that_no_rank_can_have_are_refused() -> None:
    for name, change, where in (
        ("mapper", lambda state: state["source"].update(position=9), r"state\.source\.position must be within 0 and 8"),
        ("mapper", lambda state: state["source"].update(position=2**62), r"state\.source\.position"),
        ("chain", lambda state: state.update(current=4), r"state\.current must be within 0 and 3"),
        ("chain", lambda state: state["sources"][1].update(position=2), r"state\.sources\[1\]\.position"),
    ):
        states = go(GRAPHS[name], None, [1, 2, 3])[1]
        change(states[0]["state"])
        with pytest.raises(FormatError, match=where):
            merge_states(states)


def test_nothing_is_lost_over_many_topologies() -> None:
    make = GRAPHS["chain"]
    for old in (1, 2, 4, 7):
        for new in (1, 3, 5, 7):
            seen, states = go(make, None, [3] * old)
            if any(state["state"]["epoch"] == 0 for state in states):
                seen += go(make, merge_states(states), [None] * new)[0]
            assert sorted(chain(seen)) == list(range(23)), (old, new)


@settings(max_examples=3 * settings().max_examples)
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


@given(
    st.integers(5, 25),  # so that each rank has something
    st.integers(1, 3),
    st.integers(0, 2),
    st.lists(st.floats(0, 1), min_size=1, max_size=5),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from(KINDS),
)
def test_of_what_is_repeated_each_is_repeated_as_often(
    size: int, times: int, before: int, shares: list[float], last: int, endless: bool, kind: str
) -> None:
    def make(rank: int, world_size: int) -> IteratorNode:
        leaf = numbers(0, size, rank, world_size, shuffle=True, seed=3, partition=kind)
        return LazyRepeater(leaf, None if endless else times + before)

    counts = [len(make(rank, len(shares)).source) for rank in range(len(shares))]  # type: ignore[attr-defined]
    # Each has begun the repeat in which all are.
    taken: list[int | None] = [
        before * n + max(round(share * n), before > 0) for n, share in zip(counts, shares, strict=True)
    ]
    seen, states = go(make, None, taken)
    merged = merge_states(states)
    ends: list[int | None] = [None] * last
    if endless:
        # As long as all are within the repeats that are looked at.
        left = [len(make(rank, last).source) * (times + before) for rank in range(last)]  # type: ignore[attr-defined]
        ends = [*left]
    seen += go(make, merged, ends)[0]
    tokens = [get_graph_origin(item) for item in seen]
    wanted = [(repeat, ordinal) for repeat in range(times + before) for ordinal in range(size)]
    within = [token for token in tokens if token[0] < times + before]  # type: ignore[index, operator]
    assert sorted(within) == wanted  # type: ignore[type-var]


def test_of_ranks_in_different_repeats_nothing_is_made() -> None:
    def make(rank: int, world_size: int) -> IteratorNode:
        return LazyRepeater(numbers(0, 10, rank, world_size), 5)

    for taken, why in (([2, 7], "has already begun epoch 1"), ([2, 15], "more than one epoch apart")):
        with pytest.raises(UsageError, match=why):
            merge_states(go(make, None, [*taken])[1])


@pytest.mark.parametrize("taken", [0, 1, 7, 20])
@pytest.mark.parametrize("shuffle", [False, True])
def test_shares_of_a_restored_graph_are_those_of_what_is_left(shuffle: bool, taken: int) -> None:
    def make() -> LazyMapper:
        return LazyMapper(LazyMapper(numbers(0, 20, 0, 1, shuffle=shuffle), str), str)

    node = make()
    seen = list(islice(node, taken))
    state = collect_state_dict(node)
    for workers in (1, 2, 3):
        restored = make()
        restore_state_dict(restored, state)
        left = [item for worker in range(workers) for item in share_of(restored, worker, workers)]
        assert sorted(seen + left) == sorted(make())


def test_shares_of_what_cannot_be_merged_are_refused() -> None:
    node = LazyShuffler(numbers(0, 20, 0, 1), 3)
    next(iter(node))
    restored = LazyShuffler(numbers(0, 20, 0, 1), 3)
    restore_state_dict(restored, collect_state_dict(node))
    with pytest.raises(UsageError, match="a LazyShuffler cannot resume with another number of ranks"):
        share_of(restored, 0, 2)
