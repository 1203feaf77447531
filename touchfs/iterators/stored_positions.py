"""The positions of iterators in the store, and the graphs of this process at these positions."""

from __future__ import annotations

from typing import Any

from touchfs.dataset import Dataset
from touchfs.errors import FormatError, NotFoundError, UsageError
from touchfs.iterators.graphs import Graphs
from touchfs.iterators.item_tokens import ItemTokens
from touchfs.iterators.live_graph import LiveGraph
from touchfs.iterators.spec import Spec, is_same_pass, stored_spec
from touchfs.iterators.starting_states import state_at_item
from touchfs.node.graph.state import enclose, resume
from touchfs.store.iterator_store import Connection
from touchfs.token import from_json, to_json


class StoredPositions:
    """Reads positions. Call its methods inside a transaction.

    They raise UnbuiltError if they need a graph that is not built, NotFoundError if the iterator was removed.
    """

    def __init__(self, graphs: Graphs, dataset: Dataset, tokens: ItemTokens) -> None:
        self._graphs = graphs
        self._dataset = dataset
        self._tokens = tokens

    def graph(self, connection: Connection, iterator: int) -> LiveGraph:
        """Return an iterator's graph, at any position."""
        return self._graphs.of(iterator, iterator_row(connection, iterator)[0])

    def graph_at_position(self, connection: Connection, iterator: int) -> LiveGraph:
        """Return an iterator's graph at its stored position. Raises UsageError if that is damaged, or if the dataset
        has no such position.
        """
        spec, base, steps, _ = iterator_row(connection, iterator)
        graph = self._graphs.of(iterator, spec)
        try:
            graph.seek(base or graph.start, steps)
        except FormatError as error:
            raise UsageError("its position is damaged: writing 1 to reset starts it anew") from error
        except UsageError as error:
            raise UsageError(_lost(graph, base or "")) from error
        return graph

    def asked_graph(self, connection: Connection, iterator: int) -> LiveGraph:
        """Return the same, for samples. Raises UsageError, too, if the iterator's only specs were refused: nobody has
        asked for these samples.
        """
        graph = self.graph_at_position(connection, iterator)
        if graph.refusal is not None:
            raise UsageError(f"its spec was refused, write a valid one: {graph.refusal}")
        return graph

    def kept_position(self, connection: Connection, iterator: int, spec: Spec) -> tuple[str | None, int]:
        """Return the base and the steps of an iterator after a change of its spec.

        The position is kept if the new spec visits the same samples in the same order, so that a restarted loop may
        write its spec again. Otherwise, or if the position is lost, it is the start.
        """
        old, base, steps, _ = iterator_row(connection, iterator)
        try:
            is_kept = is_same_pass(spec, stored_spec(old))
        except UsageError:  # so a damaged spec can be written anew
            is_kept = False
        if not is_kept:
            self._graphs.of(iterator, str(spec))
            return None, 0
        graph = self._graphs.of(iterator, old)
        try:
            graph.seek(base or graph.start, steps)
        except (UsageError, FormatError):
            return None, 0
        # Steps count batches, so another batch size needs a new base.
        return (base, steps) if spec.batch == graph.spec.batch else (to_json(graph.state()), 0)

    def token_state(self, connection: Connection, iterator: int, value: Any) -> str:
        """Return the state, as JSON, of a value written to `token`: a state or an item token. Raises UsageError."""
        if not isinstance(value, dict):
            raise UsageError("a token is a JSON object, as `cat token` prints it")
        kind = value.get("kind", "state" if "touchfs_state" in value else None)
        if kind == "item":
            graph = self.graph_at_position(connection, iterator)
            value = state_at_item(graph, value, self._tokens.fingerprint)
        elif kind == "state":
            graph = self.graph(connection, iterator)
        else:
            raise UsageError(f'the kind of a token is "state" or "item", not {kind!r:.80}')
        state = {name: field for name, field in value.items() if name != "kind"}
        return to_json(enclose(graph.root, resume(graph.root, state).state()))


def iterator_row(connection: Connection, iterator: int) -> tuple[str, str | None, int, str]:
    """Return an iterator's spec, base, number of steps after the base, and error. Raises NotFoundError."""
    found = connection.execute("SELECT spec, base, steps, error FROM iterator WHERE id = ?", (iterator,)).fetchone()
    if found is None:
        raise NotFoundError("the iterator was removed")
    spec, base, steps, error = found
    return spec, base, steps, error


def _lost(graph: LiveGraph, base: str) -> str:
    """Return the error text for a stored position that the changed dataset does not have."""
    try:
        epoch = f"in epoch {graph.root.epoch_of(from_json(base)['state'])}, "
    except (KeyError, TypeError, ValueError, FormatError):  # it is of another graph
        epoch = ""
    return (
        "the dataset has changed since: put the old one back, or restart by writing to reset "
        f'1 or {{"epoch": N}}; it was {epoch}at the state {base}'
    )
