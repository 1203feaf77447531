"""Steps over a sequence of samples: map, filter, batch, prefetch.

They make a graph of nodes, for iterating, and without a filter a function from positions to items.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NoReturn, Protocol

from touchfs.node.batch.batcher import LazyBatcher
from touchfs.node.transform.filter import LazyFilter
from touchfs.node.transform.mapper import LazyMapper
from touchfs.node.transform.prefetcher import LazyPrefetcher, check_numbers, make_ahead
from touchfs.posix.threads import run_at_once

# A function that returns the item at a position from 0 on.
ItemAt = Callable[[int], Any]


class ItemStep(Protocol):
    """A step."""

    @property
    def is_item_by_item(self) -> bool:
        """True if the step makes one item of each, in their order."""
        ...

    def node(self, source: Any) -> Any:
        """The node that applies the step to the items of `source`."""
        ...

    def length(self, before: int) -> int:
        """The number of items after the step, if there are `before` items before it. Raises TypeError of a filter."""
        ...

    def item_at(self, item_before: ItemAt, before: int) -> ItemAt:
        """The items after the step, made of the `before` items before it."""
        ...


@dataclass(frozen=True, slots=True)
class MapStep:
    """`function(item)` in the place of each item."""

    function: Callable[[Any], Any]
    is_item_by_item: ClassVar[bool] = True

    def node(self, source: Any) -> LazyMapper:
        return LazyMapper(source, self.function)

    def length(self, before: int) -> int:
        return before

    def item_at(self, item_before: ItemAt, before: int) -> ItemAt:
        function = self.function
        return lambda position: function(item_before(position))

    def __str__(self) -> str:
        return f"map({self.function!r})"


@dataclass(frozen=True, slots=True)
class FilterStep:
    """The items for which `predicate(item)` is true."""

    predicate: Callable[[Any], Any]
    is_item_by_item: ClassVar[bool] = False

    def node(self, source: Any) -> LazyFilter:
        return LazyFilter(source, self.predicate)

    def length(self, before: int) -> NoReturn:
        raise TypeError(
            "a filtered set has no length and no i-th item; use where(...) for what is known of samples, or "
            "touchfs.torch.NodeIterableDataset(ds) for a DataLoader"
        )

    def item_at(self, item_before: ItemAt, before: int) -> NoReturn:
        self.length(before)

    def __str__(self) -> str:
        return f"filter({self.predicate!r})"


@dataclass(frozen=True, slots=True)
class BatchStep:
    """Lists of `size` items; the last one may be shorter."""

    size: int
    is_item_by_item: ClassVar[bool] = False

    def node(self, source: Any) -> LazyBatcher:
        return LazyBatcher(source, self.size)

    def length(self, before: int) -> int:
        return -(-before // self.size)

    def item_at(self, item_before: ItemAt, before: int) -> ItemAt:
        size = self.size
        return lambda position: list(map(item_before, range(position * size, min((position + 1) * size, before))))

    def __str__(self) -> str:
        return f"batch({self.size})"


@dataclass(frozen=True, slots=True)
class PrefetchStep:
    """The same items. An iteration makes the next `ahead` of them, in `threads` threads.

    Raises UsageError for numbers that are no integers from 1 on.
    """

    ahead: int
    threads: int
    is_item_by_item: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_numbers(self.ahead, self.threads)

    def node(self, source: Any) -> LazyPrefetcher:
        return LazyPrefetcher(source, self.ahead, self.threads)

    def length(self, before: int) -> int:
        return before

    def item_at(self, item_before: ItemAt, before: int) -> ItemAt:
        return item_before

    def __str__(self) -> str:
        return f"prefetch({self.ahead}, {self.threads})"


@dataclass(frozen=True, slots=True)
class ItemSteps:
    """Steps in the order in which they are applied."""

    steps: tuple[ItemStep, ...] = ()

    def then(self, step: ItemStep) -> ItemSteps:
        """These steps, and then another one."""
        return ItemSteps((*self.steps, step))

    def __bool__(self) -> bool:
        return bool(self.steps)

    @property
    def are_item_by_item(self) -> bool:
        """True if each item is made of one sample, in their order."""
        return all(step.is_item_by_item for step in self.steps)

    @property
    def keep_samples(self) -> bool:
        """True if the items are the samples themselves."""
        return all(isinstance(step, PrefetchStep) for step in self.steps)

    @property
    def have_batches(self) -> bool:
        """True if an item may be made of several samples."""
        return any(isinstance(step, BatchStep) for step in self.steps)

    def graph(self, leaf: Any) -> Any:
        """The root of a graph of nodes that applies the steps to the items of a leaf."""
        node = leaf
        for step in self.steps:
            node = step.node(node)
        return node

    def length(self, samples: int) -> int:
        """The number of items that are made of so many samples. Raises TypeError if a filter is among the steps."""
        for step in self.steps:
            samples = step.length(samples)
        return samples

    def item_at(self, sample_at: ItemAt, samples: int) -> ItemAt:
        """The items that are made of so many samples. Raises TypeError as `length`."""
        item_at = sample_at
        for step in self.steps:
            item_at, samples = step.item_at(item_at, samples), step.length(samples)
        return item_at

    def items(self, item_at: ItemAt, positions: Sequence[int]) -> list[Any]:
        """The items at these positions, made in threads if a step says so."""
        threads = max((step.threads for step in self.steps if isinstance(step, PrefetchStep)), default=0)
        if not threads:
            return list(map(item_at, positions))
        return run_at_once(make_ahead, [partial(item_at, position) for position in positions], threads)

    def __str__(self) -> str:
        return "".join(f".{step}" for step in self.steps)
