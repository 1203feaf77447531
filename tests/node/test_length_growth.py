"""Batches by length go on over a dataset with more shards: those that were left, and then those of what is new."""

from __future__ import annotations

from itertools import chain, islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from node.test_growth import Shards, over, stated
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, UsageError
from touchfs.loader import BatchLoader
from touchfs.node import (
    LazyIndexedManifestIterator,
    LazyIteratorChain,
    LazyLengthBatcher,
    LazyMapper,
    LazyMixture,
    LazyRepeater,
    collect_state_dict,
    merge_states,
    restore_state_dict,
    share_of,
)
from touchfs.node.core.iteration import same
from touchfs.node.graph.state import extended_state

MOST = 20


class Texts(Shards):
    """Items of several lengths."""

    def lengths(self, measure: str) -> NDArray[np.int64]:
        return np.array([1 + (5 * ord(name) + 3 * number) % 11 for name, number in self.items], np.int64)


def samples(shards: dict[str, int], seed: int | None = 3, **options: Any) -> LazyIndexedManifestIterator:
    return LazyIndexedManifestIterator(Texts(shards), seed is not None, seed or 0, **options)


def chained(shards: dict[str, int], seed: int | None = 3, **options: Any) -> LazyMapper:
    first, second = ({name: shards[name] for name in shards if (name < "d") is is_first} for is_first in (True, False))
    chain = LazyIteratorChain(samples(first), samples(second), shuffle_iters=True, seed=seed or 0, **options)
    return LazyMapper(chain, same)


def batches(source: Any, pack: bool = False, **options: Any) -> LazyLengthBatcher:
    return LazyLengthBatcher(source, max_tokens=MOST, pack=pack, span=8, **options)


SHARDS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 9), max_size=4)
ORDERS = st.sampled_from([{"seed": None}, {"seed": 3}, {"seed": 3, "window": 9}])


@given(SHARDS, st.lists(st.tuples(SHARDS, st.integers(0, 9)), min_size=1, max_size=3), ORDERS, st.booleans(), st.data())
def test_batches_that_were_left_come_first_and_then_those_of_what_is_new(
    shards: dict[str, int], passes: list[tuple[dict[str, int], int]], order: dict[str, Any], pack: bool, data: Any
) -> None:
    """Names are in order, so new shards are between the others."""
    made = data.draw(st.sampled_from([samples, chained]))
    shards = dict(sorted(shards.items()))
    node = batches(made(shards, **order), pack)
    due = list(batches(made(shards, **order), pack))
    taken = data.draw(st.integers(0, len(due)))
    came = list(islice(node, taken))
    assert came == due[:taken]
    due, has_begun = due[taken:], taken > 0
    for more, count in passes:
        fresh = {name: number for name, number in sorted(more.items()) if name not in shards}
        shards = dict(sorted({**fresh, **shards}.items()))
        extended = extended_state(again := batches(made(shards, **order), pack), stated(collect_state_dict(node)))
        due = [*due, *batches(made(fresh, **order), pack)] if has_begun else list(batches(made(shards, **order), pack))
        assert extended["state"]["units"] - extended["state"]["position"] == len(due)
        restore_state_dict(again, stated(extended))
        restore_state_dict(node := batches(made(shards, **order), pack), stated(collect_state_dict(again)))
        count = min(count, len(due))
        assert list(islice(node, count)) == due[:count]
        due, has_begun = due[count:], has_begun or count > 0
    state = stated(collect_state_dict(node))
    restore_state_dict(node := batches(made(shards, **order), pack), state)
    assert list(node) == due


OLD = {"b": 9, "c": 7}
NEW = {"a": 5, "b": 9, "c": 7, "d": 3}


