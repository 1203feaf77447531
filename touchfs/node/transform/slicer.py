"""A slicer: every n-th item. Skipped items are not made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from touchfs.core.errors import UsageError
from touchfs.core.token import State
from touchfs.node.core.iteration import Pair
from touchfs.node.core.lhotse_names import also_named
from touchfs.node.core.saved import Saved
from touchfs.node.core.transform import TransformIteration, TransformNode


class LazySlicer(TransformNode):
    """Every `n`-th item of `source`, from number `k` (0 to n - 1) on. Tokens are those of the source.

    Raises UsageError unless 0 <= k < n.
    """

    @also_named(iterator="source")
    def __init__(self, source: Any, k: int, n: int) -> None:
        if not 0 <= k < n:
            raise UsageError(f"there is no slice {k} of {n}: slices are 0 to n - 1")
        super().__init__(source)
        self.k = k
        self.n = n

    def iteration(self, epoch: int, saved: Saved) -> SlicerIteration:
        return SlicerIteration(self, epoch, saved)

    def config(self) -> State:
        return {"k": self.k, "n": self.n}


class SlicerIteration(TransformIteration):
    """`phase` is the number of items taken from the source, modulo n."""

    node: LazySlicer

    def __init__(self, node: LazySlicer, epoch: int, saved: Saved) -> None:
        super().__init__(node, epoch, saved)
        self.phase = saved.integer("phase", node.n - 1)

    def walk(self) -> Iterator[Pair]:
        k, n = self.node.k, self.node.n
        for pair in self.source.pairs:
            taken = self.phase == k
            self.phase = (self.phase + 1) % n
            if taken:
                yield pair

    def position(self) -> State:
        return {**super().position(), "phase": self.phase}
