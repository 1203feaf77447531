"""The position of an iterator in the store, and the graph of this process at this position."""

from __future__ import annotations

from typing import Any, NamedTuple

from touchfs.core.errors import FormatError, NotFoundError, UsageError
from touchfs.core.token import State, from_json, to_json
from touchfs.iterators.graphs import Graphs
from touchfs.iterators.item_tokens import ItemTokens
from touchfs.iterators.live_graph import LiveGraph
from touchfs.iterators.output import OutputLines
from touchfs.iterators.spec import Spec, check_name, is_same_pass, stored_spec
from touchfs.node.core.pair_node import PairNode
from touchfs.node.core.saved import Saved
from touchfs.node.graph.state import enclose, extended_state, open_envelope, resume
from touchfs.node.order.ordered_node import OrderedNode
from touchfs.node.transform.repeater import LazyRepeater
from touchfs.select.selection import AnySamples, position_at, source_of
from touchfs.store.iterator_store import Connection

# What a write stores: the spec, the base of the position, and the steps after it.
Written = tuple[str, str | None, int]

_ITEM = {"fingerprint": str, "source": str, "shard": str, "ordinal": int, "segment": int}


class StoredPosition(NamedTuple):
    """An iterator in the store, during the transaction of a connection.

    The methods raise UnbuiltError if they need a graph that is not built, NotFoundError if the iterator was removed.
    """

    graphs: Graphs
    tokens: ItemTokens
    output: OutputLines
    connection: Connection
    iterator: int

    def row(self) -> tuple[str, str | None, int, str]:
        """Return the iterator's spec, base, number of steps after the base, and error."""
        query = "SELECT spec, base, steps, error FROM iterator WHERE id = ?"
        found = self.connection.execute(query, (self.iterator,)).fetchone()
        if found is None:
            raise NotFoundError("the iterator was removed")
        spec, base, steps, error = found
        return spec, base, steps, error

    def graph(self) -> LiveGraph:
        return self.graphs.of(self.iterator, self.row()[0])

    def graph_at_position(self) -> LiveGraph:
        """Return the graph at its stored position. Raises UsageError if that is damaged, or if the dataset
        has no such position.
        """
        spec, base, steps, _ = self.row()
        graph = self.graphs.of(self.iterator, spec)
        try:
            graph.seek(base or graph.start, steps)
        except FormatError as error:
            raise UsageError("its position is damaged: writing 1 to reset starts it again") from error
        except UsageError as error:
            raise UsageError(_lost(graph, base or "")) from error
        return graph

    def asked_graph(self) -> LiveGraph:
        """Return the same, for samples. Raises UsageError, too, if the iterator's only specs were refused: nobody has
        asked for these samples.
        """
        graph = self.graph_at_position()
        if graph.refusal is not None:
            raise UsageError(f"its spec was refused, write a valid one: {graph.refusal}")
        return graph

    def kept_position(self, spec: Spec) -> tuple[str | None, int]:
        """Return the base and the steps after a change of the spec.

        The position is kept if the new spec visits the same samples in the same order, so that a restarted loop may
        write its spec again. Otherwise, or if the position is lost, it is the start.
        """
        old, base, steps, _ = self.row()
        try:
            is_kept = is_same_pass(spec, stored_spec(old))
        except UsageError:  # so a damaged spec can be replaced
            is_kept = False
        if not is_kept:
            self.graphs.of(self.iterator, str(spec))
            return None, 0
        graph = self.graphs.of(self.iterator, old)
        try:
            graph.seek(base or graph.start, steps)
        except (UsageError, FormatError):
            return None, 0
        # Steps count batches, so another batch size needs a new base.
        return (base, steps) if spec.batch == graph.spec.batch else (to_json(graph.state()), 0)

    def at_token(self, value: Any) -> Written:
        """Return what to store for a value written to `token`: a state or an item token. Raises UsageError.

        A state with `"extend": true` may be over other shards of the dataset, and that alone is the stored position.
        """
        if not isinstance(value, dict):
            raise UsageError("a token is a JSON object, as `cat token` prints it")
        if value.get("extend") is True:
            return self._extended({name: field for name, field in value.items() if name not in ("extend", "kind")})
        kind = value.get("kind", "state" if "touchfs_state" in value else None)
        if kind == "item":
            graph = self.graph_at_position()
            value = _state_at_item(graph, value, self.tokens.fingerprint)
        elif kind == "state":
            graph = self.graph()
        else:
            raise UsageError(f'the kind of a token is "state" or "item", not {kind!r:.80}')
        state = {name: field for name, field in value.items() if name != "kind"}
        return graph.spec_text, to_json(enclose(graph.root, resume(graph.root, state).state())), 0

    def _extended(self, state: State) -> Written:
        _, base, steps, _ = self.row()
        graph = self.graph()
        if not state:
            state = open_envelope(from_json(base or graph.start))
            if not _can_grow(graph.root):
                extended_state(graph.root, state)  # or refuse it
                state = self.graph_at_position().state()
            elif steps:
                state["state"] = _advanced(graph.root, Saved(state["state"]), steps * graph.spec.batch)
        state = extended_state(graph.root, state)
        return graph.spec_text, to_json(enclose(graph.root, resume(graph.root, state).state())), 0


