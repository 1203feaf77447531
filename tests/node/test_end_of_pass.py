"""The end of a pass is not the beginning of the next one, for whoever has saved it."""

import copy
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

import lhotse
import pytest
from lhotse.dataset.sampling import DynamicBucketingSampler, DynamicCutSampler
from numpy.random import default_rng

from touchfs.core.errors import FormatError
from touchfs.core.token import from_json, to_json
from touchfs.node import IteratorNode, LazyIndexedManifestIterator, LazyIteratorChain, LazyMapper, merge_states
from touchfs.node.core.origin import attach_graph_origin, get_graph_origin
from touchfs.node.graph.state import collect_state_dict, restore_state_dict

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:lhotse")


class Ahead(IteratorNode):
    """A node of a user's own, which knows no epochs: it takes items of its source before it yields them."""

    is_checkpointable = is_indexed = has_constant_time_access = True

    def __init__(self, source: Any, ahead: int = 3) -> None:
        self.source = source
        self.ahead = ahead
        self.buffer: deque[Any] = deque()
        self.is_restored = False

    def __iter__(self) -> Iterator[Any]:
        if not self.is_restored:
            self.buffer.clear()
        self.is_restored = False
        for item in self.source:
            self.buffer.append(item)
            if len(self.buffer) > self.ahead:
                yield self.buffer.popleft()
        while self.buffer:
            yield self.buffer.popleft()

    def __getitem__(self, token: Any) -> Any:
        return attach_graph_origin(self.source[token], token)

    def state_dict(self) -> dict[str, Any]:
        return {"source": self.source.state_dict(), "buffer": [get_graph_origin(item) for item in self.buffer]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.source.load_state_dict(state["source"])
        self.buffer = deque(self[token] for token in state["buffer"])
        self.is_restored = True


class Number(int):
    """An integer that can carry a token."""


def numbers(count: int = 7) -> LazyMapper:
    return LazyMapper(LazyIndexedManifestIterator(list(range(count)), shuffle=True, seed=2), Number)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Ahead(numbers()),
        lambda: Ahead(Ahead(numbers()), 2),
        lambda: Ahead(LazyIteratorChain(numbers(), numbers(3))),
        lambda: LazyIteratorChain(Ahead(numbers()), Ahead(numbers(2))),
    ],
)
def test_a_node_that_holds_items_back_after_its_source_has_ended(make: Any) -> None:
    epochs = [list(node) for node in [make()] for _ in range(3)]
    assert len(set(map(tuple, epochs))) == 3
    for taken in [*range(len(epochs[0]) + 1), None]:
        saved, restored = make(), make()
        assert list(islice(saved, taken)) == epochs[0][:taken]
        restore_state_dict(restored, from_json(to_json(collect_state_dict(saved))))
        left = [] if taken is None else epochs[0][taken:]
        assert [list(restored) for _ in range(3)] == [left, *epochs[1:]], taken


def test_states_of_before_begin_the_next_epoch() -> None:
    """They did not tell that the pass had ended."""
    node, again = numbers(), numbers()
    first, state = list(node), collect_state_dict(node)
    del state["state"]["ended"]
    restore_state_dict(again, state)
    assert list(again) == list(node) != first


def test_ranks_that_have_ended_end_once_when_they_are_merged() -> None:
    def rank(number: int, count: int) -> LazyIndexedManifestIterator:
        return LazyIndexedManifestIterator(list(range(9)), shuffle=True, seed=1, rank=number, world_size=count)

    old, new = [rank(number, 2) for number in range(2)], rank(0, 1)
    assert sorted(item for node in old for item in node) == list(range(9))
    restore_state_dict(new, merge_states(list(map(collect_state_dict, old))))
    assert (list(new), sorted(new)) == ([], list(range(9)))


@pytest.mark.parametrize(("ended", "epoch"), [(True, 0), (False, 1), (1, 1), (None, 1)])
def test_a_damaged_end(ended: Any, epoch: int) -> None:
    node = numbers()
    state = collect_state_dict(node)
    state["state"] |= {"ended": ended, "epoch": epoch}
    with pytest.raises(FormatError, match="damaged"):
        restore_state_dict(node, state)


class OfLhotse(LazyIndexedManifestIterator, lhotse.lazy.IteratorNode):  # type: ignore[misc]
    """Lhotse takes nodes of its own class alone."""


SAMPLERS = {
    "bucketing": lambda cuts: DynamicBucketingSampler(
        cuts, max_duration=60, num_buckets=3, buffer_size=30, shuffle=True, quadratic_duration=20
    ),
    "dynamic": lambda cuts: DynamicCutSampler(cuts, max_cuts=4, shuffle=True, shuffle_buffer_size=20),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_of_lhotse_over_our_leaf(name: str) -> None:
    """They hold cuts back. At each batch of an epoch, the rest of it and the next one are as without a restart."""
    durations = default_rng(1).gamma(4, 2, 60).round(3)
    given = [lhotse.MonoCut(f"cut-{i:02}", 0, float(d), 0) for i, d in enumerate(durations)]

    def sampler() -> Any:
        return SAMPLERS[name](lhotse.CutSet(OfLhotse(given)))

    def ids(batches: Any) -> list[list[str]]:
        return [[cut.id for cut in batch] for batch in batches]

    def second(sampler: Any) -> list[list[str]]:
        sampler.set_epoch(1)
        return ids(sampler)

    whole = sampler()
    epochs = [ids(whole), second(whole)]
    assert sorted(cut for batch in epochs[0] for cut in batch) == [cut.id for cut in given]
    for taken in range(len(epochs[0]) + 1):
        saved, restored = sampler(), sampler()
        assert ids(islice(iter(saved), taken)) == epochs[0][:taken]
        restored.load_state_dict(copy.deepcopy(saved.state_dict()))
        assert ids(restored) == epochs[0][taken:], taken
        assert second(restored) == epochs[1], taken
