"""The state of a whole graph: an envelope around the root's state, and files of it.

`node.state_dict()` records a node and its parameters, wherever the node stands in a graph. The envelope adds the format
version and the class names of all nodes, including foreign nodes, whose own states have any form. Nothing is guessed: a
state that does not fit raises, and is never replaced by a replay from the start.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

from touchfs.core.errors import FormatError, UsageError, map_os_errors
from touchfs.core.token import State, from_json, read_token, to_json
from touchfs.node.core.description import recorded
from touchfs.node.core.foreign import check_checkpointable, extended, locate, resume_root
from touchfs.node.core.iteration import Iteration
from touchfs.node.core.iterator_node import IteratorNode, children_of, kind_of
from touchfs.node.core.saved import Saved
from touchfs.node.order.growth import GROWN, read_grown
from touchfs.posix.atomic import atomic_file

VERSION = 1


def collect_state_dict(node: IteratorNode) -> State:
    """Return the state of a graph as a JSON object; `node` is its root.

    Raises UsageError if the graph cannot be saved.
    """
    check_checkpointable(node)
    return enclose(node, node.state_dict())


def restore_state_dict(node: IteratorNode, state: State, extend: bool = False) -> None:
    """Make the next `iter(node)` start at a state from `collect_state_dict`.

    With `extend`, the state may be over other shards of the dataset: `extended_state` says how it goes on, and a
    warning what comes. Raises FormatError for a damaged state, UsageError for one of another graph or dataset.
    """
    if extend and (over := extended_state(node, state)) != state:
        state = over
        warnings.warn(say_growth(state), stacklevel=3)
    node.load_state_dict(_inner_state(node, state))


def extended_state(node: IteratorNode, state: State) -> State:
    """Return a state that goes on where `state`, over other shards of the dataset, was: the epoch has what is left of
    its old order and still exists, and then all new samples, in an order of the same seed.

    Raises as `restore_state_dict`, UsageError for graphs that cannot go on so, and where the old shards are unknown.
    """
    return enclose(node, extended(node, Saved(_inner_state(node, state))))


def say_growth(state: State) -> str:
    """Return what comes after a state from `extended_state`, in one line."""
    return _say_growth(state["state"])


def _say_growth(inner: State) -> str:
    while isinstance(inner.get("source"), dict):
        inner = inner["source"]
    if "sources" in inner:
        has_come = [source["epoch"] > inner["epoch"] for source in inner["sources"]]
        said = {i: _say_growth(source) for i, source in enumerate(inner["sources"]) if not has_come[i]}
        return "; ".join(f"source {i}: {text}" for i, text in said.items())
    if inner["config"].get("order") == "mixture":
        return _say_growth_of_mixture(inner)
    stages, has_begun = inner.get("stages"), inner.get("position")
    if stages and not has_begun and stages[-1].get("kind") == GROWN:
        return str(read_grown(Saved(stages[-1])))
    if stages or has_begun:
        return "the dataset has the same shards as before"
    count = f"{inner['units']:,} batches" if "units" in inner else f"{inner['config']['length']:,} samples"
    return f"epoch {inner['epoch']} begins, and is one of all {count}"


def _say_growth_of_mixture(inner: State) -> str:
    since, came = inner.get("since"), sum(sum(stage["cursors"]) for stage in inner["stages"])
    if since is None or inner["position"] or sum(each["number"] for each in since["sources"]) != since["begins"] + came:
        return "what has come of the mixture stays, and it goes on by the weights that hold from here on"
    said = []
    for i, (source, data) in enumerate(zip(since["sources"], inner["config"]["data"], strict=True)):
        while "length" not in data["config"]:
            (data,) = data["sources"]
        if not (stages := source["stages"]) or stages[-1].get("kind") == GROWN:
            said.append(f"source {i}: {_say_growth({**source, 'position': 0, 'config': data['config']})}")
    return "; ".join(said)


def resume(node: IteratorNode, state: State) -> Iteration:
    """Return an iteration that starts at a state, without recording it on the node. Raises as `restore_state_dict`."""
    return resume_root(node, Saved(_inner_state(node, state)))


def _inner_state(node: IteratorNode, state: State) -> State:
    check_checkpointable(node)
    envelope = open_envelope(state)
    check_graph(envelope, node)
    inner: State = envelope["state"]
    return inner


def state_at(node: IteratorNode, token: Any, epoch: int = 0) -> State:
    """Return the state of the graph below `node` from which the item of `token` comes next in `epoch`, otherwise fresh.

    Raises UsageError if the graph cannot be positioned at a token.
    """
    return enclose(node, locate(node, read_token(token), epoch))


def save_state(node: IteratorNode, path: str | os.PathLike[str]) -> None:
    """Write the state of the graph whose root is `node` to `path` as one line of JSON, replacing the file atomically.

    Raises UsageError if the graph cannot be saved, SourceError if the file cannot be written.
    """
    text = to_json(collect_state_dict(node))
    with atomic_file(path) as file:
        file.write(text.encode() + b"\n")


def load_state(node: IteratorNode, path: str | os.PathLike[str], extend: bool = False) -> None:
    """Restore the graph whose root is `node` from a file that `save_state` wrote at `path`. `extend` is as for
    `restore_state_dict`.

    Raises NotFoundError or SourceError if the file cannot be read, FormatError for a damaged state, UsageError for
    a state of another graph or dataset.
    """
    state = read_state(path)
    try:
        restore_state_dict(node, state, extend)
    except (FormatError, UsageError) as error:
        raise error.at(os.fspath(path)) from None


def read_state(path: str | os.PathLike[str]) -> State:
    """Return the state in a file that `save_state` wrote at `path`. Raises as `load_state`."""
    with map_os_errors(os.fspath(path), "cannot be read"), open(path, "rb") as file:
        text = file.read()
    try:
        return open_envelope(from_json(text))
    except (FormatError, UsageError) as error:
        raise error.at(os.fspath(path)) from None


def open_envelope(state: object) -> State:
    """Return the envelope after checking its version and fields. Raises FormatError."""
    if not isinstance(state, dict) or "touchfs_state" not in state:
        raise FormatError("not a state of touchfs: collect_state_dict makes one")
    if state["touchfs_state"] != VERSION:
        raise FormatError(f"a state of version {state['touchfs_state']!r:.20}: this touchfs reads version {VERSION}")
    for name, kind in (("graph", str), ("state", dict)):
        if not isinstance(state.get(name), kind):
            raise FormatError(f"the state lacks {name!r}: it is damaged")
    return state


def check_graph(envelope: State, node: object) -> None:
    """Raise UsageError if a state is of a graph of other node classes."""
    there, here = envelope["graph"], graph_of(node)
    if there != here:
        raise UsageError(f"the state is of the graph {there!r:.200}, and this is {here!r:.200}")


def graph_of(node: object) -> str:
    """Return the class names of a graph, such as `LazyMapper(LazyIndexedManifestIterator)`."""
    node = recorded(node)
    children = ", ".join(map(graph_of, children_of(node)))
    return f"{kind_of(node)}({children})" if children else kind_of(node)


def enclose(node: object, state: State) -> State:
    """Put the state of a root into an envelope."""
    return {"touchfs_state": VERSION, "graph": graph_of(node), "state": state}
