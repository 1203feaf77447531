"""The states of one node on all ranks, which `PairNode.merge` makes one position of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from touchfs.core.errors import UsageError
from touchfs.core.token import State
from touchfs.node.core.saved import Saved


@dataclass(frozen=True, slots=True)
class Ranks:
    """The states of one node, of the class `kind`, on all ranks.

    Each is of `epoch` or of the next one. With `lock_step` there is one state, and all ranks are at its position.
    `merged` merges the states of a source.
    """

    kind: str
    states: list[Saved]
    epoch: int
    lock_step: bool
    merged: Callable[[list[Saved]], State]

    @property
    def where(self) -> str:
        """The path of the node in the state of the graph."""
        return self.states[0].where

    def in_epoch(self) -> list[Saved]:
        """Return the states of `epoch`."""
        return [state for state in self.states if state.integer("epoch") == self.epoch]

    def source(self) -> State:
        """Return the merged state of the node's only source."""
        return self.merged([state.child("source") for state in self.states])

    def sources(self) -> list[State]:
        """Return the merged states of the node's sources."""
        children = [state.children("sources") for state in self.states]
        if len(set(map(len, children))) > 1:
            raise UsageError(f"{self.where}: the ranks' states have different numbers of sources")
        return [self.merged(list(column)) for column in zip(*children, strict=True)]

    def refuse(self) -> NoReturn:
        """Raise UsageError: states of this node cannot be merged."""
        how = "with cursor='global'" if self.lock_step else "with another number of ranks"
        raise UsageError(f"{self.where}: a {self.kind} cannot resume {how}: its state is one rank's own")

    def refuse_lock_step(self) -> None:
        """Raise UsageError with `lock_step`: the ranks of this node are not in step."""
        if self.lock_step:
            self.refuse()
