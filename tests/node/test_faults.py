"""Ten ways in which resuming went wrong elsewhere, each reproduced there; none may happen here."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from node.graphs import Things, leaf, numbers, odd, several, shuffled

from touchfs.core.errors import UsageError
from touchfs.core.token import from_json, to_json
from touchfs.node import (
    IteratorNode,
    LazyFilter,
    LazyFlattener,
    LazyIndexedManifestIterator,
    LazyIteratorChain,
    LazyIteratorMultiplexer,
    LazyMapper,
    LazyRepeater,
    LazyShuffler,
    LazySlicer,
    collect_state_dict,
    get_graph_origin,
    merge_states,
    restore_state_dict,
)
from touchfs.testing import check_restore


def saved(node: IteratorNode) -> Any:
    return from_json(to_json(collect_state_dict(node)))


def resumed(node: IteratorNode, state: Any) -> IteratorNode:
    restore_state_dict(node, state)
    return node


def test_1_a_restored_shuffle_buffer_does_not_spoil_the_next_repeat() -> None:
    make = lambda: LazyRepeater(LazyShuffler(leaf(12), 5), 3)  # noqa: E731
    whole = list(make())
    for taken in range(37):
        node = make()
        assert list(islice(node, taken)) == whole[:taken]
        assert list(resumed(make(), saved(node))) == whole[taken:]


def test_2_tokens_of_past_epochs_rebuild_their_items_after_later_ones() -> None:
    node = LazyRepeater(LazyShuffler(LazyFlattener(LazyMapper(shuffled(6), several)), 3), 2)
    items = [item for _ in range(3) for item in node]
    assert [node[get_graph_origin(item)] for item in items] == items


GRAPHS = {
    "leaf": shuffled,
    "chain": lambda: LazyIteratorChain(shuffled(), leaf(), shuffle_iters=True),
    "shuffler": lambda: LazyShuffler(shuffled(), 3),
    "mux": lambda: LazyIteratorMultiplexer(shuffled(), leaf(), stop_early=True),
    "repeater": lambda: LazyRepeater(shuffled(), 2),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_3_a_state_from_after_the_end_ends_once_and_begins_the_next_epoch(name: str) -> None:
    node, make = GRAPHS[name](), GRAPHS[name]
    epochs = [list(node) for _ in range(4)]
    again = make()
    for epoch in range(3):
        assert list(again) == epochs[epoch]
        restored = resumed(make(), saved(again))
        assert list(restored) == []
        assert list(restored) == epochs[epoch + 1]
        assert restored.state_dict()["epoch"] == epoch + 2


def test_3_before_the_end_was_seen_the_epoch_is_still_that_one() -> None:
    # The loop that is restored ends as the one that was saved would have: at once.
    node = shuffled()
    iterator = iter(node)
    for _ in range(7):
        next(iterator)
    restored = resumed(shuffled(), saved(node))
    assert list(restored) == list(iterator) == []
    assert list(restored) == list(node)


def test_4_a_shuffled_leaf_is_saved_before_the_first_item() -> None:
    node = shuffled()
    assert list(resumed(shuffled(), saved(node))) == list(node)


def test_5_a_mux_survives_json() -> None:
    make = lambda: LazyIteratorMultiplexer(numbers(), numbers(), weights=[0.1, 0.9])  # noqa: E731
    node = make()
    first = list(islice(node, 5))
    text = to_json(collect_state_dict(node))
    assert len(text) < 1500
    assert first + list(resumed(make(), from_json(text))) == list(make())


@pytest.mark.parametrize("kind", [LazyIteratorMultiplexer, LazyIteratorChain])
def test_6_one_node_in_two_places(kind: Any) -> None:
    def make() -> Any:
        same = shuffled(12)
        return kind(same, same)

    whole = list(make())
    assert len(whole) == 24
    for taken in range(25):
        node = make()
        first = list(islice(node, taken))
        assert first + list(resumed(make(), saved(node))) == whole


def test_6_two_iterators_of_one_node() -> None:
    node = shuffled()
    first, second = iter(node), iter(node)
    whole = list(shuffled())
    assert [next(first), next(second), next(first), next(second)] == [whole[0], whole[0], whole[1], whole[1]]
    next(first)
    assert node.state_dict()["position"] == 3
    next(second)
    next(second)
    assert node.state_dict()["position"] == 4


@pytest.mark.parametrize("member", [LazyFilter, LazyFlattener, LazySlicer])
def test_7_a_chain_takes_sources_without_a_length(member: Any) -> None:
    source = LazyMapper(leaf(6), several)
    without = {LazyFilter: lambda: LazyFilter(source, odd), LazyFlattener: lambda: LazyFlattener(source)}
    node = without.get(member, lambda: LazySlicer(source, 0, 2))()
    assert list(LazyIteratorChain(node, leaf(2))) == [*node, *leaf(2)]


def test_8_none_is_an_item_like_any_other() -> None:
    samples = [0, 1, 2, 3, None, 5, 6, None, 8, 9, 10]
    make = lambda: LazyShuffler(LazyIndexedManifestIterator(samples), 3)  # noqa: E731
    assert sorted(make(), key=str) == sorted(samples, key=str)
    check_restore(make)
    check_restore(lambda: LazyIteratorMultiplexer(make(), make()))


@pytest.mark.parametrize("shuffle", [False, True])
def test_9_a_state_of_another_dataset_is_refused(shuffle: bool) -> None:
    def make(count: int = 7, fingerprint: str = "one") -> IteratorNode:
        return LazyMapper(LazyIndexedManifestIterator(Things(count, fingerprint), shuffle=shuffle), repr)

    node = make()
    next(iter(node))
    state = saved(node)
    with pytest.raises(UsageError, match=r"state\.source .* length = 7, here it is 8"):
        restore_state_dict(make(8), state)
    with pytest.raises(UsageError, match="fingerprint = 'one', here it is 'two'"):
        restore_state_dict(make(7, "two"), state)


def test_10_the_world_size_may_change() -> None:
    make = lambda rank, world_size: shuffled(20, rank=rank, world_size=world_size)  # noqa: E731
    old = [make(rank, 4) for rank in range(4)]
    seen = [thing.value for rank, node in enumerate(old) for thing in islice(node, rank)]
    merged = merge_states([saved(node) for node in old])
    seen += [thing.value for rank in range(3) for thing in resumed(make(rank, 3), merged)]
    assert sorted(seen) == list(range(20))
