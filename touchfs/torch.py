"""Datasets of PyTorch over any graph, for `DataLoader` and for torchdata's `StatefulDataLoader`.

    NodeIterableDataset(node)          workers iterate: each goes through its share of the graph
    NodeDataset(node), NodeSampler(node)
                                       the main process iterates tokens, which decodes nothing, and workers make the
                                       items: one order, and one state, whatever the number of workers

Give a graph that yields batches, such as a sampler's, to a loader with `batch_size=None`.

With a `StatefulDataLoader` any point is one to resume from; nothing is replayed. Its state is as large as the graph's,
and by default taken at each step: `snapshot_every_n_steps` makes that rarer, where much waits in samplers' buffers.

Every pass over a loader is the next epoch, whether or not the one before came to its end. Workers that are started
anew for each pass count in memory that they share with the main process, so a dataset serves one loader at a time.
`set_epoch` says which epoch comes next.

`graph_states` finds the graphs' states in a loader's, for `merge_states`, to go on with other workers or ranks.

Ranks are those of the graph's own leaves. `distributed=True` takes RANK and WORLD_SIZE from the environment instead;
nothing here looks at them otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from touchfs.errors import FormatError, MissingExtraError, UsageError
from touchfs.node.core.base import (
    Iteration,
    IteratorNode,
    Pair,
    PairNode,
    TrackedPairs,
    children_of,
    kind_of,
    resolve_iterator_source,
    supports_graph_restore,
)
from touchfs.node.core.foreign import begin, maker, resume_root
from touchfs.node.core.graph import drawing_nodes, refuse_drawn_seeds
from touchfs.node.core.saved import Saved
from touchfs.node.core.scope import Track
from touchfs.node.core.seed import DrawnSeed
from touchfs.node.core.share import is_partitioned, share_of
from touchfs.node.core.state import VERSION, graph_of, resume
from touchfs.node.leaf.dataloading import is_split, rank_of_environment, rank_of_process
from touchfs.token import State, normalize_graph_token

try:
    import torch
    from torch.utils.data import Dataset, IterableDataset, Sampler, get_worker_info
except ImportError as error:
    raise MissingExtraError("PyTorch is not installed: pip install 'touchfs[torch]'") from error

MOST_WORKERS = 1024
# Of a worker that began no pass.
UNBEGUN = -1


class Pass(Iterator[Any]):
    """One epoch of a node, and where it is in it. A restored one that had ended yields nothing."""

    def __init__(
        self, node: Any, iteration: Iteration, take: Callable[[Pair], Any], told: Callable[[int], None]
    ) -> None:
        self._node = node
        self._take = take
        # Who counts epochs is told of this one when it is under way.
        self._told = told
        self._under_way = False
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
        if not self._under_way:
            self._under_way = True
            self._told(self._epoch)
        return self._take(pair)

    def state_dict(self) -> State:
        graph = {"touchfs_state": VERSION, "graph": graph_of(self._node), "state": self._iteration.state()}
        return {"epoch": self._epoch, "ended": self._ended, "graph": graph}

    def load_state_dict(self, state: State) -> None:
        saved = Saved(state)
        iteration = resume(self._node, saved.get("graph"))
        epoch, ended = saved.integer("epoch"), saved.flag("ended")
        # After the end of an epoch, a graph's state is the start of the next one.
        if epoch + ended != iteration.epoch:
            raise FormatError(f"{saved.where}.epoch is {epoch}, and that of its graph {iteration.epoch}: it is damaged")
        self._begin(iteration, epoch)
        self._ended = ended
        self._told(epoch)

    def _begin(self, iteration: Iteration, epoch: int) -> None:
        self._iteration = iteration
        self._pairs = TrackedPairs(iteration, Track())
        self._epoch = epoch


class NodeIterableDataset(IterableDataset[Any]):
    """Each worker yields its share of the items; together they yield each once.

    The first pass goes on from `state`. One that is to be shared anew, by other workers, is what `merge_states` makes
    of the states of all that there were.
    """

    def __init__(self, node: Any, *, state: State | None = None, distributed: bool = False) -> None:
        self.node = _node(node)
        self.state = state
        self.rank, self.world_size = 0, 1
        if distributed:
            self.rank, self.world_size = rank_of_environment("distributed=True")
        elif is_split(self.node):
            # It is shared here, with the whole graph, and not split again.
            self.rank, self.world_size = rank_of_process()
        if distributed or self.world_size > 1:
            if is_partitioned(self.node):
                raise UsageError("the graph is one rank's already: leave out distributed=True, or rank and world_size")
            refuse_drawn_seeds(self.node)
        # As the epochs: what a worker took from a state, those of the next pass begin with.
        self._seeds = torch.tensor([drawing.seed for drawing in drawing_nodes(self.node)], dtype=torch.int64)
        self._seeds.share_memory_()  # type: ignore[no-untyped-call]
        self._next_epochs = torch.full((MOST_WORKERS,), UNBEGUN, dtype=torch.int64)
        self._next_epochs.share_memory_()  # type: ignore[no-untyped-call]

    def set_epoch(self, epoch: int) -> None:
        """The next pass is this epoch, in workers too."""
        self._next_epochs.fill_(epoch)

    def __iter__(self) -> Pass:
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        if workers > MOST_WORKERS:
            raise UsageError(f"{workers} workers: a dataset serves {MOST_WORKERS} at most")
        node = share_of(self.node, self.rank * workers + worker, self.world_size * workers)
        drawing, seeds = drawing_nodes(node), self._seeds.tolist()
        for drawn, seed in zip(drawing, seeds, strict=True):
            drawn.seed = DrawnSeed(seed, drawn.seed.given)
        iteration = _iteration(self.node, node, int(self._next_epochs[worker]), self.state)

        def told(epoch: int) -> None:
            self._next_epochs[worker] = epoch + 1
            if (loaded := [drawn.seed for drawn in drawing]) != seeds:
                self._seeds.copy_(torch.tensor(loaded))

        # At once: a worker of which nothing is asked, because the pass is broken off, must count it too.
        told(iteration.epoch)
        return Pass(node, iteration, _item, told)


def _has_ordinals(node: Any) -> bool:
    try:
        node.token_at(0, 0)
    except (AttributeError, TypeError, UsageError):
        return False
    except IndexError:  # it is empty
        pass
    return True


class NodeDataset(Dataset[Any]):
    """The items of tokens, for a `NodeSampler`. Where a graph is a dataset's, of known length and not one rank's, their
    ordinals (of epoch 0) do as well, so samplers of PyTorch can be used."""

    def __init__(self, node: Any) -> None:
        self.node = _restorable(node)
        self._has_ordinals = _has_ordinals(self.node) and not is_partitioned(self.node)

    def __getitem__(self, token: Any) -> Any:
        token = normalize_graph_token(token)
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
    """The tokens of a graph in its order."""

    def __init__(self, node: Any) -> None:
        self.node = _restorable(node)
        self._next_epoch = UNBEGUN

    def set_epoch(self, epoch: int) -> None:
        self._next_epoch = epoch

    def __iter__(self) -> Pass:
        # Not counted before something is taken: loaders make iterators that they throw away.
        return Pass(self.node, _iteration(self.node, self.node, self._next_epoch), _token, self._told)

    def __len__(self) -> int:
        return len(self.node)

    def _told(self, epoch: int) -> None:
        self._next_epoch = epoch + 1


def graph_states(loader_state: State) -> list[State]:
    """The graphs' states in a state of a `StatefulDataLoader`: one of each worker, or one if the main process iterates.

    `merge_states` makes of them, and of those of other ranks' loaders, one that any number of workers goes on from.
    Behind the last item of an epoch, what is left of that epoch may be nothing.
    UsageError if the loader is past its last snapshot, as with `snapshot_every_n_steps` above 1, or has none.
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
    """Of a share of the graph that was given; at first where that was told to begin, as by restore_state_dict."""
    if epoch == UNBEGUN and state is not None:
        return resume(share, state)
    if epoch != UNBEGUN:
        return begin(share, epoch)
    if not isinstance(given, PairNode):
        return resume_root(share, Saved(given.state_dict())) if _is_restored(given) else begin(share, 0)
    track = given._current_track()
    return begin(share, track.epoch) if track.loaded is None else resume_root(share, Saved(track.loaded.state()))


def _is_restored(node: Any) -> bool:
    """A state was loaded into a node of this package at or below this one, and no iteration has begun since."""
    if isinstance(node, PairNode):
        return node._current_track().loaded is not None
    return any(map(_is_restored, children_of(node)))
