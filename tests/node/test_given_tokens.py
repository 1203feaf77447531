"""One token for two different items is noticed wherever both are at hand; the same item may come twice."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from node.graphs import Doubler, Thing, leaf

from touchfs.core.errors import UsageError
from touchfs.node import (
    BucketingSampler,
    DynamicSampler,
    LazyBatcher,
    LazyFlattener,
    LazyIteratorMultiplexer,
    LazyMapper,
    LazyPrefetcher,
    LazyRepeater,
    LazyShuffler,
    attach_graph_origin,
    get_graph_origin,
)
from touchfs.testing import check_restore


class Halves(Doubler):
    """Two items of each one, with its token."""

    def __init__(self, source: Any, half: Callable[[Any, int], Any]) -> None:
        super().__init__(source)
        self.half = half

    def __iter__(self) -> Iterator[Any]:
        for item in self.source:
            yield from (attach_graph_origin(self.half(item, which), get_graph_origin(item)) for which in range(2))

    def __getitem__(self, token: Any) -> Any:
        return attach_graph_origin(self.half(self.source[token], 0), token)


class HalvesApart(Halves):
    """All first halves, then all second ones."""

    def __iter__(self) -> Iterator[Any]:
        for which in range(2):
            for item in self.source:
                yield attach_graph_origin(self.half(item, which), get_graph_origin(item))


def seconds(item: Any) -> float:
    return 1.0


ABOVE: dict[str, Callable[[Any], Any]] = {
    "shuffler": lambda node: LazyShuffler(node, 20),
    "bucketing sampler": lambda node: BucketingSampler(node, max_items=2, num_buckets=1, duration=seconds),
    "dynamic sampler": lambda node: DynamicSampler(node, max_items=20),
    "batcher": lambda node: LazyBatcher(node, 20),
    "shuffler of a mapper": lambda node: LazyShuffler(LazyMapper(node, repr), 20),
    "bucketing sampler of a mux": lambda node: BucketingSampler(
        LazyIteratorMultiplexer(node, leaf(2)), max_items=3, duration=seconds
    ),
}
TWO_ITEMS: dict[str, Callable[[Any, int], Any]] = {
    "things": lambda item, which: Thing((item, which)),
    "lists": lambda item, which: [item, which],
    "texts": lambda item, which: f"{item} {which}",
    "arrays": lambda item, which: {"audio": np.full(3, which)},
    "tensors": lambda item, which: {"audio": torch.full((3,), which)},
    "arrays of other shapes": lambda item, which: [np.zeros(which)],
    "plain objects": lambda item, which: Plain(np.full(3, which)),
}


class Plain:
    """Compared by identity."""

    def __init__(self, audio: Any) -> None:
        self.audio = audio


@dataclass
class Data:
    text: str
    audio: Any
    score: float = float("nan")


@pytest.mark.parametrize("kind", [Halves, HalvesApart])
@pytest.mark.parametrize("above", ABOVE)
@pytest.mark.parametrize("half", TWO_ITEMS)
def test_one_token_for_two_items_is_an_error(half: str, above: str, kind: Any) -> None:
    node = ABOVE[above](kind(leaf(5), TWO_ITEMS[half]))
    with pytest.raises(UsageError, match=f"{kind.__name__} gives two different items the token"):
        list(node)


@pytest.mark.parametrize("kind", [Halves, HalvesApart])
def test_so_it_is_of_items_that_have_no_weak_references(kind: Any) -> None:
    def half(item: Any, which: int) -> Any:
        return (item, which)

    for above in (ABOVE["shuffler"], ABOVE["batcher"]):
        with pytest.raises(UsageError, match="two different items the token"):
            list(above(kind(leaf(5), half)))
    with pytest.raises(UsageError, match="two different items the token"):
        list(ABOVE["bucketing sampler"](Halves(leaf(5), half)))


SAME_ITEM: dict[str, Callable[[Any, int], Any]] = {
    "itself": lambda item, which: item,
    "things": lambda item, which: Thing(item),
    "numbers": lambda item, which: item.value,
    "tuples": lambda item, which: (item.value, float("nan")),
    "arrays": lambda item, which: {"audio": np.array([1.0, np.nan]), "text": "a"},
    "tensors": lambda item, which: [torch.tensor([1.0, torch.nan])],
    "plain objects": lambda item, which: Plain(Plain(np.arange(3))),
    "dataclasses": lambda item, which: Data("a", [np.arange(3)], float("nan")),
    "objects that tell nothing": lambda item, which: [object(), item.value],
}


@pytest.mark.parametrize("kind", [Halves, HalvesApart])
@pytest.mark.parametrize("item", SAME_ITEM)
def test_the_same_item_may_come_twice(item: str, kind: Any) -> None:
    for above in ABOVE.values():
        assert list(above(kind(leaf(5), SAME_ITEM[item])))


def test_the_same_item_twice_is_saved_and_resumed() -> None:
    class Oversampled(Doubler):
        """The repeats of an item have one token."""

        def __iter__(self) -> Iterator[Any]:
            for item in self.source:
                yield attach_graph_origin([item, item], get_graph_origin(item)[1])  # type: ignore[index]

        def __getitem__(self, token: Any) -> Any:
            return super().__getitem__((0, token))

    for name in ("shuffler", "bucketing sampler", "batcher"):
        check_restore(lambda: ABOVE[name](Oversampled(LazyRepeater(leaf(4), 2))))  # noqa: B023


def test_nothing_is_kept_alive_but_the_last_item() -> None:
    alive = weakref.WeakSet[Any]()

    def half(item: Any, which: int) -> Any:
        made = Plain(np.zeros(3))
        alive.add(made)
        return made

    most = 0
    for _ in LazyPrefetcher(LazyFlattener(LazyBatcher(Halves(leaf(200), half), 2)), 2, 1):
        gc.collect(0)
        most = max(most, len(alive))
    assert most < 20
