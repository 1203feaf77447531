"""check_restore catches what breaks nodes: each of these is broken in one way."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
from node.graphs import Doubler, Thing, leaf, shuffled

from touchfs.core.errors import UsageError
from touchfs.core.token import State
from touchfs.node import (
    IteratorNode,
    LazyGlobalShuffle,
    LazyIndexedManifestIterator,
    LazyIteratorMultiplexer,
    LazyMapper,
    LazyShuffler,
    attach_graph_origin,
    get_graph_origin,
)
from touchfs.node.core.ranks import Ranks
from touchfs.testing import check_merge, check_restore, check_shares


class PositionInTheNode(Doubler):
    """As nodes often are: the position is the node's, so two iterators share it."""

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self.position = 0

    def __iter__(self) -> Any:
        for token in range(self.position, 7):
            self.position = token + 1
            yield self[token]
        self.position = 0

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


class Forgets(Doubler):
    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class ForgetsTheEpoch(Doubler):
    def load_state_dict(self, state: dict[str, Any]) -> None:
        source = {name: value for name, value in state["source"].items() if name != "ended"}
        super().load_state_dict({"source": {**source, "epoch": 0}})


class SkipsOne(Doubler):
    def load_state_dict(self, state: dict[str, Any]) -> None:
        position = min(state["source"]["position"] + 1, 7)
        super().load_state_dict({"source": {**state["source"], "position": position}})


class LosesTokens(Doubler):
    def __iter__(self) -> Any:
        return (Thing(item) for item in self.source)


class WrongTokens(Doubler):
    def __iter__(self) -> Any:
        for item in self.source:
            yield attach_graph_origin([item, item], (get_graph_origin(item) + 1) % 7)  # type: ignore[operator]


class NotOfTheItemAlone(Doubler):
    def __getitem__(self, token: Any) -> Any:
        return attach_graph_origin([self.source[token], random.random()], token)


class GrowingState(Doubler):
    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        return state | ({"begun": True} if state["source"]["position"] else {})


BROKEN: list[tuple[Callable[[Any], Any], str]] = [
    (PositionInTheNode, "restored after the end of epoch 0"),
    (Forgets, "restored after 1 items"),
    (ForgetsTheEpoch, "restored .* epoch"),
    (SkipsOne, "the state differs"),
    (LosesTokens, "without a token"),
    (WrongTokens, "rebuilds"),
    (NotOfTheItemAlone, "rebuilds"),
    (GrowingState, "other fields"),
]


@pytest.mark.parametrize(("kind", "why"), BROKEN)
def test_broken_nodes_are_caught(kind: Callable[[Any], Any], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        check_restore(lambda: kind(shuffled()))


def test_a_graph_that_is_made_otherwise_each_time_is_caught() -> None:
    with pytest.raises((AssertionError, UsageError)):
        check_restore(lambda: leaf(shuffle=True, seed=random.randrange(10**9)))


def test_what_says_that_it_cannot_be_saved_is_not_checked() -> None:
    with pytest.raises(UsageError, match="nothing to check"):
        check_restore(lambda: type("Silent", (Doubler,), {"is_checkpointable": False})(leaf()))
    with pytest.raises(UsageError, match="not checkpointable"):
        check_restore(lambda: LazyIteratorMultiplexer(leaf(), [1, 2]))


def test_items_may_need_their_own_comparison() -> None:
    class Odd:
        def __init__(self, value: Any) -> None:
            self.value = value

    make = lambda: LazyMapper(shuffled(), Odd)  # noqa: E731
    with pytest.raises(AssertionError):
        check_restore(make)
    check_restore(make, equal=lambda one, other: one.value == other.value)
    assert len(list(islice(make(), 3))) == 3


def part(rank: int, world_size: int) -> LazyIndexedManifestIterator:
    return LazyIndexedManifestIterator(range(7), rank=rank, world_size=world_size)


class MergesToTheStart(LazyMapper):
    @classmethod
    def merge(cls, ranks: Ranks) -> State:
        return {"source": {**ranks.source(), "stages": []}}


class TakesAllAlways(Doubler):
    def for_worker(self, worker: int, workers: int) -> IteratorNode:
        return self


class TakesNothing(Doubler):
    def for_worker(self, worker: int, workers: int) -> IteratorNode:
        return TakesNothing(leaf(0))


def test_shares_that_are_disjoint_and_complete_pass() -> None:
    for make in (shuffled, lambda: Doubler(shuffled()), lambda: LazyGlobalShuffle(LazyMapper(leaf(), repr), 3)):
        check_shares(make)


def test_shares_that_overlap_or_miss_items_are_found() -> None:
    with pytest.raises(AssertionError, match=r"the shares of 2 workers yield .* too often"):
        check_shares(lambda: TakesAllAlways(leaf()))
    with pytest.raises(AssertionError, match="the shares of 2 workers do not yield"):
        check_shares(lambda: TakesNothing(leaf()))


def test_ranks_that_go_on_with_others_pass() -> None:
    check_merge(lambda rank, world_size: LazyMapper(part(rank, world_size), str))
    check_merge(lambda rank, world_size: Doubler(part(rank, world_size)))
    check_merge(lambda rank, world_size: LazyGlobalShuffle(leaf(), 3, rank=rank, world_size=world_size))


def test_ranks_that_go_on_wrongly_or_not_at_all_are_found() -> None:
    with pytest.raises(AssertionError, match="2 ranks, resumed by 1, yield '1' too often"):
        check_merge(lambda rank, world_size: MergesToTheStart(part(rank, world_size), str))
    with pytest.raises(UsageError, match="a LazyShuffler cannot resume with another number of ranks"):
        check_merge(lambda rank, world_size: LazyShuffler(part(rank, world_size), 3))
