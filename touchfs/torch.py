"""PyTorch datasets over any graph, for `DataLoader` and for torchdata's `StatefulDataLoader`.

    NodeIterableDataset(node)          each worker iterates its share of the graph
    NodeDataset(node), NodeSampler(node)
                                       the main process iterates tokens, which decodes nothing, and workers make the
                                       items: one order and one state for any number of workers

    SharedMemoryCollate()              a collate_fn: workers hand over batches in memory, which is faster than a pipe

Give a graph that yields batches, such as a sampler, to a loader with `batch_size=None`.

A `StatefulDataLoader` can resume at any point; nothing is replayed. Its state is as large as the graph's, and by
default taken at each step: a larger `snapshot_every_n_steps` helps if samplers buffer many samples. A plain
`DataLoader` has no state; that of the graph itself stays where it was, because loaders make iterations of their own.

Every pass over a loader is the next epoch, even if the previous pass was not finished. Workers that are restarted for
each pass count epochs in memory shared with the main process, so a dataset serves one loader at a time. `set_epoch`
sets the next epoch.

`graph_states` extracts the graphs' states from a loader's state, for `merge_states`, to continue with other workers or
ranks.

Ranks are those of the graph's own leaves, unless `distributed=True` takes RANK and WORLD_SIZE from the environment, or
a leaf has `split_for_dataloading`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from multiprocessing import parent_process
from typing import Any, cast

import numpy as np

from touchfs.core.errors import FormatError, MissingExtraError, UsageError
from touchfs.core.extras import install_hint
from touchfs.core.token import State, from_json, read_token, to_json
from touchfs.node.core.description import drawing_nodes, nodes_of, refuse_drawn_seeds
from touchfs.node.core.foreign import begin, count_ordinals, maker, resume_root
from touchfs.node.core.iteration import Iteration, Pair
from touchfs.node.core.iterator_node import (
    IteratorNode,
    is_partitioned,
    kind_of,
    resolve_iterator_source,
    supports_graph_restore,
)
from touchfs.node.core.pair_node import PairNode
from touchfs.node.core.saved import Saved
from touchfs.node.core.scope import Track, TrackedPairs
from touchfs.node.core.seed import DrawnSeed
from touchfs.node.graph.share import is_restored, share_of
from touchfs.node.graph.state import VERSION, graph_of, resume
from touchfs.node.leaf.dataloading import is_split, rank_of_environment, rank_of_process
from touchfs.node.transform.mixture import LazyMixture
from touchfs.posix.memory.packed import IS_SUPPORTED, Sender
from touchfs.posix.processes import end_with_parent

try:
    import torch
    from torch.utils.data import Dataset, IterableDataset, Sampler, default_collate, get_worker_info
except ImportError as error:
    raise MissingExtraError(f"PyTorch is not installed: {install_hint('torch')}") from error

MOST_WORKERS = 1024
# The next epoch of a worker that has begun no pass.
UNBEGUN = -1
# Bytes for the places of mixtures.
CARRIED_MAX = 1 << 20


class Pass(Iterator[Any]):
    """An iterator over one epoch of a `node`, through `iteration`, with a state.

    A pass restored after its end yields nothing.

    `take` returns the item or the token of a pair. `on_begin(epoch)` is called at the first item, to count epochs.
    """

    def __init__(
        self, node: Any, iteration: Iteration, take: Callable[[Pair], Any], on_begin: Callable[[int], None]
    ) -> None:
        self._node = node
        self._take = take
        self._on_begin = on_begin
        self._has_begun = False
        self._ended = False
        self._begin(iteration, iteration.epoch)

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        try:
            pair = next(self._pairs)
        except StopIteration:
            self._ended = True
            raise
        if not self._has_begun:
            self._has_begun = True
            self._on_begin(self._epoch)
        return self._take(pair)

    def state_dict(self) -> State:
        """Return the state of the pass, which contains that of the graph. Raises UsageError if it cannot be saved."""
        graph = {"touchfs_state": VERSION, "graph": graph_of(self._node), "state": self._iteration.state()}
        return {"epoch": self._epoch, "ended": self._ended, "graph": graph}

    def load_state_dict(self, state: State) -> None:
        """Restore a state from `state_dict`. Raises FormatError or UsageError."""
        saved = Saved(state)
        iteration = resume(self._node, saved.get("graph"))
        epoch, ended = saved.integer("epoch"), saved.flag("ended")
        # After the end of an epoch, a graph's state is the start of the next one.
        if epoch + ended != iteration.epoch:
            raise FormatError(f"{saved.where}.epoch is {epoch}, and that of its graph {iteration.epoch}: it is damaged")
        self._begin(iteration, epoch)
        self._ended = ended
        self._on_begin(epoch)

    def _begin(self, iteration: Iteration, epoch: int) -> None:
        self._iteration = iteration
        self._pairs = TrackedPairs(iteration, Track())
        self._epoch = epoch


class NodeIterableDataset(IterableDataset[Any]):
    """The graph below `node` as an iterable dataset.

    Each worker yields its share of the items; together they yield each item once.

    The first pass resumes at `state`. To resume with another number of workers, give the result of `merge_states` for
    the states of all old workers. With `distributed=True` the graph is first split among the ranks of the environment.

    Raises UsageError for an object that is no graph, a graph that is already split, or one with drawn seeds on several
    ranks.
    """

    def __init__(self, node: Any, *, state: State | None = None, distributed: bool = False) -> None:
        self.node = _node(node)
        self.state = state
        self._follows = False
        self.rank, self.world_size = 0, 1
        if distributed:
            self.rank, self.world_size = rank_of_environment("distributed=True")
        elif is_split(self.node):
            # The whole graph is split here, and its leaf is not split again.
            self.rank, self.world_size = rank_of_process()
        if distributed or self.world_size > 1:
            if is_partitioned(self.node):
                raise UsageError("the graph is one rank's already: leave out distributed=True, or rank and world_size")
            refuse_drawn_seeds(self.node)
        # Shared like the epochs: seeds that a worker takes from a state are also those of the next pass.
        self._seeds = torch.tensor([drawing.seed for drawing in drawing_nodes(self.node)], dtype=torch.int64)
        self._seeds.share_memory_()  # type: ignore[no-untyped-call]
        # Shared, too: where mixtures went on over other shards, as JSON. Pages that nobody writes take no memory. If
        # PyTorch filled them, it would do so in threads, for which a fork of this process would wait for ever.
        carried = torch.UntypedStorage._new_shared(CARRIED_MAX if _mixtures(self.node) else 0)  # type: ignore[no-untyped-call]
        self._carried = torch.empty(0, dtype=torch.uint8).set_(carried)
        self._next_epochs = torch.full((MOST_WORKERS,), UNBEGUN, dtype=torch.int64)
        self._next_epochs.share_memory_()  # type: ignore[no-untyped-call]

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass this epoch, also in workers."""
        self._next_epochs.fill_(epoch)

    def __iter__(self) -> Pass:
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        if workers > MOST_WORKERS:
            raise UsageError(f"{workers} workers: a dataset serves {MOST_WORKERS} at most")
        if not self._follows and (parent := parent_process()) is not None and info is not None:
            # It may wait for ever to hand over a batch: other workers hold the pipe to a process that was killed.
            end_with_parent(cast(int, parent.pid))
            self._follows = True
        node = share_of(self.node, self.rank * workers + worker, self.world_size * workers)
        drawing, seeds = drawing_nodes(node), self._seeds.tolist()
        for drawn, seed in zip(drawing, seeds, strict=True):
            drawn.seed = DrawnSeed(seed, drawn.seed.given)
        mixtures, carried = _mixtures(node), self._read_carried()
        for mixture, fields in zip(mixtures, carried, strict=False):
            mixture.recall(Saved(fields))
        iteration = _iteration(self.node, node, int(self._next_epochs[worker]), self.state)

        def count(epoch: int) -> None:
            self._next_epochs[worker] = epoch + 1
            if (loaded := [drawn.seed for drawn in drawing]) != seeds:
                self._seeds.copy_(torch.tensor(loaded))
            if (places := [mixture.carried() for mixture in mixtures]) != carried:
                self._write_carried(places)

        # Count now: if the pass is abandoned, a worker that never yields must still have counted it.
        count(iteration.epoch)
        return Pass(node, iteration, _item, count)

    def _read_carried(self) -> list[State]:
        text = bytes(self._carried.numpy()).partition(b"\0")[0]
        carried: list[State] = from_json(text) if text else []
        return carried

    def _write_carried(self, places: list[State]) -> None:
        text = to_json(places).encode() + b"\0"
        if len(text) > CARRIED_MAX:
            raise UsageError(f"what mixtures over other shards go on with takes {len(text)} bytes: mux fewer sources")
        self._carried.numpy()[: len(text)] = np.frombuffer(text, np.uint8)