def test_what_is_told_and_what_the_next_epoch_is() -> None:
    node, longer, ordinary = (batches(samples(shards)) for shards in (OLD, NEW, NEW))
    whole = list(batches(samples(OLD)))
    came = list(islice(node, 2))
    fresh = list(batches(samples({"a": 5, "d": 3})))
    with pytest.raises(UsageError, match=r"saved with data = .*extend=True"):
        restore_state_dict(batches(samples(NEW)), collect_state_dict(node))
    assert over(longer, collect_state_dict(node)) == (
        f"{len(whole) - 2} batches of the old order left, then {len(fresh)} new batches"
    )
    came += islice(longer, 3)
    state = collect_state_dict(longer)
    assert [make() for _, make in longer.seen(state["state"])] == came
    assert longer.progress(state["state"]) == (3, len(whole) - 2 + len(fresh))
    restore_state_dict(longer, state)
    came += longer
    assert came == [*whole, *fresh]
    list(ordinary)
    assert list(longer) == list(ordinary)


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_workers_and_loaders_share_what_comes(ranks: int) -> None:
    old = batches(samples(OLD), global_batch=2)
    list(islice(old, 2))
    extended = extended_state(whole := batches(samples(NEW), global_batch=2), stated(collect_state_dict(old)))
    restore_state_dict(whole, extended)
    due = list(whole)
    came: dict[int, list[Any]] = {}
    states = []
    for rank in range(ranks):
        part = batches(samples(NEW), rank=rank, world_size=ranks, global_batch=2, tail="drop")
        state = stated(extended)
        state["state"]["partition"] = None
        restore_state_dict(part, state)
        for worker in range(3):
            for number, batch in enumerate(share_of(part, worker, 3)):
                which = worker + number * ranks // 2 * 3
                came.setdefault(which, []).append(batch)
        list(islice(part, 2 // ranks))
        states.append(collect_state_dict(part))
    assert [batch for number in sorted(came) for batch in came[number]] == due[: len(due) // 2 * 2]
    restore_state_dict(one := batches(samples(NEW), global_batch=2, tail="drop"), merge_states(states))
    assert list(one) == due[2 : len(due) // 2 * 2]

    def loader(shards: dict[str, int]) -> BatchLoader:
        return BatchLoader(batches(samples(shards), global_batch=2), 2, 0, 1, 0, list, {})

    first, second, third = loader(OLD), loader(NEW), loader(NEW)
    assert [*chain.from_iterable(islice(first, 2))]
    with pytest.raises(UsageError, match="if only shards were added or removed, load_state_dict"):
        second.load_state_dict(first.state_dict())
    with pytest.warns(UserWarning, match="batches of the old order left"):
        second.load_state_dict(first.state_dict(), extend=True)
    assert list(islice(second, 2)) == due[:2]
    third.load_state_dict(stated(second.state_dict()))
    assert list(third) == due[2:]
    assert list(third) == list(LazyRepeater(batches(samples(NEW)), 2))[-len(list(batches(samples(NEW)))) :]


def test_what_cannot_go_on_says_what_to_do() -> None:
    node = batches(samples(NEW))
    list(islice(node, 2))
    state = collect_state_dict(node)
    with pytest.raises(UsageError, match=r"8 samples of shards that are gone, or .* put these shards back, or begin"):
        restore_state_dict(batches(samples(OLD)), state, extend=True)
    with pytest.raises(UsageError, match="saved with pack = False, here it is True"):
        restore_state_dict(batches(samples(NEW | {"e": 1}), pack=True), state, extend=True)
    mixed = batches(LazyMixture(samples(OLD), samples(OLD)))
    next(iter(mixed))
    with pytest.raises(UsageError, match="batches by length of a LazyMixture cannot go on over other shards: put"):
        restore_state_dict(batches(LazyMixture(samples(NEW), samples(OLD))), collect_state_dict(mixed), extend=True)
    told = over(batches(samples(NEW | {"e": 1})), collect_state_dict(batches(samples(NEW))))
    assert told == f"epoch 0 begins, and is one of all {len(list(batches(samples(NEW | {'e': 1}))))} batches"
    over(longer := batches(samples(NEW | {"e": 1})), state)
    damaged = stated(collect_state_dict(longer))
    for field in ("left", "new", "samples"):
        broken = stated(damaged)
        broken["state"]["stages"][-1][field] += 1
        with pytest.raises(FormatError):
            restore_state_dict(batches(samples(NEW | {"e": 1})), broken)
    del damaged["state"]["stages"][-1]["samples"]
    with pytest.raises(FormatError, match="growths of samples"):
        restore_state_dict(batches(samples(NEW | {"e": 1})), damaged)
