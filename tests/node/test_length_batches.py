"""Batches by length: each sample once, none over the limit, the same for all ranks and workers, from any state."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from touchfs.core.errors import UsageError
from touchfs.core.token import from_json, to_json
from touchfs.node import (
    LazyFilter,
    LazyGlobalShuffle,
    LazyIndexedManifestIterator,
    LazyIteratorChain,
    LazyLengthBatcher,
    LazyMapper,
    LazyMixture,
    LazyPrefetcher,
    LazyRepeater,
    collect_state_dict,
    merge_states,
    restore_state_dict,
    share_of,
)
from touchfs.node.order.partition import TAILS

MOST = 20
LENGTHS = st.lists(st.integers(0, MOST), max_size=60)
ORDERS = st.sampled_from([{}, {"shuffle": True, "seed": 3}, {"shuffle": True, "seed": 3, "window": 9}])


class Lengthy(Sequence[tuple[int, int]]):
    """Samples of these lengths: each is its number and its length."""

    def __init__(self, lengths: list[int]) -> None:
        self.given = lengths
        self.fingerprint = str(lengths)

    def lengths(self, measure: str) -> NDArray[np.int64]:
        assert measure == "tokens"
        return np.array(self.given, np.int64)

    def __len__(self) -> int:
        return len(self.given)

    def __getitem__(self, number: Any) -> Any:
        return number, self.given[number]


def leaf(lengths: list[int], **order: Any) -> LazyIndexedManifestIterator:
    return LazyIndexedManifestIterator(Lengthy(lengths), **order)


def batcher(lengths: list[int], order: dict[str, Any], pack: bool = False, **options: Any) -> LazyLengthBatcher:
    return LazyLengthBatcher(leaf(lengths, **order), max_tokens=MOST, pack=pack, **{"span": 16, **options})


def cost(batch: list[tuple[int, int]], pack: bool) -> int:
    lengths = [length for _, length in batch]
    return sum(lengths) if pack else len(lengths) * max(lengths)


@given(LENGTHS, ORDERS, st.booleans(), st.integers(1, 70))
def test_each_sample_comes_once_and_no_batch_is_over_the_limit(
    lengths: list[int], order: dict[str, Any], pack: bool, span: int
) -> None:
    node = batcher(lengths, order, pack, span=span)
    whole = list(leaf(lengths, **order))
    for _ in range(2):
        expected_length = len(node)
        batches = list(node)
        assert len(batches) == expected_length
        assert sorted(chain.from_iterable(batches)) == sorted(whole)
        assert all(cost(batch, pack) <= MOST for batch in batches)


@given(LENGTHS, ORDERS, st.booleans())
def test_batches_are_of_one_span_and_in_the_order(lengths: list[int], order: dict[str, Any], pack: bool) -> None:
    whole = list(leaf(lengths, **order))
    at = {number: position for position, (number, _) in enumerate(whole)}
    spans = []
    for batch in batcher(lengths, order, pack):
        positions = [at[number] for number, _ in batch]
        assert positions == sorted(positions)
        assert len({position // 16 for position in positions}) == 1
        spans.append(positions[0] // 16)
    assert spans == sorted(spans)


@given(LENGTHS, st.booleans())
def test_two_batches_of_a_span_never_fit_into_one(lengths: list[int], pack: bool) -> None:
    """Not if they are packed, nor if they are neighbours in length."""
    node = batcher(lengths, {}, pack, span=70)
    batches = list(node)
    if not pack:
        batches.sort(key=lambda batch: (min(length for _, length in batch), min(batch)))
        # The shortest sample of the next batch does not fit into this one.
        assert all((len(a) + 1) * min(length for _, length in b) > MOST for a, b in pairwise(batches))
    else:
        assert sum(2 * cost(batch, True) <= MOST for batch in batches) <= 1


def test_samples_of_like_length_are_together() -> None:
    lengths = [1, 10, 1, 10, 1, 10, 1]
    assert [[length for _, length in batch] for batch in batcher(lengths, {})] == [[1, 1, 1, 1], [10, 10], [10]]
    assert [[length for _, length in batch] for batch in batcher(lengths, {}, True)] == [[1, 10, 1, 1, 1], [10, 10]]


def cut(units: list[Any], size: int, tail: str) -> list[list[Any]]:
    batches = [units[start : start + size] for start in range(0, len(units), size)]
    if batches and len(batches[-1]) < size:
        if tail == "drop":
            batches.pop()
        elif tail == "pad":
            batches[-1] = [units[i % len(units)] for i in range((len(batches) - 1) * size, len(batches) * size)]
    return batches


@given(
    LENGTHS,
    ORDERS,
    st.booleans(),
    st.lists(st.tuples(st.sampled_from([1, 2, 3, 6]), st.integers(1, 3), st.integers(0, 3)), max_size=4),
    st.sampled_from(TAILS),
)
def test_ranks_workers_and_resumes_change_nothing(
    lengths: list[int], order: dict[str, Any], pack: bool, changes: list[tuple[int, int, int]], tail: str
) -> None:
    """Each time so many ranks and workers take so many global batches of six, and save."""
    expected = cut(list(batcher(lengths, order, pack)), 6, tail)
    assume(tail != "keep" or not expected or len(expected[-1]) == 6)
    seen: list[list[Any]] = []
    state = None
    for ranks, workers, steps in [*changes, (1, 1, 100)]:
        each, states, parts = 6 // ranks, [], []
        steps = min(steps, len(expected) - len(seen))
        for rank in range(ranks):
            node = batcher(lengths, order, pack, rank=rank, world_size=ranks, tail=tail, global_batch=6)
            if state is not None:
                restore_state_dict(node, state)
            taken: list[list[Any]] = [[] for _ in range(steps)]
            for worker in range(workers):
                share = share_of(node, worker, workers)
                own = range(worker, steps, workers)
                pairs = share.pairs()
                for step in own:
                    taken[step] = [make() for _, make in islice(pairs, each)]
                states.append(from_json(to_json(collect_state_dict(share))))
            parts.append(taken)
        seen += [list(chain.from_iterable(part[step] for part in parts)) for step in range(steps)]
        if len(seen) == len(expected):
            break
        state = merge_states(states) if workers > 1 else states[0]
        assert workers > 1 or all(each == state for each in states)
    assert seen == expected


@given(LENGTHS, ORDERS, st.integers(0, 20))
def test_a_state_in_a_graph_goes_on(lengths: list[int], order: dict[str, Any], taken: int) -> None:
    def graph() -> Any:
        return LazyMapper(LazyRepeater(batcher(lengths, order), 2), list)

    whole = list(graph())
    node = graph()
    begun = iter(node)
    assert list(islice(begun, taken)) == whole[:taken]
    again = graph()
    restore_state_dict(again, from_json(to_json(collect_state_dict(node))))
    assert list(again) == whole[taken:]


def double(sample: tuple[int, int]) -> tuple[int, int]:
    return 2 * sample[0], sample[1]


@pytest.mark.parametrize(
    "source",
    [
        lambda: LazyMapper(leaf([3, 5, 8, 2] * 9), double),
        lambda: LazyGlobalShuffle(LazyMapper(leaf([3, 5, 8, 2] * 9), double), 7),
        lambda: LazyGlobalShuffle(LazyIteratorChain(leaf([3, 5, 8]), leaf([1, 2, 4] * 9)), 7),
        lambda: LazyMixture(leaf([3, 5, 8] * 5), leaf([1, 2, 4] * 4, shuffle=True), weights=[2, 1]),
    ],
)
def test_sources_with_an_order(source: Any) -> None:
    node = LazyLengthBatcher(source(), max_tokens=MOST, span=8)
    batches = list(node)
    assert sorted(chain.from_iterable(batches)) == sorted(source())
    assert all(cost(batch, False) <= MOST for batch in batches)
    pairs = list(LazyLengthBatcher(source(), max_tokens=MOST, span=8).pairs())
    assert [node[token] for token, _ in pairs] == batches


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: LazyLengthBatcher(leaf([1])), "give max_duration or max_tokens"),
        (lambda: LazyLengthBatcher(leaf([1]), 2.0, 2), "give max_duration or max_tokens"),
        (lambda: LazyLengthBatcher(leaf([1]), max_tokens=0), "max_tokens is a number above 0"),
        (lambda: LazyLengthBatcher(leaf([1]), max_tokens=2.5), "max_tokens is an integer from 1 on, not 2.5"),
        (
            lambda: LazyLengthBatcher(leaf([1]), float("nan")),
            "max_duration is a number above 0, and below 9007199254, not nan",
        ),
        (lambda: LazyLengthBatcher(leaf([1]), max_tokens=2, pack=1), "pack is true or false, not 1"),
        (lambda: LazyLengthBatcher(LazyFilter(leaf([1]), bool), max_tokens=2), "a LazyFilter has none"),
        (lambda: LazyLengthBatcher(LazyPrefetcher(leaf([1])), max_tokens=2), "a LazyPrefetcher has none"),
        (lambda: LazyLengthBatcher(leaf([1], rank=1, world_size=2), max_tokens=2), "give rank and world_size to what"),
        (lambda: LazyLengthBatcher(leaf([1] * 4, shuffle=True, window=4, lanes=2), max_tokens=2), "leave out lanes"),
        (lambda: LazyLengthBatcher(leaf([1]), max_tokens=2, global_batch=3, world_size=2), "take 2 or 4"),
        (
            lambda: list(LazyLengthBatcher(leaf([1, 30]), max_tokens=20)),
            r"sample 1 has 30 tokens, and a batch at most 20: give a larger max_tokens, or .* where size.npy",
        ),
        (lambda: list(LazyLengthBatcher(leaf([1, -1]), max_tokens=20)), "sample 1 has no length in tokens"),
        (
            lambda: list(LazyLengthBatcher(LazyIndexedManifestIterator([1]), max_tokens=20)),
            "no index tells the lengths of the items of a LazyIndexedManifestIterator",
        ),
    ],
)
def test_what_makes_no_batches_is_refused(make: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        make()


def test_a_state_of_other_batches_is_refused() -> None:
    node = batcher([3, 5, 8, 2] * 9, {})
    pairs = node.pairs()
    next(pairs)
    state = collect_state_dict(node)
    assert state["state"]["position"] == 1
    for other, why in [
        (batcher([3, 5, 8, 2] * 9, {}, True), "pack"),
        (batcher([3, 5, 8, 2] * 9, {}, span=8), "span"),
        (batcher([3, 5, 8, 1] * 9, {}), "data"),
    ]:
        with pytest.raises(UsageError, match=f"was saved with {why} ="):
            restore_state_dict(other, state)
