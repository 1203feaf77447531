"""The node contract.

A *node* describes which items to iterate and in which order. A *token* rebuilds one of its items, `node[token]`; a
*state* resumes an iteration. A node makes up to three separate promises:

    is_checkpointable           state_dict and load_state_dict resume exactly
    is_indexed                  the data below has random access
    has_constant_time_access    node[token] rebuilds an item without looking at any other
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NoReturn

from touchfs.core.errors import UsageError
from touchfs.core.token import State


class IteratorNode:
    """Base class of all nodes, including those of other packages (`touchfs.node.core.foreign`).

    A node keeps its children in the attribute `source` or `sources`.
    """

    @property
    def is_checkpointable(self) -> bool:
        """True if `state_dict` and `load_state_dict` resume exactly."""
        return False

    @property
    def is_indexed(self) -> bool:
        """True if the data below has random access."""
        return False

    @property
    def has_constant_time_access(self) -> bool:
        """True if `node[token]` rebuilds an item without looking at any other."""
        return False

    @property
    def is_part(self) -> bool:
        """True if this node itself iterates only the part of one of several ranks."""
        return False

    def __bool__(self) -> bool:
        # Without this, an empty node would be false, and a node without a length would raise.
        return True

    def __iter__(self) -> Iterator[Any]:
        """Iterate one epoch: the one after the last finished one, or from a loaded state on."""
        raise NotImplementedError

    def __getitem__(self, token: Any) -> Any:
        """Return the item of a token. Raises UsageError if this node cannot rebuild items."""
        raise UsageError(f"{kind_of(self)} cannot rebuild an item from a token")

    def state_dict(self) -> State:
        """Return the position as a JSON object. Raises UsageError if this node cannot be saved."""
        refuse_state(self)

    def load_state_dict(self, state: State) -> None:
        """Make the next `iter` start at a `state` from `state_dict`. Raises UsageError if it cannot be restored."""
        refuse_state(self)

    def for_worker(self, worker: int, workers: int) -> Any:
        """Return the part of worker number `worker` (from 0) of `workers`, or None if the children are split instead.

        By default, children are split, and a node without any raises UsageError: each worker would iterate all of it.
        """
        if children_of(self):
            return None
        raise UsageError(
            f"a {kind_of(self)} cannot be shared among {workers} workers, each would iterate all of it: "
            "use one worker, or indexed data"
        )


def kind_of(node: object) -> str:
    """Return the class name of a node, which states hold."""
    return type(node).__name__


def children_of(node: object) -> list[Any]:
    """Return the children of a node of any kind: its `sources`, or its `source`."""
    sources = getattr(node, "sources", None)
    return list(sources) if isinstance(sources, list | tuple) else [node.source] if hasattr(node, "source") else []


def is_partitioned(node: Any) -> bool:
    """Return True if the graph is the part of one of several ranks."""
    return bool(getattr(node, "is_part", False)) or any(map(is_partitioned, children_of(node)))


def with_children(node: Any, children: list[Any]) -> Any:
    """Return a copy of a node with other children, as many as `children_of` returns."""
    copied = copy.copy(node)
    if isinstance(getattr(node, "sources", None), list | tuple):
        copied.sources = children
    else:
        (copied.source,) = children
    return copied


def refuse_state(node: object, why: str | None = None) -> NoReturn:
    """Raise UsageError: the node is not checkpointable."""
    raise UsageError(f"{kind_of(node)} is not checkpointable: {why or 'it has no state'}")


def resolve_iterator_source(source: Any) -> Any:
    """Return the node that `source`, a wrapper such as `SampleSet`, keeps in `data`; return anything else unchanged."""
    data = None if isinstance(source, IteratorNode) else getattr(source, "data", None)
    # A node of another package says this, too, and need not be of our class.
    return data if hasattr(data, "is_checkpointable") else source


def supports_graph_restore(source: Any, *, require_length: bool = False) -> bool:
    """Return True if `source[token]` rebuilds an item directly; with `require_length`, if `len(source)` works, too."""
    restores = bool(getattr(source, "has_constant_time_access", False)) and hasattr(source, "__getitem__")
    if not (restores and require_length):
        return restores
    try:
        len(source)
    except TypeError:
        return False
    return True
