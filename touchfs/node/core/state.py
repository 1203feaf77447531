"""A graph's state from outside: an envelope with a version, and files that hold one.

`node.state_dict()` tells a node and its parameters by itself, wherever it stands in a graph. The envelope adds what
only the whole can tell: the version of all this, and which kinds of nodes there are, those included that were written
elsewhere and save what they like. Nothing is guessed: what does not fit is an error, never a replay from the start.
"""

from __future__ import annotations

import os
from typing import Any

from touchfs.errors import FormatError, NotFoundError, SourceError, UsageError
from touchfs.node.core.base import Iteration, IteratorNode, children_of, kind_of
from touchfs.node.core.foreign import check_checkpointable, locate, resume_root
from touchfs.node.core.saved import Saved
from touchfs.node.core.version_0_1 import unchained_graph
from touchfs.posix.atomic import atomic_file
from touchfs.token import State, from_json, normalize_graph_token, to_json

VERSION = 1


def collect_state_dict(node: IteratorNode) -> State:
    """The state of a graph, from its root."""
    check_checkpointable(node)
    return enclose(node, node.state_dict())


def restore_state_dict(node: IteratorNode, state: State) -> None:
    """The next `iter(node)` begins where the state says."""
    node.load_state_dict(_opened(node, state))


def resume(node: IteratorNode, state: State) -> Iteration:
    """An iteration from where the state says, that the node does not know of."""
    return resume_root(node, Saved(_opened(node, state)))


def _opened(node: IteratorNode, state: State) -> State:
    check_checkpointable(node)
    opened = open_envelope(state)
    check_graph(opened, node)
    inner: State = opened["state"]
    return inner


def state_at(node: IteratorNode, token: Any, epoch: int = 0) -> State:
    """The state from which the item of a token comes next, in an epoch that nothing was taken from."""
    return enclose(node, locate(node, normalize_graph_token(token), epoch))


def save_state(node: IteratorNode, path: str | os.PathLike[str]) -> None:
    text = to_json(collect_state_dict(node))
    with atomic_file(path) as file:
        file.write(text.encode() + b"\n")


def load_state(node: IteratorNode, path: str | os.PathLike[str]) -> None:
    try:
        with open(path, "rb") as file:
            text = file.read()
    except FileNotFoundError as error:
        raise NotFoundError("no such file", path=os.fspath(path)) from error
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror or error}", path=os.fspath(path)) from error
    try:
        restore_state_dict(node, from_json(text))
    except (FormatError, UsageError) as error:
        raise error.at(os.fspath(path)) from None


def open_envelope(state: object) -> State:
    if not isinstance(state, dict) or "touchfs_state" not in state:
        raise FormatError("not a state of touchfs: collect_state_dict makes one")
    if state["touchfs_state"] != VERSION:
        raise FormatError(f"a state of version {state['touchfs_state']!r:.20}: this touchfs reads version {VERSION}")
    for name, kind in (("graph", str), ("state", dict)):
        if not isinstance(state.get(name), kind):
            raise FormatError(f"the state lacks {name!r}: it is damaged")
    return state


def check_graph(envelope: State, node: object) -> None:
    """Raises UsageError if a state is of other kinds of nodes."""
    there, here = envelope["graph"], graph_of(node)
    if unchained_graph(there) != unchained_graph(here):
        raise UsageError(f"the state is of the graph {there!r:.200}, and this is {here!r:.200}")


def graph_of(node: object) -> str:
    """The kinds of nodes: LazyMapper(LazyIndexedManifestIterator)."""
    children = ", ".join(map(graph_of, children_of(node)))
    return f"{kind_of(node)}({children})" if children else kind_of(node)


def enclose(node: object, state: State) -> State:
    return {"touchfs_state": VERSION, "graph": graph_of(node), "state": state}
