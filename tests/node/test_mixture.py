"""A mixture has each source by its weight at every position, and goes on exactly anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain, islice
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from node.test_length_batches import leaf

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.token import State, from_json, to_json
from touchfs.loader import BatchLoader
from touchfs.node import (
    LazyFilter,
    LazyGlobalShuffle,
    LazyIndexedManifestIterator,
    LazyIteratorChain,
    LazyLengthBatcher,
    LazyMapper,
    LazyMixture,
    LazyRepeater,
    collect_state_dict,
    get_graph_origin,
    merge_states,
    restore_state_dict,
    share_of,
    state_at,
)
from touchfs.node.order import length_schedule
from touchfs.node.order.schedule import PERIOD_MAX, Schedule

WEIGHT = st.integers(0, 9) | st.sampled_from([0.1, 0.5, 0.25, 2.5])


@st.composite
def schedules(draw: st.DrawFn, most: int = 5) -> tuple[int, dict[int, list[float]]]:
    count = draw(st.integers(1, most))
    starts = draw(st.sets(st.integers(1, 300), max_size=3))
    lists = st.lists(WEIGHT, min_size=count, max_size=count).filter(any)
    weights = {start: draw(lists) for start in sorted({0, *starts})}
    assume(all(any(column) for column in zip(*weights.values(), strict=True)))
    return count, weights


def source(size: int, first: int = 0, seed: int | None = 3, **options: Any) -> LazyIndexedManifestIterator:
    return LazyIndexedManifestIterator(range(first, first + size), seed is not None, seed or 0, **options)


@given(schedules(), st.integers(0, 9))
@example((3, {0: [1 / 3, 1, 0.1], 200: [1, 1 / 3, 0]}), 0)  # a period of 65,536, which takes 0.1 s
def test_every_source_is_within_one_sample_of_its_weight(given: Any, seed: int) -> None:
    count, weights = given
    sources, numbers = Schedule(count, weights, seed).at(np.arange(600))
    taken = np.zeros(count)
    for start, end in zip(weights, [*list(weights)[1:], 600], strict=True):
        shares = np.array(weights[start], float) / sum(weights[start])
        came = np.cumsum(sources[start:end, None] == np.arange(count), axis=0)
        assert np.abs(came - shares * np.arange(1, end - start + 1)[:, None]).max(initial=0) < 1 + 1e-6
        # No source comes that has no weight.
        assert not came[:, shares == 0].any()
        taken += came[-1] if end > start else 0
    for which in range(count):
        assert numbers[sources == which].tolist() == list(range(int(taken[which])))


@given(schedules(), st.integers(0, 900))
def test_counts_are_those_of_the_positions(given: Any, end: int) -> None:
    count, weights = given
    schedule = Schedule(count, weights, 1)
    sources, _ = schedule.at(np.arange(end))
    assert schedule.counts(end).tolist() == [int((sources == which).sum()) for which in range(count)]


def test_weights_without_a_small_common_denominator_are_rounded() -> None:
    weights = [0.123456789, 0.3333333333, 1e-9]
    schedule = Schedule(3, {0: weights}, 1)
    shares = np.array(schedule.weights[0])
    assert PERIOD_MAX <= shares.sum() <= PERIOD_MAX + 3
    assert shares[2] == 1, "none that has a weight is left out"
    assert np.abs(shares / shares.sum() - np.array(weights) / sum(weights)).max() < 2e-5


def by_hand(
    sizes: Sequence[int], weights: Mapping[int, Sequence[float]], seed: int, end: str, epochs: int
) -> list[Any]:
    """Epochs of a mixture as its docstring says: samples of each source in its own order, one epoch after the other."""
    sources, _ = Schedule(len(sizes), weights, seed).at(np.arange(20 * sum(sizes) + 400))

    @cache
    def own(which: int, epoch: int) -> list[int]:
        return list(source(sizes[which], 1000 * which, 3 + which + epoch))

    result, position = [], 0
    taken = [0] * len(sizes)
    for epoch in range(epochs):
        one = []
        if end == "stop":
            position, taken = 0, [0] * len(sizes)
        while len(one) < sum(sizes) if end == "repeat" else True:
            which = int(sources[position])
            if end == "stop" and taken[which] == sizes[which]:
                break
            which_epoch = taken[which] // sizes[which] if end == "repeat" else epoch
            one.append(own(which, which_epoch)[taken[which] % sizes[which]])
            position, taken[which] = position + 1, taken[which] + 1
        result.append(one)
    return result


def mixture(sizes: Sequence[int], weights: Any, seed: int, end: str, **options: Any) -> LazyMixture:
    sources = [source(size, 1000 * which, 3 + which) for which, size in enumerate(sizes)]
    return LazyMixture(*sources, weights=weights, seed=seed, end=end, **options)


@settings(max_examples=settings().max_examples // 2)
@given(schedules(3), st.data(), st.integers(0, 9), st.sampled_from(["repeat", "stop"]))
def test_a_mixture_goes_through_the_orders_of_its_sources(given: Any, data: st.DataObject, seed: int, end: str) -> None:
    count, weights = given
    sizes = data.draw(st.lists(st.integers(1, 12), min_size=count, max_size=count))
    node = mixture(sizes, weights, seed, end)
    length = len(node)
    assert [list(node) for _ in range(3)] == (expected := by_hand(sizes, weights, seed, end, 3))
    assert length == len(expected[0])
    for taken in data.draw(st.lists(st.integers(0, 2 * length), max_size=3)):
        node, again = mixture(sizes, weights, seed, end), mixture(sizes, weights, seed, end)
        epoch, inside = divmod(taken, max(length, 1))
        for _ in range(epoch):
            list(node)
        list(islice(node, inside))
        restore_state_dict(again, from_json(to_json(collect_state_dict(node))))
        rest = list(again)
        # At the end of an epoch nothing is left of it, or the next one begins.
        assert rest == expected[epoch][inside:] or (inside == 0 and rest == [])


@settings(max_examples=settings().max_examples // 2)
@given(schedules(3), st.data(), st.integers(1, 3), st.integers(1, 3))
def test_ranks_and_workers_share_its_global_batches(given: Any, data: st.DataObject, ranks: int, workers: int) -> None:
    count, weights = given
    sizes = data.draw(st.lists(st.integers(1, 12), min_size=count, max_size=count))
    whole = list(mixture(sizes, weights, 1, "repeat"))
    options = {"partition": "batches", "global_batch": 2 * ranks, "tail": "drop", "world_size": ranks}
    batches: dict[int, list[int]] = {}
    for rank in range(ranks):
        node = mixture(sizes, weights, 1, "repeat", rank=rank, **options)
        for worker in range(workers):
            part = list(share_of(node, worker, workers))
            for number in range(0, len(part), 2):
                batches.setdefault(worker + number // 2 * workers, []).extend(part[number : number + 2])
    assert [batches[number] for number in range(len(batches))] == [
        whole[start : start + 2 * ranks] for start in range(0, len(whole) // (2 * ranks) * 2 * ranks, 2 * ranks)
    ]


def test_states_are_small_and_merge_as_those_of_other_orders() -> None:
    nodes = [mixture([50, 9], {0: [3, 1], 20: [1, 1]}, 1, "repeat", rank=rank, world_size=2) for rank in range(2)]
    seen = [item for node, count in zip(nodes, (7, 12), strict=True) for item in islice(node, count)]
    states = [collect_state_dict(node) for node in nodes]
    assert len(to_json(states[0])) < 1500
    (rest,) = [mixture([50, 9], {0: [3, 1], 20: [1, 1]}, 1, "repeat")]
    restore_state_dict(rest, merge_states(states))
    assert sorted(seen + list(rest)) == sorted(mixture([50, 9], {0: [3, 1], 20: [1, 1]}, 1, "repeat"))


def test_items_carry_their_tokens_and_are_rebuilt_by_them() -> None:
    shuffled = LazyGlobalShuffle(source(20, seed=None), 5, window=8)
    node = LazyMixture(LazyMapper(shuffled, str), source(10, 100), weights=[2, 1])
    for item in node:
        index, token = get_graph_origin(item)
        assert node[(index, token)] == item == (str(token) if index == 0 else 100 + token)
    with pytest.raises(UsageError, match="a sample many positions: write a state"):
        state_at(node, (0, 3))


def test_repeats_of_a_mixture_go_on_through_its_sources() -> None:
    twice = list(LazyRepeater(mixture([5, 3], [1, 1], 0, "repeat"), 2))
    assert twice == [item for one in by_hand([5, 3], {0: [1, 1]}, 0, "repeat", 2) for item in one]


@contextmanager
def short_spans() -> Iterator[None]:
    """An epoch of small sources has several spans then: of 4,096 positions it has a part of one, which takes 1 s."""
    with pytest.MonkeyPatch.context() as patch:
        for size in ("SPAN", "BLOCK"):
            patch.setattr(length_schedule, size, 16)
        yield


@short_spans()
def test_a_state_of_other_weights_or_sources_is_refused() -> None:
    state = collect_state_dict(mixture([5, 3], [1, 1], 0, "repeat"))
    for other, why in [
        (mixture([5, 3], [2, 1], 0, "repeat"), "weights"),
        (mixture([5, 3], [1, 1], 1, "repeat"), "ties"),
        (mixture([5, 3], [1, 1], 0, "stop"), "length|end"),
        (mixture([4, 4], [1, 1], 0, "repeat"), "data"),
    ]:
        with pytest.raises(UsageError, match=f"was saved with ({why}) ="):
            restore_state_dict(other, state)
    for node in (mixture([5, 3], [1, 1], 0, "repeat"), LazyLengthBatcher(by_length([[5, 3]], {0: [1]}), max_tokens=9)):
        state = collect_state_dict(node)
        state["state"]["epoch"] = 1 << 61
        with pytest.raises(UsageError, match="has no epoch 2305843009213693952: the state is damaged"):
            restore_state_dict(node, state)


@pytest.mark.parametrize("end", ["repeat", "stop", "tokens"])
@short_spans()
def test_a_state_goes_on_by_other_weights_from_there_on(end: str) -> None:
    def made(weights: Any, **options: Any) -> LazyMixture:
        if end == "tokens":
            return by_length([[3] * 50, [1, 2] * 10], weights, **options)
        return mixture([50, 20], weights, 1, end, **options)

    old, other, new = {0: [3, 1]}, {0: [1, 2]}, {0: [3, 1], 31: [1, 2], 40: [2, 1]}
    came = list(islice(node := made(old), 31))
    state = from_json(to_json(collect_state_dict(node)))
    with pytest.raises(UsageError, match=r"saved with (weights|length) = .*extend=True|saved with length"):
        restore_state_dict(made(new), state)
    with pytest.raises(UsageError, match=r"31 samples of .* stay: give weights=\{0: \[3, 1\], 31: \[1, 2\]\}"):
        restore_state_dict(made(other), state, extend=True)
    with pytest.warns(UserWarning, match="what has come of the mixture stays, and it goes on by the weights that hold"):
        restore_state_dict(again := made(new), state, extend=True)
    assert came + list(again) == list(made(new))
    # A later state of it needs no more.
    came = list(islice(node := made(new), 45))
    restore_state_dict(again := made(new), collect_state_dict(node))
    assert came + list(again) == list(made(new))


def test_ranks_go_on_by_other_weights_after_the_last_sample_of_any() -> None:
    nodes = [mixture([50, 20], [3, 1], 1, "repeat", rank=rank, world_size=2) for rank in range(2)]
    came = [item for node, count in zip(nodes, (7, 12), strict=True) for item in islice(node, count)]
    state = merge_states(list(map(collect_state_dict, nodes)))
    with pytest.raises(UsageError, match="merge those of all with merge_states"):
        restore_state_dict(mixture([50, 20], [1, 1], 1, "repeat"), collect_state_dict(nodes[1]), extend=True)
    with pytest.raises(UsageError, match=r"24 samples of .*give weights=\{0: \[3, 1\], 24: \[1, 1\]\}"):
        restore_state_dict(mixture([50, 20], {0: [3, 1], 23: [1, 1]}, 1, "repeat"), state, extend=True)
    node = mixture([50, 20], new := {0: [3, 1], 24: [1, 1]}, 1, "repeat")
    with pytest.warns(UserWarning, match="goes on by the weights"):
        restore_state_dict(node, state, extend=True)
    assert sorted(came + list(node)) == sorted(mixture([50, 20], new, 1, "repeat"))


def test_a_loader_goes_on_by_other_weights() -> None:
    def made(weights: Any) -> Any:
        return BatchLoader(mixture([50, 20], weights, 1, "repeat"), 8, 0, 1, 0, list, {})

    first = made([3, 1])
    came = list(islice(first, 3))
    with pytest.raises(UsageError, match="if only weights changed, load_state_dict"):
        made({0: [3, 1], 24: [1, 1]}).load_state_dict(first.state_dict())
    with pytest.warns(UserWarning, match="goes on by the weights"):
        (again := made({0: [3, 1], 24: [1, 1]})).load_state_dict(first.state_dict(), extend=True)
    assert came + list(again) == list(made({0: [3, 1], 24: [1, 1]}))


@pytest.mark.parametrize(
    ("sources", "options", "why"),
    [
        ([LazyFilter(range(3), bool)], {}, "a LazyFilter has none: take datasets"),
        ([[1, 2]], {}, "a list has none"),
        ([LazyIteratorChain(source(3), source(3))], {}, "has none"),
        ([source(4, rank=1, world_size=2)], {}, "give rank and world_size to what is above it"),
        ([source(3), source(0)], {}, "a source of a mixture is empty: leave it out"),
        ([], {}, "a weight for each source, 1 to 1024: 0 are for 0"),
        ([source(3)], {"weights": [1, 1]}, "2 are for 1"),
        ([source(3)] * 2, {"weights": [1, 0]}, "source 1 of the mixture has the weight 0: leave it out"),
        ([source(3)] * 2, {"weights": [0, 0]}, "all weights are 0"),
        ([source(3)] * 2, {"weights": [1, -1]}, "0 or more, not -1"),
        ([source(3)] * 2, {"weights": [1, float("nan")]}, "0 or more, not nan"),
        ([source(3)] * 2, {"weights": [1, float("inf")]}, "0 or more, not inf"),
        ([source(3)] * 2, {"weights": [1, True]}, "0 or more, not True"),
        ([source(3)] * 2, {"weights": {5: [1, 1]}}, "the first ones from 0"),
        ([source(3)] * 2, {"weights": {0: [1, 1], -5: [1, 1]}}, "hold from positions on"),
        ([source(3)] * 2, {"weights": {0: [1, 1], 1 << 90: [1, 1]}}, "hold from positions on"),
        ([source(3)], {"end": "wrap"}, "repeat or stop"),
    ],
)
def test_what_makes_no_mixture_is_refused(sources: list[Any], options: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        LazyMixture(*sources, **options)


LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=40)


def by_length(data: list[list[int]], weights: dict[int, list[float]], **options: Any) -> LazyMixture:
    sources = [leaf(lengths, shuffle=True, seed=which) for which, lengths in enumerate(data)]
    return LazyMixture(*sources, weights=weights, by="tokens", **options)


@short_spans()
@given(schedules(), st.data())
def test_every_source_has_its_share_of_tokens_to_within_one_sample(given: Any, data: st.DataObject) -> None:
    count, weights = given
    lengths = data.draw(st.lists(LENGTHS, min_size=count, max_size=count))
    longest = max(1, *map(max, lengths))
    had, came = np.zeros(count), [list[Any]() for _ in range(count)]
    for position, (which, sample) in enumerate(of_sources(by_length(lengths, weights))):
        if position in weights:
            had[:] = 0
        shares = np.array(weights[max(start for start in weights if start <= position)])
        assert shares[which]
        had[which] += max(sample[1], 1)
        came[which].append(sample)
        assert np.abs(had - had.sum() * shares / shares.sum()).max() <= longest + 1
    for which, samples in enumerate(came):
        own = leaf(lengths[which], shuffle=True, seed=which)
        assert samples == list(islice((sample for _ in range(999) for sample in own), len(samples)))


def of_sources(mixture: LazyMixture) -> list[tuple[int, Any]]:
    """The items, and of which source each is."""
    return [(cast("tuple[int, Any]", token)[0], make()) for token, make in mixture.pairs()]


@short_spans()
@given(schedules(), st.data(), st.sampled_from([1, 2, 3]), st.integers(0, 90))
def test_a_mixture_by_length_goes_on_anywhere(given: Any, data: st.DataObject, ranks: int, taken: int) -> None:
    count, weights = given
    lengths = data.draw(st.lists(LENGTHS, min_size=count, max_size=count))
    whole = by_length(lengths, weights)
    epochs = [list(whole), list(whole)]
    batches = {"partition": "batches", "global_batch": 6, "tail": "drop"}
    steps = min(taken // 6, len(epochs[0]) // 6)
    node = by_length(lengths, weights, **batches)
    begun = list(islice(node, 6 * steps))
    assert begun == epochs[0][: 6 * steps]
    state = from_json(to_json(collect_state_dict(node)))
    parts = []
    for rank in range(ranks):
        part = by_length(lengths, weights, rank=rank, world_size=ranks, **batches)
        restore_state_dict(part, state)
        parts.append(list(part))
    each = 6 // ranks
    rest = [
        sample
        for step in range(len(epochs[0]) // 6 - steps)
        for part in parts
        for sample in part[step * each : (step + 1) * each]
    ]
    assert begun + rest == epochs[0][: len(epochs[0]) // 6 * 6]
    again = by_length(lengths, weights)
    again.load_state_dict(again.begin(1).state())
    assert list(again) == epochs[1]


@pytest.mark.parametrize("how", ["one", "ranks", "merged", "loader", "after an epoch"])
def test_a_state_of_a_mixture_by_length_goes_on_without_the_lengths_before_it(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = [[1 + number * 7 % 40 for number in range(15_000)], [1 + number * 3 % 25 for number in range(9_000)]]
    weights: dict[int, list[float]] = {0: [2, 1], 10_000: [1, 1]}
    ranks = 2 if how in ("ranks", "merged") else 1
    nodes = [by_length(data, weights, rank=rank, world_size=ranks) for rank in range(ranks)]
    count = (25_000 if how == "after an epoch" else 20_000) // ranks
    loader: Any
    states: list[State] = []
    if how == "loader":
        loader = BatchLoader(nodes[0], 100, 0, 1, 0, list, {})
        list(islice(loader, 200))
        states.append(loader.state_dict())
    for node in nodes if how != "loader" else ():
        passes = chain.from_iterable(node for _ in range(2))
        for _ in islice(passes, count):
            pass
        states.append(from_json(to_json(collect_state_dict(node))))
    whole = by_length(data, weights)
    after = list(islice(chain(whole, whole), count * ranks, count * ranks + 300))
    asked = 0
    lengths_at = LazyIndexedManifestIterator.lengths_at

    def counted(self: Any, ordinals: Any, *arguments: Any) -> Any:
        nonlocal asked
        asked += len(ordinals)
        return lengths_at(self, ordinals, *arguments)

    monkeypatch.setattr(LazyIndexedManifestIterator, "lengths_at", counted)
    again = [by_length(data, weights, rank=rank, world_size=ranks) for rank in range(ranks)]
    if how == "merged":
        states, again = [merge_states(states)], [by_length(data, weights)]
    asked = 0
    if how == "loader":
        loader = BatchLoader(again[0], 100, 0, 1, 0, list, {})
        loader.load_state_dict(from_json(to_json(states[0])))
        assert list(chain.from_iterable(islice(loader, 3))) == after
    else:
        for node, state in zip(again, states, strict=True):
            restore_state_dict(node, state)
        parts = [list(islice(node, 300 // len(again))) for node in again]
        assert [sample for step in zip(*parts, strict=True) for sample in step] == after
    assert asked < 12_000 * len(again)


def test_a_state_of_a_mixture_by_length_without_them_goes_on_too() -> None:
    whole = by_length([[5, 9] * 3000, [4] * 3000], {0: [1, 1]})
    list(islice(pairs := iter(whole), 7000))
    state = collect_state_dict(whole)
    del state["state"]["taken"]
    again = by_length([[5, 9] * 3000, [4] * 3000], {0: [1, 1]})
    restore_state_dict(again, state)
    assert list(again) == list(pairs)


@pytest.mark.parametrize("taken", [{"counts": [4096], "lengths": [0, 0]}, {"counts": [1, 2], "lengths": [0, 0]}, None])
@short_spans()
def test_a_damaged_state_of_a_mixture_by_length_is_refused(taken: Any) -> None:
    node = by_length([[5, 9], [4]], {0: [1, 1]})
    state = collect_state_dict(node)
    state["state"]["taken"] = taken
    with pytest.raises(FormatError, match=r"taken (does not fit 2 sources|must be an object).*damaged"):
        restore_state_dict(node, state)


def test_samples_of_one_length_come_as_often_as_by_number() -> None:
    """With weights of seconds a source of long samples comes less often."""
    data = [[5] * 40, [5] * 40]
    by_number = LazyMixture(*(leaf(lengths) for lengths in data), weights=[3, 1])
    for mixture in (by_number, by_length(data, {0: [3, 1]})):
        came = [token[0] for token, _ in mixture.pairs()][:40]
        assert all(abs(came[:count].count(0) - 0.75 * count) <= 1 for count in range(41))
    came = [token[0] for token, _ in by_length([[30] * 20, [10] * 60], {0: [1, 1]}).pairs()]
    assert came.count(0) == 20 and came[:40].count(0) == 10


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: by_length([[1]], {0: [1]}, end="stop"), "a mixture by length repeats its sources: leave out end"),
        (lambda: LazyMixture(source(3), by="samples"), "by is seconds or tokens, not 'samples'"),
        (lambda: list(LazyMixture(source(3), by="tokens")), "no index tells the lengths of the items"),
        (lambda: list(by_length([[1], [3, -1]], {0: [1, 1]})), "sample 1 of source 1 of the mixture has no length in"),
    ],
)
def test_what_makes_no_mixture_by_length_is_refused(make: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        make()
