"""Loaders of PyTorch over a set, with a state of their own.

`BatchLoader` shares global batches among ranks and workers: what is in a batch depends on neither, and a state is an
epoch and a position, the same on all ranks. It needs an order with a position for each item. A filter in Python has
none: of its items `ItemLoader` resumes exactly with the same number of workers.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from touchfs.core.errors import FormatError, MissingExtraError, TouchfsError, UsageError
from touchfs.core.extras import install_hint
from touchfs.core.token import State
from touchfs.dataset.sample import Sample
from touchfs.node.batch.length_batcher import LazyLengthBatcher
from touchfs.node.core.description import recorded
from touchfs.node.core.iterator_node import kind_of, resolve_iterator_source
from touchfs.node.core.pair_node import EXTEND
from touchfs.node.core.saved import Saved
from touchfs.node.graph.merge import merge_states
from touchfs.node.graph.ordered_graph import at_position, find_ordered_node, next_position, ordered_node, with_part
from touchfs.node.graph.share import is_restored
from touchfs.node.graph.state import extended_state, say_growth
from touchfs.node.leaf.dataloading import rank_of_process
from touchfs.node.order.batches import GlobalBatches
from touchfs.node.order.epoch import read_stages, size_after
from touchfs.torch import NodeIterableDataset, graph_states

try:
    from torch.utils.data import DataLoader, default_collate, default_convert
    from torchdata.stateful_dataloader import StatefulDataLoader
except ImportError as error:
    raise MissingExtraError(f"a loader with a state needs PyTorch and torchdata: {install_hint('torch')}") from error

VERSION = 1

Collate = Callable[[Any], Any]


class BatchLoader:
    """Global batches of the items of a `graph`, of which this rank gets `each`, made by `num_workers` processes.

    Each pass is the next epoch. `collate` makes a batch of a list of items. `options` are those
    of PyTorch's DataLoader. Raises UsageError for a graph that does not make an item of each position of an order.
    """

    def __init__(
        self,
        graph: Any,
        each: int,
        rank: int,
        world_size: int,
        num_workers: int,
        collate: Collate,
        options: dict[str, Any],
    ) -> None:
        node = ordered_node(graph)
        order = node.order
        self._of_units = isinstance(node, LazyLengthBatcher)
        if order.partition.world_size > 1 or (node.is_part and not self._of_units):
            raise UsageError("the set is one rank's already: give rank and world_size to the loader alone")
        lanes = 1 if order.window is None else order.window.lanes
        self.batches = GlobalBatches(each * world_size, rank, world_size, order.partition.tail, lanes)
        self._graph = graph
        self._node = node
        self._order = node.config()
        if self._of_units:
            collate = partial(_collated_each, collate)
        self._options = {**options, "batch_size": each, "num_workers": num_workers, "collate_fn": collate}
        self._epoch, self._position, self._stages = next_position(graph)
        self._size(self._epoch, self._stages)  # raises of lengths that do not fit before a pass begins
        self._has_begun = False
        self._untaken = 0

    def __len__(self) -> int:
        """The number of batches in a pass over a whole epoch: of batches by length, over the one that is next."""
        items = self.batches.count(self._size(self._epoch, []))
        return items if self._of_units else -(-items // (self.batches.size // self.batches.world_size))

    def __iter__(self) -> Iterator[Any]:
        if self._has_begun:  # a pass that was left
            self._begin_next()
        self._has_begun = True
        batches, size = replace(self.batches, since=self._position), self._size(self._epoch, self._stages)
        if self._stages:
            graph, state = at_position(self._graph, self._epoch, batches, self._stages)
            dataset = NodeIterableDataset(graph, state=state)
        else:
            dataset = NodeIterableDataset(with_part(self._graph, batches))
            dataset.set_epoch(self._epoch)
        for batch in _with_plain_errors(DataLoader(dataset, **self._options)):
            self._position = min(self._position + self.batches.size, size)
            if not self._of_units:
                yield batch
                continue
            for number, unit in enumerate(batch, 1):
                self._untaken = len(batch) - number
                yield unit
        self._begin_next()
        self._has_begun = False

    def _begin_next(self) -> None:
        self._epoch, self._position, self._stages, self._untaken = self._epoch + 1, 0, [], 0

    def state_dict(self) -> State:
        """Return where the batch after the last one that was taken begins: the same on all ranks.

        Raises UsageError within a global batch, of which this rank takes several batches by length.
        """
        if self._untaken:
            raise UsageError(f"of this global batch {self._untaken} are left to take: save between two global batches")
        return {
            "touchfs_loader": VERSION,
            "epoch": self._epoch,
            "position": self._position,
            "global_batch": self.batches.size,
            "tail": self.batches.tail,
            "order": self._order,
            **({"stages": self._stages} if self._stages else {}),
            **self._node.mark(self._epoch, read_stages(Saved({"stages": self._stages})), self._position),
        }

    def load_state_dict(self, state: State, extend: bool = False) -> None:
        """Make the next pass go on where `state` was taken, with any number of ranks and workers.

        Batches of another size go on at the same position, and a warning says so. With `extend`, the dataset may have
        other shards than before: what is left comes first, and then what is new (docs/orders.md). Raises UsageError for
        a state of other data or of another order, FormatError for a damaged one.
        """
        if not isinstance(state, dict) or state.get("touchfs_loader") != VERSION:
            raise FormatError("not a state of this loader: state_dict() of a loader in batches makes one")
        saved = Saved(state)
        if extend:
            saved = self._extended(saved)
        for name, here in (("order", self._order), ("tail", self.batches.tail)):
            if saved.get(name) != here:
                remedy = ""
                kinds = {"length": "shards were added or removed", "weights": "weights changed"}
                if name == "order" and (which := [*filter(self._node.goes_on_with_other, kinds)]):
                    remedy = f"; if only {' or '.join(map(kinds.__getitem__, which))}, {EXTEND} goes on"
                raise UsageError(
                    f"the state has the {name} {saved.get(name)!r:.300}, and this loader {here!r:.300}{remedy}"
                )
        if (before := saved.integer("global_batch")) != self.batches.size:
            warnings.warn(
                f"the state is of global batches of {before}, which go on in {self.batches.size}", stacklevel=2
            )
        epoch = saved.integer("epoch")
        self._node.recall(saved)
        stages = [stage.fields() for stage in saved.children("stages")] if saved.has("stages") else []
        self._node.left_of(epoch, read_stages(Saved({"stages": stages})))  # or refuse it here
        position = saved.integer("position", self._size(epoch, stages))
        self._epoch, self._position, self._stages = epoch, position, stages
        self._has_begun, self._untaken = False, 0

    def _size(self, epoch: int, stages: list[State]) -> int:
        """How many positions an epoch has, or what is left of it after stages."""
        return size_after(self._node.order_of(epoch).size, read_stages(Saved({"stages": stages})))

    def _extended(self, saved: Saved) -> Saved:
        before: State = {
            "node": kind_of(self._node),
            "config": saved.child("order").fields(),
            "epoch": saved.integer("epoch"),
            "position": saved.integer("position"),
            "partition": None,
            "stages": saved.fields().get("stages", []),
        }
        before |= {name: saved.get(name) for name in ("since", "taken") if saved.has(name)}
        after = self._node.extended(Saved(before))
        if after == before:
            return saved
        warnings.warn(say_growth({"state": after}), stacklevel=3)
        fields: State = {name: after[name] for name in ("position", "stages", "since") if name in after}
        return Saved({**saved.fields(), "order": after["config"], **fields})


class ItemLoader(StatefulDataLoader):  # type: ignore[misc]
    """The items of a `graph`, or batches of `batch_size` of them, made by `num_workers` processes.

    Each pass is the next epoch. A state continues exactly with the same number of workers. With another number the rest
    of the epoch has the same items, in another order. `collate` and `options` are as for `BatchLoader`.
    """

    def __init__(
        self,
        graph: Any,
        batch_size: int | None,
        rank: int,
        world_size: int,
        num_workers: int,
        collate: Collate,
        options: dict[str, Any],
    ) -> None:
        self._dataset = NodeIterableDataset(graph)
        # A graph that was restored is shared once, as its shares are parts of ranks.
        self._dataset.rank, self._dataset.world_size = rank, world_size
        self._is_shared = world_size > 1
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "'set_vital' is deprecated")  # torchdata calls it in each loader
            super().__init__(self._dataset, batch_size, num_workers=num_workers, collate_fn=collate, **options)

    def __iter__(self) -> Iterator[Any]:
        return _with_plain_errors(super().__iter__())

    def load_state_dict(self, state_dict: State, extend: bool = False) -> None:
        """Make the next pass go on where `state_dict` was taken. It raises UsageError for a state of another set.

        Of several ranks, one of another number of workers is a UsageError: `merge_states` merges those of all ranks.
        With `extend`, the dataset may have other shards than before, as for `BatchLoader`.
        """
        states = graph_states(state_dict)
        fits = ("_snapshot" in state_dict) == (self.num_workers > 0) and len(states) == max(self.num_workers, 1)
        if fits and not extend:
            super().load_state_dict(state_dict)
            return
        if self._is_shared and extend:
            raise UsageError(
                "the state is one rank's alone: merge those of all ranks with merge_states, load the result into the "
                "set with extend=True, and make the loader of that"
            )
        if self._is_shared:
            raise UsageError(
                f"the state is of {len(states)} workers, and this loader has {self.num_workers}: merge the states of "
                "all ranks with merge_states, and give the result to touchfs.torch.NodeIterableDataset"
            )
        state = merge_states(states)
        if extend and (over := extended_state(self._dataset.node, state)) != state:
            state = over
            warnings.warn(say_growth(state), stacklevel=2)
        self._dataset.state = state


def loader(
    graph: Any,
    batch_size: int | None = None,
    num_workers: int = 0,
    *,
    global_batch: int | None = None,
    max_duration: float | None = None,
    max_tokens: int | None = None,
    pack: bool = False,
    rank: int | None = None,
    world_size: int | None = None,
    collate_fn: Collate | None = None,
    **options: Any,
) -> BatchLoader | ItemLoader:
    """Return a loader of the items of a graph: `touchfs.OpenDataset.loader` describes the arguments.

    Raises UsageError for arguments that do not fit together, and as the loaders.
    """
    if (rank is None) != (world_size is None):
        raise UsageError("give rank and world_size, or none of them")
    rank, world_size = rank_of_process() if rank is None or world_size is None else (rank, world_size)
    if max_duration is not None or max_tokens is not None or pack:
        tail = ordered_node(graph).order.partition.tail
        if is_restored(resolve_iterator_source(graph)):
            raise UsageError(
                "the set begins at a state of samples, which is none of batches by length: make the loader of the set "
                "without it, and load the state of such a loader"
            )
        graph = LazyLengthBatcher(graph, max_duration, max_tokens, pack, tail=tail, global_batch=global_batch)
    if isinstance(units := find_ordered_node(graph), LazyLengthBatcher):
        if batch_size is not None:
            raise UsageError("the items are batches by length already: leave out batch_size")
        global_batch = global_batch or units.global_batch or world_size
        each = GlobalBatches(global_batch, rank, world_size).size // world_size
        if collate_fn is None:
            collate_fn = _collated if recorded(resolve_iterator_source(graph)) is units else _converted
        return BatchLoader(graph, each, rank, world_size, num_workers, collate_fn, options)
    if global_batch is not None:
        if batch_size is not None:
            raise UsageError("batch_size is a rank's part of global_batch: give one of them")
        batch_size = GlobalBatches(global_batch, rank, world_size).size // world_size
    if collate_fn is None:
        collate_fn = _converted if batch_size is None else _collated
    if batch_size is not None and (global_batch is not None or find_ordered_node(graph) is not None):
        return BatchLoader(graph, batch_size, rank, world_size, num_workers, collate_fn, options)
    return ItemLoader(graph, batch_size, rank, world_size, num_workers, collate_fn, options)


def _with_plain_errors(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield batches. PyTorch makes an error of a worker again with its whole traceback as the message: of ours, raise
    one with the message that it had there, and its notes.
    """
    try:
        yield from batches
    except TouchfsError as error:
        _, *messages = re.split(rf"^[\w.]+\.{type(error).__name__}: ", error.message, flags=re.MULTILINE)
        if not messages or not error.message.startswith("Caught "):
            raise
        raise type(error)("; ".join(messages[-1].splitlines())) from None


def _collated_each(collate: Collate, items: list[Any]) -> list[Any]:
    return list(map(collate, items))


def _collated(items: list[Any]) -> Any:
    # A mapping to bytes is nothing that PyTorch puts together.
    return items if isinstance(items[0], Sample) else default_collate(items)


def _converted(item: Any) -> Any:
    return item if isinstance(item, Sample) else default_convert(item)  # type: ignore[no-untyped-call]