def _advanced(root: PairNode, saved: Saved, taken: int) -> State:
    """Return the state `taken` samples later, over whatever shards it is."""
    node: Any = root.recorded
    if isinstance(node, LazyRepeater):
        return {**saved.fields(), "source": _advanced(node.source, saved.child("source"), taken)}
    advanced: State = node.advanced(saved, taken)
    return advanced


def _can_grow(root: PairNode) -> bool:
    """Return True if positions go on over other shards."""
    node = root.recorded
    while isinstance(node, LazyRepeater):
        node = node.source.recorded
    return isinstance(node, OrderedNode) and node.can_grow


def _state_at_item(graph: LiveGraph, item: dict[str, Any], fingerprint: str) -> State:
    """Return the state from which the sample of an item token comes next, in the graph's current epoch.

    Raises FormatError for a damaged token, UsageError for one that does not fit the graph or the dataset.
    """
    for name, kind in _ITEM.items():
        if type(item.get(name)) is not kind:
            raise FormatError(f"an item token has a {name}, of {kind.__name__}: it is damaged")
    check_name(item["shard"], "shard")
    if item["fingerprint"] != fingerprint:
        raise UsageError("the token is of another dataset")
    if graph.spec.mux:
        raise UsageError("an iterator over several sources cannot be positioned at an item: only a state can")
    (samples,) = graph.samples
    envelope = graph.state()
    return {**envelope, "state": graph.root.relocate(envelope["state"], _position(samples, item))}


def _position(samples: AnySamples, item: dict[str, Any]) -> int:
    if (source := source_of(samples.view)) != item["source"]:
        raise UsageError(f"the token is of {item['source']!r:.80}, the iterator goes over {source}")
    shard = samples.dataset.by_name.get(item["shard"].encode(errors="surrogateescape"), -1)
    expected = item["shard"], item["ordinal"], item["segment"]
    position = position_at(samples, (shard, item["ordinal"], item["segment"]))
    found = samples[position] if position < len(samples) else None
    if found is None or (found.shard, found.ordinal, found.number) != expected:
        raise UsageError("the item of the token is not in what the iterator selects")
    return position


def _lost(graph: LiveGraph, base: str) -> str:
    """Return the error text for a stored position that the changed dataset does not have."""
    try:
        epoch = f"in epoch {graph.root.epoch_of(from_json(base)['state'])}, "
    except (KeyError, TypeError, ValueError, FormatError):  # it is of another graph
        epoch = ""
    grow = (
        'go on with what is left and then with what is new by writing {"extend": true} to token, '
        "as `touchfs iterator restore` does with --extend, or "
        if _can_grow(graph.root)
        else ""
    )
    return (
        "the dataset has changed since, or is opened with other overlays or lists of ids: "
        f"put the old one back, or {grow}restart by writing 1 or "
        f'{{"epoch": N}} to reset; it was {epoch}at the state {base}'
    )
