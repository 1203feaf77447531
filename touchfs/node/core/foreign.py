"""Children of any kind: nodes of this package, nodes of other packages ("foreign"), and plain iterables.

A foreign node attaches tokens to the items that it yields. If it claims that tokens rebuild its items, an item without
a token raises at once: a state without that token could never bring the item back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import getitem
from typing import Any

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.token import State, Token, read_token
from touchfs.node.core.given_tokens import GivenTokens
from touchfs.node.core.iteration import Iteration, Pair, same
from touchfs.node.core.iterator_node import children_of, kind_of, refuse_state, supports_graph_restore
from touchfs.node.core.origin import get_graph_origin
from touchfs.node.core.pair_node import PairNode
from touchfs.node.core.saved import FRESH, Saved
from touchfs.node.core.scope import Scope


def begin(source: Iterable[Any], epoch: int, saved: Saved = FRESH) -> Iteration:
    """Begin a child in its parent's epoch, or in the next one if the child has ended and its parent has not."""
    iteration = _begin(source, epoch, saved)
    if iteration.epoch not in (epoch, epoch + 1):
        raise FormatError(f"{saved.where}.epoch is {iteration.epoch} within one of epoch {epoch}: the state is damaged")
    return iteration


def resume_root(root: Iterable[Any], saved: Saved) -> Iteration:
    """Resume a graph from its root. No parent fixes the epoch, so the state may be of any epoch."""
    if isinstance(root, PairNode) or saved.only("node", "epoch", "state"):
        return _begin(root, 0, saved)
    # A foreign node saves no epoch of its own: its sources have it.
    iteration = ForeignIteration(root, 0, FRESH)
    iteration.load(saved)
    iteration.epoch = iteration.scope.adopt_epoch()
    return iteration


def _begin(source: Iterable[Any], epoch: int, saved: Saved) -> Iteration:
    return source.begin(epoch, saved) if isinstance(source, PairNode) else ForeignIteration(source, epoch, saved)


def maker(source: Any) -> Callable[[Token], Any]:
    """Return the function from a token of `source` to its item. It raises UsageError if items cannot be rebuilt."""
    if isinstance(source, PairNode):
        return source.make
    if supports_graph_restore(source):
        return partial(getitem, source)
    return partial(_cannot_rebuild, source)


def locate(source: Any, token: Token, epoch: int) -> State:
    """Return the state of a child from which the item of `token` comes next. Raises UsageError if it has none."""
    if isinstance(source, PairNode):
        return source.locate(token, epoch)
    raise UsageError(f"{kind_of(source)} cannot be positioned at a token: only a state can be restored")


def extended(source: Any, saved: Saved) -> State:
    """Return the state of a child that goes on over other shards (`PairNode.extended`). Raises UsageError."""
    if isinstance(source, PairNode):
        return source.recorded.extended(saved)
    raise UsageError(f"{saved.where}: a {kind_of(source)} cannot go on over a dataset with other shards")


def end_of_pass(source: Any, saved: Saved) -> State:
    """Return the state of a child at the end of the epoch before (`PairNode.end_of_pass`). Raises UsageError."""
    return source.recorded.end_of_pass(saved) if isinstance(source, PairNode) else extended(source, saved)


def epoch_before(saved: Saved) -> int:
    """Return the epoch before that of a state. Raises FormatError if there is none."""
    epoch = saved.integer("epoch")
    if not epoch:
        raise FormatError(f"{saved.where} is at the start of the first epoch: the state is damaged")
    return epoch - 1


def obstacle(source: object) -> str | None:
    """Return why the graph from a node down cannot be saved, or None if it can. Works for nodes of any kind.

    A foreign node may save nothing but the states of its sources. Over a source without a state it would restart at
    the first item, so it cannot be saved there, whatever it claims.
    """
    if isinstance(source, PairNode):
        return source.obstacle()
    if not getattr(source, "is_checkpointable", False):
        return f"a {kind_of(source)} has no state"
    below = {id(child): obstacle(child) for child in children_of(source)}
    why = next(filter(None, below.values()), None)
    if why is None:
        return None
    return why if _saves_only([child for child in children_of(source) if not below[id(child)]], source) else None


def first_obstacle(sources: Iterable[object]) -> str | None:
    """Return why one of the sources cannot be saved, or None if all can."""
    return next(filter(None, map(obstacle, sources)), None)


def check_checkpointable(source: object) -> None:
    """Raise UsageError if the graph from a node down cannot be saved."""
    if why := obstacle(source):
        refuse_state(source, why)


def _saves_only(children: Sequence[Any], node: Any) -> bool:
    """Return True if a foreign node saves nothing but the states of these children."""
    with Scope(0).entered():
        try:
            state, states = node.state_dict(), [child.state_dict() for child in children]
        except (AttributeError, NotImplementedError, UsageError):
            # It saves a child that has no state.
            return True
    return _is_empty(state, states)


def _is_empty(value: Any, states: Sequence[Any]) -> bool:
    if value is None or value in states:
        return True
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, list | tuple) and all(_is_empty(part, states) for part in value)


def is_indexed(source: object) -> bool:
    """Return True if the data below a node of any kind has random access."""
    return bool(getattr(source, "is_indexed", False))


def count_ordinals(source: Any) -> int | None:
    """Return how many items of a source `source.token_at(ordinal, epoch)` can reach, or None if it has no ordinals.

    Raises UsageError if the source has ordinals, and is only a part of its data.
    """
    try:
        size = len(source)
        if size:
            source.token_at(0, 0)
    except (TypeError, AttributeError):
        return None
    return size


class ForeignIteration(Iteration):
    """An iteration of a foreign node or a plain iterable, driven inside a scope of its own."""

    def __init__(self, source: Any, epoch: int, saved: Saved) -> None:
        if not saved.fresh:
            if saved.get("node") != kind_of(source):
                raise UsageError(f"{saved.where} is one of a {saved.get('node')!r:.80}, not of a {kind_of(source)}")
            epoch = saved.integer("epoch")
        super().__init__(source, epoch)
        self.source = source
        self.scope = Scope(epoch)
        if not saved.fresh:
            self.load(saved.child("state"))

    def load(self, state: Saved) -> None:
        """Restore the foreign node inside this iteration's scope."""
        check_checkpointable(self.source)
        with self.scope.entered():
            self.source.load_state_dict(state.fields())

    def walk(self) -> Iterator[Pair]:
        restorable = supports_graph_restore(self.source)
        given = GivenTokens(kind_of(self.source))
        with self.scope.entered():
            items = iter(self.source)
        while True:
            with self.scope.entered():
                try:
                    item = next(items)
                except StopIteration:
                    return
            token, make = None, partial(same, item)
            if restorable:
                token = get_graph_origin(item)
                if token is None:
                    raise UsageError(
                        f"{kind_of(self.source)} yields {item!r:.80} without a token, although it claims that tokens "
                        "rebuild its items: call attach_graph_origin on each item"
                    )
                token = read_token(token)
                given.add(token, make)
            yield token, make

    def position(self) -> State:
        raise NotImplementedError

    def state(self) -> State:
        if not self._can_be_saved:
            check_checkpointable(self.source)
            self._can_be_saved = True
        if self.ended:
            return ForeignIteration(self.source, self.epoch + 1, FRESH).state()
        with self.scope.entered():
            return {"node": kind_of(self.source), "epoch": self.epoch, "state": self.source.state_dict()}


def _cannot_rebuild(source: object, token: Token) -> Any:
    raise UsageError(f"{kind_of(source)} cannot rebuild an item from a token")
