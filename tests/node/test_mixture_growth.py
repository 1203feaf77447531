"""A mixture goes on over sources with other shards: by the same schedule, and each source as it would alone."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from node.test_growth import leaf, over, stated
from node.test_mixture import schedules

from touchfs.core.errors import FormatError, UsageError
from touchfs.loader import BatchLoader
from touchfs.node import (
    LazyIteratorChain,
    LazyMapper,
    LazyMixture,
    LazyRepeater,
    collect_state_dict,
    merge_states,
    restore_state_dict,
    share_of,
)
from touchfs.node.core.iteration import same
from touchfs.node.core.pair_node import PairNode
from touchfs.node.graph.state import extended_state
from touchfs.node.order.schedule import Schedule

Data = Sequence[dict[str, int]]

SHARDS = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 6), min_size=1, max_size=4)


def source_of(shards: dict[str, int], which: int) -> Any:
    """The first one is shuffled in windows, the second one is in order and mapped, and the last one is a chain."""
    if which == 0:
        return leaf(shards, window=4)
    if which == 1:
        return LazyMapper(leaf(shards, seed=None), same)
    return LazyIteratorChain(leaf(shards), leaf({"z": 2}), shuffle_iters=True, seed=which)


def mixture(data: Data, weights: Any = None, end: str = "repeat", **options: Any) -> LazyMixture:
    sources = [source_of(shards, which) for which, shards in enumerate(data)]
    return LazyMixture(*sources, weights=weights, seed=1, end=end, **options)


def items_of(node: Any) -> Iterator[tuple[int, Any]]:
    """The items of the next epoch, and of which source each is."""
    return ((cast("tuple[int, Any]", token)[0], make()) for token, make in node.pairs())


def extend(node: PairNode, state: Any) -> None:
    with warnings.catch_warnings(action="ignore"):
        restore_state_dict(node, stated(state), extend=True)


class Alone:
    """A source that goes on alone."""

    def __init__(self, which: int, shards: dict[str, int]) -> None:
        self.which = which
        self.begin(shards, 0)

    def begin(self, shards: dict[str, int], epoch: int) -> None:
        self.node = source_of(shards, self.which)
        self.node.load_state_dict(self.node.begin(epoch).state())
        self.items = iter(self.node)

    def next(self, is_repeated: bool) -> Any:
        item = next(self.items, None)
        if item is None and is_repeated:
            self.items = iter(self.node)
            return next(self.items, None) or self.next(True)
        return item

    def grow(self, shards: dict[str, int]) -> None:
        before, self.node = self.node, source_of(shards, self.which)
        extend(self.node, collect_state_dict(before))
        self.items = iter(self.node)


def moments(count: int) -> st.SearchStrategy[list[tuple[list[dict[str, int]], int]]]:
    data = st.lists(SHARDS, min_size=count, max_size=count)
    return st.lists(st.tuples(data, st.integers(0, 40)), min_size=1, max_size=4)


@settings(max_examples=settings().max_examples // 2)
@given(schedules(3), st.data(), st.sampled_from(["repeat", "stop"]), st.booleans())
def test_each_source_goes_on_as_it_would_alone(given: Any, data: st.DataObject, end: str, has_ended: bool) -> None:
    count, weights = given
    passes: list[tuple[list[dict[str, int]], int]] = data.draw(moments(count))
    alone = [Alone(which, passes[0][0][which]) for which in range(count)]
    due = iter(Schedule(count, weights, 1).at(np.arange(2000))[0].tolist())
    node, epoch = mixture(passes[0][0], weights, end), 0

    def step(items: Iterator[tuple[int, Any]]) -> bool:
        """Compare the next item; at the end of the epoch begin the next one."""
        nonlocal epoch, due
        found = next(items, None)
        if found is not None:
            which = next(due)
            assert found == (which, alone[which].next(end == "repeat"))
            return True
        epoch += 1
        if end == "stop":
            assert alone[next(due)].next(False) is None
            due = iter(Schedule(count, weights, 1).at(np.arange(2000))[0].tolist())
            for each, shards in zip(alone, now, strict=True):
                each.begin(shards, epoch)
        return False

    for number, (now, taken) in enumerate(passes):
        if number:
            state = stated(collect_state_dict(node))
            extend(again := mixture(now, weights, end), state)
            for each, shards in zip(alone, now, strict=True):
                each.grow(shards)
            restore_state_dict(node := mixture(now, weights, end), stated(collect_state_dict(again)))
            if state["state"].get("ended"):
                assert list(node) == []
        items = items_of(node)
        for _ in range(taken):
            if not step(items):
                if has_ended:
                    break
                items = items_of(node)


OLD = [{"a": 5, "b": 4}, {"c": 6}]
NEW = [{"x": 3, "a": 5, "b": 4}, {"c": 6, "d": 1}]
WEIGHTS = {0: [2, 1]}


def test_an_epoch_gets_longer_by_what_is_new_and_shorter_by_what_is_lost() -> None:
    node, longer = mixture(OLD, WEIGHTS), mixture(NEW, WEIGHTS)
    came = list(islice(node, 6))
    told = over(longer, collect_state_dict(node))
    assert told == (
        "source 0: 5 samples of the old order left, then 3 new samples; "
        "source 1: 4 samples of the old order left, then 1 new sample"
    )
    rest, whole = list(longer), list(mixture(OLD, WEIGHTS))
    assert len(rest) == 15 - 6 + 4
    assert [item for item in [*came, *rest] if item[0] in "abc"][:12] == whole[:12]
    assert longer.total_progress(collect_state_dict(longer)["state"]) == (0, 19)
    shorter = mixture([{"a": 5}, {"c": 6}], WEIGHTS)
    lost = 4 - sum(item[0] == "b" for item in came)
    assert f"; {lost} sample lost with their shards before they came" in over(shorter, collect_state_dict(node))
    assert shorter.progress(collect_state_dict(shorter)["state"]) == (0, 9 - lost)


@pytest.mark.parametrize("end", ["repeat", "stop"])
def test_ranks_and_workers_share_what_comes_in_global_batches(end: str) -> None:
    batches = {"partition": "batches", "global_batch": 4, "tail": "drop"}
    node, whole = mixture(OLD, WEIGHTS, end, **batches), mixture(NEW, WEIGHTS, end)
    list(islice(node, 4))
    state = collect_state_dict(node)
    extend(whole, state)
    extended = extended_state(mixture(NEW, WEIGHTS, end, **batches), state)
    due = list(whole)
    for ranks, workers in ((1, 1), (2, 1), (1, 3), (2, 2)):
        came: dict[int, list[Any]] = {}
        for rank in range(ranks):
            part = mixture(NEW, WEIGHTS, end, rank=rank, world_size=ranks, **batches)
            restore_state_dict(part, stated(extended))
            shares = [share_of(part, worker, workers) for worker in range(workers)]
            for worker, share in enumerate(shares):
                items = list(share)
                for number in range(0, len(items), 4 // ranks):
                    batch = worker + number * ranks // 4 * workers
                    came.setdefault(batch, []).extend(items[number : number + 4 // ranks])
        assert [item for batch in sorted(came) for item in came[batch]] == due[: len(due) // 4 * 4]


def test_ranks_in_step_go_on_and_others_are_told_what_to_do() -> None:
    def states(*counts: int) -> Any:
        nodes = [mixture(OLD, WEIGHTS, rank=rank, world_size=2) for rank in range(2)]
        for node, count in zip(nodes, counts, strict=True):
            list(islice(node, count))
        return merge_states(list(map(collect_state_dict, nodes)))

    one = mixture(OLD, WEIGHTS)
    list(islice(one, 6))
    extend(longer := mixture(NEW, WEIGHTS), states(3, 3))
    extend(same_one := mixture(NEW, WEIGHTS), collect_state_dict(one))
    assert list(longer) == list(same_one)
    parts = [mixture(NEW, WEIGHTS, rank=rank, world_size=3) for rank in range(3)]
    for part in parts:
        extend(part, states(3, 3))
        list(islice(part, 2))
    extend(same_one, collect_state_dict(one))
    rest = list(same_one)[6:]
    restore_state_dict(longer, merge_states(list(map(collect_state_dict, parts))))
    assert list(longer) == rest
    with pytest.raises(UsageError, match=r"at different places of the mixture, .* take a state that ranks share"):
        extend(mixture(NEW, WEIGHTS), states(3, 1))


@pytest.mark.parametrize("end", ["repeat", "stop"])
def test_weights_change_together_with_shards_and_after_them(end: str) -> None:
    node = mixture(OLD, WEIGHTS, end)
    list(islice(node, 4))
    state = collect_state_dict(node)
    with pytest.raises(UsageError, match=r"give weights=\{0: \[2, 1\], 4: \[1, 3\]\}"):
        extend(mixture(NEW, {0: [1, 3]}, end), state)
    at_once, later = mixture(NEW, {**WEIGHTS, 4: [1, 3]}, end), mixture(NEW, WEIGHTS, end)
    extend(at_once, state)
    extend(later, state)
    extend(changed := mixture(NEW, {**WEIGHTS, 4: [1, 3]}, end), collect_state_dict(later))
    assert list(changed) == list(at_once)
    extend(later, state)
    came = list(islice(later, 3))
    told = over(changed := mixture(NEW, {**WEIGHTS, 7: [0, 1], 9: [1, 0]}, end), collect_state_dict(later))
    assert told.startswith("what has come of the mixture stays")
    assert [item[0] in "cd" for item in [*came, *changed]][3:6] == [True, True, False]


def test_loaders_and_repeats_of_a_mixture_go_on_through_later_epochs() -> None:
    def loader(data: Data, batch: int = 4) -> BatchLoader:
        return BatchLoader(mixture(data, WEIGHTS, tail="drop"), batch, 0, 1, 0, list, {})

    old, new = loader(OLD), loader(NEW)
    list(islice(old, 2))
    node = mixture(OLD, WEIGHTS)
    list(islice(node, 8))
    extend(whole := mixture(NEW, WEIGHTS), collect_state_dict(node))
    epochs = [list(whole), list(whole), list(whole)]
    with pytest.raises(UsageError, match="if only shards were added or removed or weights changed, load_state_dict"):
        new.load_state_dict(old.state_dict())
    with pytest.warns(UserWarning, match="source 0: 3 samples of the old order left, then 3 new"):
        new.load_state_dict(old.state_dict(), extend=True)
    for items in epochs:
        steps = iter(new)
        came = next(steps)
        (again := loader(NEW)).load_state_dict(stated(new.state_dict()))
        rest = [item for batch in again for item in batch]
        assert [*came, *rest] == items[: len(items) // 4 * 4]
        assert [item for batch in steps for item in batch] == rest
    old_twice, new_twice = (LazyRepeater(mixture(data, WEIGHTS), 3) for data in (OLD, NEW))
    list(islice(old_twice, 8))
    over(new_twice, collect_state_dict(old_twice))
    assert list(new_twice) == [item for items in epochs for item in items]


def test_an_older_state_is_loaded_as_it_was() -> None:
    node = mixture(NEW, WEIGHTS)
    epochs = [list(node), list(node)]
    state = collect_state_dict(mixture(NEW, WEIGHTS))
    old = mixture(OLD, WEIGHTS)
    list(islice(old, 8))
    extend(node, collect_state_dict(old))
    goes_on = list(node)
    extend(node, collect_state_dict(old))
    list(islice(node, 3))
    assert list(node) == goes_on, "a pass that was left begins again, where it is known what comes"
    restore_state_dict(node, state)
    assert [list(node), list(node)] == epochs


@pytest.mark.parametrize("field", ["begins", "length", "number", "epoch"])
def test_a_damaged_place_is_refused(field: str) -> None:
    node, longer = mixture(OLD, WEIGHTS), mixture(NEW, WEIGHTS)
    list(islice(node, 6))
    extend(longer, collect_state_dict(node))
    state = stated(collect_state_dict(longer))
    since = state["state"]["since"]
    (since if field in since else since["sources"][0])[field] = -1
    with pytest.raises((FormatError, UsageError), match="damaged"):
        restore_state_dict(mixture(NEW, WEIGHTS), state)
    since = state["state"]["since"] = stated(collect_state_dict(longer))["state"]["since"]
    since["sources"][0]["number"] += 3
    with pytest.raises(FormatError, match="does not fit the weights: the state is damaged"):
        restore_state_dict(mixture(NEW, WEIGHTS), state)


def test_what_cannot_go_on_says_so() -> None:
    node = LazyMixture(leaf({"a": 4}), leaf({"b": 4}), by="tokens")
    list(islice(node, 2))
    with pytest.raises(UsageError, match=r"by tokens follows from the lengths .* put the old ones back"):
        extend(LazyMixture(leaf({"a": 4, "c": 1}), leaf({"b": 4}), by="tokens"), collect_state_dict(node))
    inner = LazyMixture(mixture(OLD), leaf({"b": 4}))
    list(islice(inner, 2))
    with pytest.raises(
        UsageError, match="a source that is a LazyMixture itself is over other shards: put the old ones back"
    ):
        extend(LazyMixture(mixture(NEW), leaf({"b": 4})), collect_state_dict(inner))
    list(islice(node := mixture(OLD, WEIGHTS), 6))
    extend(longer := mixture(NEW, WEIGHTS), collect_state_dict(node))
    with pytest.raises(UsageError, match="have other shards since: it is not known what came before"):
        list(longer.seen(longer.state_dict()))
