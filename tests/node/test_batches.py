"""Global batches depend neither on ranks nor on workers, and a state between two of them fits any."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.token import from_json, to_json
from touchfs.node import (
    LazyGlobalShuffle,
    LazyIndexedManifestIterator,
    LazyIteratorChain,
    LazyMapper,
    LazyRepeater,
    collect_state_dict,
    merge_states,
    restore_state_dict,
    share_of,
    state_at,
)
from touchfs.node.order.partition import TAILS

SIZES = st.integers(0, 70)
ORDERS = st.sampled_from([{}, {"seed": 3}, {"seed": 3, "window": 9}, {"seed": 3, "window": 12, "lanes": 2}])
BATCHES = {"partition": "batches"}
BATCHES_OF_8 = {"kind": "batches", "global_batch": 8, "tail": "keep"}


def leaf(size: int, seed: int | None = None, **options: Any) -> LazyIndexedManifestIterator:
    return LazyIndexedManifestIterator(range(size), seed is not None, seed or 0, **options)


def ranks_of(size: int, order: dict[str, Any], batch: int, ranks: int, tail: str = "keep") -> list[Any]:
    return [
        leaf(size, **order, **BATCHES, global_batch=batch, rank=r, world_size=ranks, tail=tail) for r in range(ranks)
    ]


def whole_order(size: int, order: dict[str, Any]) -> list[int]:
    return list(leaf(size, **order))


def cut(order: Sequence[int], batch: int, tail: str) -> list[list[int]]:
    """The global batches of an order, as the docs say."""
    batches = [list(order[start : start + batch]) for start in range(0, len(order), batch)]
    if batches and len(batches[-1]) < batch:
        if tail == "drop":
            batches.pop()
        elif tail == "pad":
            batches[-1] = [order[i % len(order)] for i in range((len(batches) - 1) * batch, len(batches) * batch)]
    return batches


def joined(parts: Iterable[list[int]]) -> list[int]:
    return list(chain.from_iterable(parts))


def taken(nodes: Sequence[Any], each: int) -> list[list[int]]:
    """The global batches that these ranks take together, one after the other, all in step."""
    parts = [list(node) for node in nodes]
    steps = -(-max(map(len, parts), default=0) // each)
    return [joined(part[step * each : (step + 1) * each] for part in parts) for step in range(steps)]


def too_few(size: int, batch: int, ranks: int, tail: str) -> bool:
    return tail == "keep" and 0 < size % batch < ranks


@given(SIZES, ORDERS, st.integers(1, 5), st.integers(1, 4), st.sampled_from(TAILS))
def test_ranks_share_each_batch(size: int, order: dict[str, Any], each: int, ranks: int, tail: str) -> None:
    batch = each * ranks * 2
    assume(not too_few(size, batch, ranks, tail))
    nodes = ranks_of(size, order, batch, ranks, tail)
    expected = cut(whole_order(size, order), batch, tail)
    lengths = [len(node) for node in nodes]
    batches = taken(nodes, batch // ranks)
    assert [sorted(one) for one in batches] == [sorted(one) for one in expected]
    assert "lanes" in order or batches == expected
    assert lengths == [len(list(node)) for node in nodes]


@given(SIZES, ORDERS, st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.sampled_from(TAILS))
def test_workers_take_batches_in_turn(
    size: int, order: dict[str, Any], each: int, ranks: int, workers: int, tail: str
) -> None:
    batch = each * ranks * 2
    assume(not too_few(size, batch, ranks, tail))
    for node, one in zip(*(ranks_of(size, order, batch, ranks, tail) for _ in range(2)), strict=True):
        alone = list(one)
        shares = [list(share_of(node, worker, workers)) for worker in range(workers)]
        steps = -(-len(alone) // (2 * each))
        together = [
            shares[step % workers][step // workers * 2 * each : (step // workers + 1) * 2 * each]
            for step in range(steps)
        ]
        assert joined(together) == alone
        assert [len(share_of(one, worker, workers)) for worker in range(workers)] == list(map(len, shares))


@given(
    SIZES,
    ORDERS,
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from([1, 2, 3, 6]), st.integers(1, 3), st.integers(0, 4)), max_size=4),
    st.sampled_from(TAILS),
)
def test_other_ranks_and_workers_go_on_with_the_same_batches(
    size: int, order: dict[str, Any], each: int, changes: list[tuple[int, int, int]], tail: str
) -> None:
    """Each time so many ranks and workers take so many batches, and save."""
    batch = 12 * each
    expected = cut(whole_order(size, order), batch, tail)
    seen: list[list[int]] = []
    state = None
    for ranks, workers, steps in [*changes, (1, 1, len(expected))]:
        assume(not too_few(size, batch, ranks, tail))
        parts, states = [], []
        for node in ranks_of(size, order, batch, ranks, tail):
            if state is not None:
                restore_state_dict(node, from_json(to_json(state)))
            shares = [share_of(node, worker, workers) for worker in range(workers)]
            running = [iter(share) for share in shares]
            part = [list(islice(running[step % workers], batch // ranks)) for step in range(steps)]
            parts.append(part)
            if workers == 1:
                states.append(collect_state_dict(shares[0]))
            else:
                states.append(merge_states([collect_state_dict(share) for share in shares]))
        seen += [one for step in range(steps) if (one := joined(part[step] for part in parts))]
        assert len({to_json(one) for one in states}) == len({one["state"]["epoch"] for one in states})
        state = merge_states(states)
        if state["state"]["epoch"]:
            break
    assert [sorted(one) for one in seen] == [sorted(one) for one in expected]


@given(SIZES, ORDERS, st.integers(1, 4), st.integers(1, 3), st.integers(0, 40), st.sampled_from(TAILS))
def test_a_state_is_exact_within_a_batch(
    size: int, order: dict[str, Any], each: int, ranks: int, count: int, tail: str
) -> None:
    batch = each * ranks * 2
    assume(not too_few(size, batch, ranks, tail))

    def parts() -> list[Any]:
        nodes = ranks_of(size, order, batch, ranks, tail)
        return nodes + [share_of(node, worker, 2) for node in nodes for worker in range(2)]

    for alone, node, again in zip(parts(), parts(), parts(), strict=True):
        running = iter(node)
        first = list(islice(running, count))
        restore_state_dict(again, from_json(to_json(collect_state_dict(node))))
        assert len(first) < count or first + list(again) == list(alone)


@given(st.integers(1, 70), ORDERS, st.integers(1, 4), st.integers(1, 3))
def test_a_token_is_found(size: int, order: dict[str, Any], each: int, ranks: int) -> None:
    batch = each * ranks * 2
    assume(not too_few(size, batch, ranks, "keep"))
    for node in ranks_of(size, order, batch, ranks):
        alone = list(node)
        for i in range(0, len(alone), 7):
            restore_state_dict(node, state_at(node, alone[i]))
            assert list(node) == alone[i:]


def test_the_state_is_the_same_on_all_ranks_and_at_any_position() -> None:
    states = []
    for node in ranks_of(100, {"seed": 3}, 8, 4):
        assert len(list(islice(node, 10))) == 10
        states.append(collect_state_dict(node)["state"])
    assert states[1:] == states[:-1]
    assert states[0]["position"] == 40
    assert states[0]["partition"] == {"kind": "batches", "global_batch": 8, "tail": "keep", "own": None}


def test_batches_of_another_size_go_on_at_the_same_position() -> None:
    (node,) = ranks_of(100, {"seed": 3}, 8, 1)
    first = list(islice(node, 24))
    again = ranks_of(100, {"seed": 3}, 10, 2, "keep")
    for each in again:
        restore_state_dict(each, collect_state_dict(node))
    assert first + joined(taken(again, 5)) == whole_order(100, {"seed": 3})


def test_lanes_are_those_of_their_ranks() -> None:
    """Ranks that divide the lanes read chunks of their own, but for those at the ends of lanes."""

    def nodes() -> list[Any]:
        return ranks_of(4096, {"seed": 3, "window": 512, "lanes": 4}, 32, 4)

    chunks = [{number // 32 for number in node} for node in nodes()]
    assert sum(map(len, chunks)) <= 4096 / 32 + 3
    # And within its part of a window, a rank reads no more than 4 chunks.
    for node in nodes():
        part = list(node)
        assert all(len({number // 32 for number in part[at : at + 128]}) == 4 for at in range(0, 1024, 128))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({**BATCHES}, "give global_batch"),
        ({"global_batch": 8}, "not of 'stride'"),
        ({**BATCHES, "global_batch": 9, "world_size": 2}, "2 ranks cannot share .* 9 samples: take 8 or 10"),
        ({**BATCHES, "global_batch": 1, "world_size": 2}, "take 2"),
        ({**BATCHES, "global_batch": 0}, "an integer from 1 on, not 0"),
        ({**BATCHES, "global_batch": 8.0}, "an integer from 1 on, not 8.0"),
        ({**BATCHES, "global_batch": 8, "window": 30, "lanes": 3, "shuffle": True}, "3 lanes cannot .*: take 6 or 9"),
        ({**BATCHES, "global_batch": 8, "rank": 2, "world_size": 2}, "no rank 2 of 2"),
        ({"window": 30}, "shuffle, too"),
        ({"lanes": 3, "shuffle": True}, "give a window"),
        ({"window": 2, "lanes": 3, "shuffle": True}, "too few for 3"),
        ({"window": 2.5, "shuffle": True}, "an integer from 1 on, not 2.5"),
    ],
)
def test_what_does_not_fit_together_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        LazyIndexedManifestIterator(range(100), **options)


def test_a_rank_that_would_get_no_sample_of_the_last_batch_is_refused() -> None:
    for tail, length in (("keep", None), ("drop", 96), ("pad", 104)):
        nodes = ranks_of(99, {}, 8, 4, tail)
        if length is None:
            with pytest.raises(
                UsageError, match=r'3 samples for 4 ranks: the tail "drop" leaves it out, "pad" fills it'
            ):
                len(nodes[0])
            with pytest.raises(UsageError, match="3 samples for 4 ranks"):
                next(iter(nodes[3]))
        else:
            assert sum(map(len, nodes)) == length


def test_states_that_do_not_belong_together_are_not_merged() -> None:
    def after(count: int, rank: int = 0, **options: Any) -> Any:
        (*_, node) = ranks_of(100, {"seed": 3}, **({"batch": 8, "ranks": 2} | options))[: rank + 1]
        list(islice(node, count))
        return collect_state_dict(node)

    with pytest.raises(UsageError, match=r"different batches, .*: \[8, 16\]"):
        merge_states([after(4), after(8, 1)])
    with pytest.raises(UsageError, match="took different batches"):
        merge_states([after(4), after(4, 1, batch=10)])
    with pytest.raises(UsageError, match="within a batch"):
        merge_states([after(5), after(5, 1)])
    with pytest.raises(UsageError, match="have begun epoch 1"):
        merge_states([after(48), after(51, 1)])
    one, other = ranks_of(100, {"seed": 3}, 8, 2)
    restore_state_dict(one, after(5))
    with pytest.raises(UsageError, match="between two batches"):
        restore_state_dict(other, after(5))
    with pytest.raises(UsageError, match="has tail 'drop', here it is 'keep'"):
        restore_state_dict(other, after(4, tail="drop"))
    with pytest.raises(UsageError, match="one rank's own"):
        restore_state_dict(leaf(100, seed=3), after(4))
    stride = leaf(100, seed=3, rank=1, world_size=2)
    with pytest.raises(UsageError, match="between two batches"):
        restore_state_dict(other, collect_state_dict(stride))


def test_workers_that_are_not_at_one_moment_are_not_merged() -> None:
    def states(*counts: int) -> list[Any]:
        (node,) = ranks_of(100, {}, 8, 1)
        shares = [share_of(node, worker, len(counts)) for worker in range(len(counts))]
        for share, count in zip(shares, counts, strict=True):
            list(islice(share, count))
        return [collect_state_dict(share) for share in shares]

    assert merge_states(states(16, 8, 8))["state"]["position"] == 32
    with pytest.raises(UsageError, match="not from one moment"):
        merge_states(states(16, 0, 8))
    with pytest.raises(UsageError, match=r"workers \[0, 1\] of 3"):
        merge_states(states(8, 8, 8)[:2])


def test_what_remains_of_strides_is_shared_in_batches() -> None:
    nodes = [leaf(50, seed=3, rank=rank, world_size=3) for rank in range(3)]
    seen = [number for node, count in zip(nodes, (5, 6, 4), strict=True) for number in islice(node, count)]
    merged = merge_states([collect_state_dict(node) for node in nodes])
    parts = ranks_of(50, {"seed": 3}, 10, 2)
    for part in parts:
        restore_state_dict(part, merged)
        seen += islice(part, 10)
    state = merge_states([collect_state_dict(part) for part in parts])
    (last,) = ranks_of(50, {"seed": 3}, 10, 1)
    restore_state_dict(last, from_json(to_json(state)))
    assert sorted(seen + list(last)) == list(range(50))


@pytest.mark.parametrize(
    "partition",
    [
        {"kind": "batches"},
        {"kind": "batches", "own": None},
        BATCHES_OF_8 | {"own": [0, 2, 0, 1, 0]},
        BATCHES_OF_8 | {"own": [0, 2, 0, 1, 10**9, 0]},
        BATCHES_OF_8 | {"own": [0, 2, 0, 1, 30, 3]},
        BATCHES_OF_8 | {"own": [0, 2, 0, 1, 0, 5]},
        BATCHES_OF_8 | {"own": [0, 2, 0, 1, 0, -1]},
        BATCHES_OF_8 | {"own": [0, 2, 3, 1, 0, 0]},
        BATCHES_OF_8 | {"own": {}},
        BATCHES_OF_8 | {"own": None, "more": 1},
        [],
        3,
    ],
)
def test_damaged_states_are_refused(partition: Any) -> None:
    node, _ = ranks_of(100, {}, 8, 2)
    state = collect_state_dict(node)
    state["state"]["partition"] = partition
    with pytest.raises((FormatError, UsageError)):
        restore_state_dict(node, state)
    with pytest.raises((FormatError, UsageError)):
        merge_states([state])


def test_graphs_above_share_batches_too() -> None:
    """A mapper, a chain and repeats over batches are those of the same order."""
    expected = whole_order(40, {"seed": 3})
    for rank in range(2):
        options = {"rank": rank, "world_size": 2, **BATCHES, "global_batch": 8}
        mine = [number for at in range(0, 40, 8) for number in expected[at + 4 * rank : at + 4 * rank + 4]]
        assert list(LazyMapper(LazyGlobalShuffle(leaf(40), 3, **options), str)) == list(map(str, mine))
        halves = [LazyIndexedManifestIterator(range(start, start + 20)) for start in (0, 20)]
        assert list(LazyIteratorChain(*halves, shuffle_iters=True, seed=3, **options)) == mine
        twice = LazyRepeater(leaf(40, seed=3, **options), 2)
        assert list(islice(twice, 20)) == mine
        assert twice.total_progress(collect_state_dict(twice)["state"]) == (20, 40)