class NodeDataset(Dataset[Any]):
    """The graph below `node` as a map-style dataset: from tokens to items. Use it with a `NodeSampler`.

    If the graph has ordinals, a length, and is not one rank's part, ordinals (of epoch 0) also work as keys, so that
    PyTorch's samplers can be used. Raises UsageError for a graph whose items cannot be made from tokens.
    """

    def __init__(self, node: Any) -> None:
        self.node = _restorable(node)
        is_part = is_partitioned(self.node) or is_split(self.node)
        self._has_ordinals = not is_part and count_ordinals(self.node) is not None

    def __getitem__(self, token: Any) -> Any:
        token = read_token(token)
        if type(token) is int and self._has_ordinals:
            token = self.node.token_at(token, 0)
        return maker(self.node)(token)

    def __len__(self) -> int:
        if not self._has_ordinals:
            raise UsageError(
                f"the items of this {kind_of(self.node)} have no ordinals: give NodeSampler(node) as sampler"
            )
        return len(self.node)


class NodeSampler(Sampler[Any]):
    """A sampler that yields the tokens of the graph below `node` in its order. Raises UsageError as `NodeDataset`."""

    def __init__(self, node: Any) -> None:
        self.node = _restorable(node)
        self._next_epoch = UNBEGUN

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass this epoch."""
        self._next_epoch = epoch

    def __iter__(self) -> Pass:
        # Counted only at the first token: loaders create iterators that they do not use.
        return Pass(self.node, _iteration(self.node, self.node, self._next_epoch), _token, self._count)

    def __len__(self) -> int:
        return len(self.node)

    def _count(self, epoch: int) -> None:
        self._next_epoch = epoch + 1


class SharedMemoryCollate:
    """A `collate_fn` with which workers of a `DataLoader` hand over batches through memory instead of a pipe.

    `collate` makes a batch of a list of items, by default as PyTorch does. Batches may contain whatever can be pickled;
    those of large `bytes` or arrays arrive up to twice as fast, tensors no faster. Each batch that a
    loader holds in advance (`prefetch_factor` times workers) takes its size in memory. Without workers, or elsewhere
    than on Linux, this is `collate` itself.

    Raises OSError if memory ends, and SourceError in the loader if a worker was killed.
    """

    def __init__(self, collate: Callable[[list[Any]], Any] = default_collate) -> None:
        self.collate = collate
        self._sender = Sender()

    def __call__(self, items: list[Any]) -> Any:
        """Return a batch of items, packed in a worker, as it is elsewhere."""
        batch = self.collate(items)
        return batch if get_worker_info() is None or not IS_SUPPORTED else self._sender.pack(batch)


def graph_states(loader_state: State) -> list[State]:
    """Return the graphs' states in `loader_state`, which is that of a `StatefulDataLoader`.

    There is one for each worker, or that of the main process.

    `merge_states` merges them, together with those of other ranks' loaders, into a state for any number of workers.
    After the last item of an epoch, the remainder of that epoch may be empty. Raises UsageError if the loader is past
    its last snapshot, as with `snapshot_every_n_steps` above 1, or if there is no such state.
    """
    if steps := loader_state.get("_steps_since_snapshot"):
        raise UsageError(
            f"the loader is {steps} steps past its last snapshot, and the states are those of the snapshot: "
            "use snapshot_every_n_steps=1"
        )
    states = _envelopes(loader_state)
    if not states:
        raise UsageError("no graph's state is in this: give state_dict() of a StatefulDataLoader over a node's dataset")
    return states


def _envelopes(value: Any) -> list[State]:
    if isinstance(value, dict):
        if "touchfs_state" in value:
            return [value]
        value = list(value.values())
    return [state for part in value for state in _envelopes(part)] if isinstance(value, list) else []


def _item(pair: Pair) -> Any:
    return pair[1]()


def _token(pair: Pair) -> Any:
    return pair[0]


def _mixtures(graph: Any) -> list[LazyMixture]:
    return [node for node in nodes_of(graph) if isinstance(node, LazyMixture)]


def _node(node: Any) -> Any:
    node = resolve_iterator_source(node)
    if not isinstance(node, IteratorNode):
        raise UsageError(f"a {kind_of(node)} is not a graph: put a LazyIndexedManifestIterator over it")
    return node


def _restorable(node: Any) -> Any:
    node = _node(node)
    if not supports_graph_restore(node):
        raise UsageError(f"the items of this {kind_of(node)} cannot be made from tokens: use a NodeIterableDataset")
    return node


def _iteration(given: Any, share: Any, epoch: int, state: State | None = None) -> Iteration:
    """Return an iteration of a share of the `given` graph; at first from the state loaded into it, if there is one."""
    if epoch != UNBEGUN:
        return begin(share, epoch)
    if state is None and not is_restored(given):
        return begin(share, given.next_start()[0] if isinstance(given, PairNode) else 0)
    # A share has its own part of what was loaded into the given graph.
    resumed = resume_root(share, Saved(share.state_dict())) if state is None else resume(share, state)
    # Of a pass that has ended nothing is left, and a loader begins the next one, as after its own.
    return begin(share, resumed.epoch + 1) if resumed.ended else resumed
