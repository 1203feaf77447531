"""Steps over a sequence of samples: map, filter and batch. As a graph of nodes, and without a filter as a sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from touchfs.node.batch.batcher import LazyBatcher
from touchfs.node.transform.filter import LazyFilter
from touchfs.node.transform.mapper import LazyMapper

Kind = Literal["map", "filter", "batch"]
_NODES = {"map": LazyMapper, "filter": LazyFilter, "batch": LazyBatcher}


@dataclass(frozen=True, slots=True)
class ItemStep:
    """A step of one kind. `argument` is the function of `map` and `filter`, and the size of `batch`."""

    kind: Kind
    argument: Any


@dataclass(frozen=True, slots=True)
class ItemSteps:
    """Steps in the order in which they are applied."""

    steps: tuple[ItemStep, ...] = ()

    def then(self, kind: Kind, argument: Any) -> ItemSteps:
        """These steps, and then another one."""
        return ItemSteps((*self.steps, ItemStep(kind, argument)))

    def __bool__(self) -> bool:
        return bool(self.steps)

    @property
    def are_maps(self) -> bool:
        """True if each item is made of one sample, in their order."""
        return all(step.kind == "map" for step in self.steps)

    @property
    def have_batches(self) -> bool:
        """True if an item may be made of several samples."""
        return any(step.kind == "batch" for step in self.steps)

    def graph(self, leaf: Any) -> Any:
        """The root of a graph of nodes that applies the steps to the items of a leaf."""
        node = leaf
        for step in self.steps:
            node = _NODES[step.kind](node, step.argument)
        return node

    def lengths(self, samples: int) -> list[int]:
        """The number of items before the first step, which is that of the samples, and after each step.

        Raises TypeError if a filter is among the steps.
        """
        lengths = [samples]
        for step in self.steps:
            if step.kind == "filter":
                raise TypeError(
                    "a filtered set has no length and no i-th item; use where(...) for what is known of samples, or "
                    "touchfs.torch.NodeIterableDataset(ds) for a DataLoader"
                )
            lengths.append(-(-lengths[-1] // step.argument) if step.kind == "batch" else lengths[-1])
        return lengths

    def item(self, position: int, lengths: Sequence[int], sample: Callable[[int], Any]) -> Any:
        """The item at a position from 0 on, made of the samples that `sample` returns by their positions."""
        return self._item(len(self.steps), position, lengths, sample)

    def _item(self, count: int, position: int, lengths: Sequence[int], sample: Callable[[int], Any]) -> Any:
        """The item at a position after the first `count` steps."""
        if not count:
            return sample(position)
        step = self.steps[count - 1]
        if step.kind == "map":
            return step.argument(self._item(count - 1, position, lengths, sample))
        first = position * step.argument
        last = min(first + step.argument, lengths[count - 1])
        return [self._item(count - 1, each, lengths, sample) for each in range(first, last)]

    def mapped(self, samples: Iterable[Any]) -> Iterable[Any]:
        """The items of these samples. All steps must be maps."""
        for step in self.steps:
            samples = map(step.argument, samples)
        return samples

    def __str__(self) -> str:
        return "".join(f".{step.kind}({step.argument!r})" for step in self.steps)
