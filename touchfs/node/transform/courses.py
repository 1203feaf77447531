"""The course of a source of a mixture: its samples by number, through its epochs one after the other.

After the mixture has gone on over other shards, a course goes on in the middle of an epoch of the source, as that would
alone: with what is left, then with what is new, and then with whole epochs. Where that was is in all later states.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.token import State
from touchfs.node.core.iterator_node import kind_of
from touchfs.node.core.saved import Saved
from touchfs.node.order.epoch import AnyStage, read_stages, size_after
from touchfs.node.order.ordered_node import OrderedNode
from touchfs.node.order.partition import KEEP
from touchfs.node.order.remainder import Stage


@dataclass(frozen=True, slots=True)
class Start:
    """A source has had `number` samples, and goes on in `epoch`, with what `stages` left of it."""

    number: int
    epoch: int
    stages: tuple[AnyStage, ...] = ()

    def as_json(self) -> State:
        """Return the fields as a state holds them."""
        return {"number": self.number, "epoch": self.epoch, "stages": [stage.as_json() for stage in self.stages]}


@dataclass(frozen=True, slots=True)
class Since:
    """Where a mixture went on over other shards: in `epoch`, which `begins` at a position of the schedule, and has
    `length` positions. Its sources go on from `starts`.
    """

    epoch: int
    begins: int
    length: int
    starts: tuple[Start, ...]

    @property
    def came(self) -> int:
        """How many samples of the mixture had come."""
        return sum(start.number for start in self.starts)

    def as_json(self) -> State:
        """Return the fields as a state holds them."""
        starts = [start.as_json() for start in self.starts]
        return {"epoch": self.epoch, "begins": self.begins, "length": self.length, "sources": starts}


def read_since(saved: Saved, sources: int) -> Since | None:
    """Read where a mixture of so many sources went on, if it did. Raises FormatError."""
    if saved.fresh or not saved.has("since"):
        return None
    since = saved.child("since")
    starts = tuple(
        Start(start.integer("number"), start.integer("epoch"), tuple(read_stages(start)))
        for start in since.children("sources", sources)
    )
    read = Since(since.integer("epoch"), since.integer("begins"), since.integer("length"), starts)
    if not read.begins <= read.came <= read.begins + read.length:
        raise FormatError(f"{since.where} has other numbers of samples than its epoch: the state is damaged")
    return read


class Course:
    """The samples of the source whose order is that of `node`, from a start on. Raises as `OrderedNode.left_of`."""

    def __init__(self, node: OrderedNode, start: Start) -> None:
        self._node, self._start = node, start
        self._left = node.left_of(start.epoch, start.stages)
        self._size = node.order.size

    @property
    def left(self) -> int:
        """How many samples are left of the epoch that it starts in."""
        return self._left.size

    def at(self, numbers: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], int]]:
        """Yield the samples of each epoch: which of the `numbers` they have, their ordinals, and the epoch.

        Raises UsageError for numbers before the start.
        """
        inside = numbers - self._start.number
        if (inside < 0).any():
            raise UsageError("the sources of the mixture have other shards since: it is not known what came before")
        behind = inside - self._left.size
        epochs = np.where(behind < 0, self._start.epoch, self._start.epoch + 1 + behind // self._size)
        own = np.where(behind < 0, inside, behind % self._size)
        for epoch in np.unique(epochs).tolist():
            places = np.flatnonzero(epochs == epoch)
            whole = self._left if epoch == self._start.epoch else self._node.order.whole(epoch)
            yield places, whole.ordinals(own[places]), epoch


def next_start(node: OrderedNode, saved: Saved, start: Start, number: int, repeats: bool) -> tuple[Start, int]:
    """Return where a source, which had a `start` over the data in its `saved` description, goes on after `number`
    samples over the data of `node`, and how many samples more its epoch has now than it would have had.

    Raises as `OrderedNode.extended`.
    """
    config = saved.child("config")
    length, inside = config.integer("length"), number - start.number
    epoch, stages, size = start.epoch, list(start.stages), size_after(config.integer("length"), start.stages)
    if inside < 0 or (inside and not length):
        raise FormatError(f"{saved.where} has had fewer samples than before: the state is damaged")
    if repeats and inside > size:
        passes, inside = divmod(inside - size - 1, length)
        epoch, inside, stages, size = epoch + 1 + passes, inside + 1, [], length
    if not node.datasets() and config.fields() != node.config():
        raise UsageError(
            f"{saved.where}: a source that is a {kind_of(node)} itself is over other shards: put the old ones back, or "
            "begin without the state"
        )
    before = {
        "node": kind_of(node),
        "config": config.fields(),
        "epoch": epoch,
        "position": inside,
        "partition": None,
        "stages": [stage.as_json() for stage in stages],
    }
    after = Saved(node.extended(Saved(before, saved.where)), saved.where)
    stages = read_stages(after)
    if position := after.integer("position"):
        stages.append(Stage("stride", KEEP, (position,)))
    begun = Start(number, epoch, tuple(stages))
    return begun, Course(node, begun).left - (size - inside)
