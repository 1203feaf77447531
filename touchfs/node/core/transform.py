"""The base classes of nodes over one source."""

from __future__ import annotations

from typing import Any

from touchfs.core.errors import UsageError
from touchfs.core.token import State, Token
from touchfs.node.core.foreign import begin, end_of_pass, epoch_before, is_indexed, maker, obstacle
from touchfs.node.core.iteration import Iteration
from touchfs.node.core.iterator_node import kind_of, resolve_iterator_source, supports_graph_restore
from touchfs.node.core.lhotse_names import also_named
from touchfs.node.core.pair_node import PairNode
from touchfs.node.core.saved import Saved


class TransformNode(PairNode):
    """A node over one source. It promises what its source promises, and passes its tokens on unless overridden."""

    @also_named(iterator="source")
    def __init__(self, source: Any) -> None:
        self.source = resolve_iterator_source(source)

    def obstacle(self) -> str | None:
        return obstacle(self.source)

    @property
    def is_indexed(self) -> bool:
        return is_indexed(self.source)

    @property
    def has_constant_time_access(self) -> bool:
        return supports_graph_restore(self.source)

    def make(self, token: Token) -> Any:
        return maker(self.source)(token)

    def end_of_pass(self, saved: Saved) -> State:
        source = end_of_pass(self.source, saved.child("source"))
        return {**saved.fields(), "epoch": epoch_before(saved), "source": source}


class BufferingNode(TransformNode):
    """A node that buffers items of its source. A state holds their tokens, so the source must rebuild items."""

    def obstacle(self) -> str | None:
        if why := super().obstacle():
            return why
        if supports_graph_restore(self.source):
            return None
        return f"a {kind_of(self)} holds back items of a {kind_of(self.source)}, which no token rebuilds"


class TransformIteration(Iteration):
    """An iteration whose position is that of its source, unless a subclass adds fields."""

    def __init__(self, node: Any, epoch: int, saved: Saved, source_epoch: int | None = None) -> None:
        super().__init__(node, epoch)
        self.source = begin(node.source, epoch if source_epoch is None else source_epoch, saved.child("source"))

    def position(self) -> State:
        return {"source": self.source.state()}


def refuse_drained(saved: Saved) -> None:
    """Raise UsageError for a state whose source has ended, which does not say what came before."""
    if saved.flag("drained"):
        raise UsageError(f"{saved.where} is at the end of its epoch: begin the next one, which is over all data")
