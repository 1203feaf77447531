"""`touchfs.open(path)`: the samples of a dataset as a Python sequence, with one method for each thing to do with them.

    ds = touchfs.open("train/")
    len(ds), ds[0], ds["talks/monday"], ds[10:20], ds[[7, 3]], ds + other
    for sample in ds.where("duration > 2").shuffle(seed=7): ...
    ds.read("wav", [7, 3, 12])   the bytes of three files, in one call
    ds.loader(batch_size=8, num_workers=2), ds.to_pandas(), ds.to_parquet("x.parquet")

A set is a dataset's samples in some order, and the steps that are applied to each: map, filter, batch. Everything is
computed when it is asked for. `ds.data` is the same as a graph of `touchfs.node`: it is what an iteration goes through,
and what its state is of. All methods of a set are in this one file, because users look for them in one place.
"""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import ArgumentTypeError, UsageError
from touchfs.core.location import parse_audio_root
from touchfs.core.names import hex_digest
from touchfs.core.token import State
from touchfs.dataset.sample import Sample
from touchfs.dataset.samples import DatasetSamples, Positions, as_positions
from touchfs.dataset.segments import MergedSamples, SegmentSamples
from touchfs.dataset.tokens.samples import TokenSamples
from touchfs.indexing import open_dataset
from touchfs.indexing.dataset_path import join_datasets, split_dataset_path
from touchfs.indexing.overlays.named import spell_overlay
from touchfs.indexing.serving import check_strictly, warn_of_errors
from touchfs.limits import LIMITS, Limits
from touchfs.node.graph.item_steps import BatchStep, FilterStep, ItemAt, ItemStep, ItemSteps, MapStep, PrefetchStep
from touchfs.node.graph.state import collect_state_dict, restore_state_dict
from touchfs.node.leaf.dataloading import worker_of_process
from touchfs.node.leaf.manifest import LazyIndexedManifestIterator
from touchfs.node.order.epoch import Permutation
from touchfs.node.order.order import window_of
from touchfs.node.order.partition import KEEP, Partition
from touchfs.select.concatenation import SetSamples, chosen, concatenated, filtered, find
from touchfs.select.survivors import survivors_directory
from touchfs.select.window import check_window, samples_in
from touchfs.sets.described import Described
from touchfs.sets.exports import ChosenSamples, Exports
from touchfs.shard.options import FIRST_DOT, FIRST_RULE, Options
from touchfs.view.plan import parse_plan
from touchfs.view.token_plan import TokenPlan

# Keys that a shell offers after `ds["`.
COMPLETIONS = 1000

if TYPE_CHECKING:
    from touchfs.loader import BatchLoader, ItemLoader

# A set without steps has these.
_NO_STEPS = ItemSteps()
_ONE_ORDER = (
    "a loader asks for the positions of a shuffled set one after the other: they are those of its first epoch, so all "
    "of its epochs have one order. Use samples.loader(batch_size=…, num_workers=…), or give it shuffle=True"
)

T = TypeVar("T")
U = TypeVar("U")


def open(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    sample_rate: int | None = None,
    key_rule: str = FIRST_DOT,
    segments: str = FIRST_RULE,
    audio_root: str | os.PathLike[str] | None = None,
    key_column: str | None = None,
    layout: str | None = None,
    features: str | None = None,
    split: str | None = None,
    overlay: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    limits: Limits = LIMITS,
    strict: bool = False,
) -> OpenDataset[Sample]:
    """Open the dataset at `path`: anything that `touchfs mount` takes. Shards that are not indexed yet are indexed now.
    Several paths are one dataset, in their order.

    `"DATASET:shards/NAME"` is one of its shards alone, which has the same name, samples and order there; no other is
    indexed. A file that exists under the whole name comes before that.

    `sample_rate` in Hz is that of audio without a rate of its own. `key_rule` says which dot of the name of a tar
    member ends its key, "first-dot" or "last-dot". `segments` is the rule that finds segments (docs/segments.md).
    `audio_root` is the directory or URL of the audio that JSON lines and Kaldi's directories name, or "NEW=OLD" if they
    name it as OLD. No file outside is opened. For tables, `key_column` is the column with the keys of rows, `layout` is
    "flat" or "nested", and `features` is the JSON of the types of columns. `split` is the split whose shards are
    opened, such as "train"; by default, all shards are. `overlay` is a .parquet or .jsonl, or several: its columns are
    files and fields of the samples with its keys, which are in the column that "FILE:COLUMN" names, or in the first of
    key, __key__ and id (docs/datasets.md); "none" leaves out also those that tars have beside them. `limits` are those
    of memory and time. If shards have errors, the others are served, and the log has a line; with `strict` that is an
    error.

    Raises UsageError, NotFoundError or FormatError for a source that is no dataset, UsageError for a split that it does
    not have, FormatError for a shard that cannot be opened, and SourceError where no index can be written.
    """
    if audio_root is not None:
        limits = limits.with_audio(*parse_audio_root(audio_root))
    options = Options(
        sample_rate,
        key_rule,
        limits=limits,
        segments=segments,
        key_column=key_column,
        layout=layout,
        features=features,
        split=split,
        overlays=tuple(map(spell_overlay, [overlay] if isinstance(overlay, str | os.PathLike) else overlay)),
    )
    source, below = split_dataset_path(join_datasets([path] if isinstance(path, str | os.PathLike) else path))
    dataset = open_dataset(source, options=options, below=below)
    if strict:
        check_strictly(dataset)
    samples = DatasetSamples(dataset)
    warn_of_errors(dataset)
    return OpenDataset(samples)


class SetOrder(NamedTuple):
    """The order of a set: that of the data, or shuffled by `seed`, in a `window` of so many samples in `lanes`.

    `tail` says how ranks share it.
    """

    seed: int | None = None
    tail: str = KEEP
    window: int | None = None
    lanes: int = 1

    def __str__(self) -> str:
        if self.seed is None:
            return ""
        options = {name: value for name, value in self._asdict().items() if value != self._field_defaults[name]}
        del options["seed"]
        return f".shuffle({', '.join([str(self.seed), *(f'{name}={value!r}' for name, value in options.items())])})"


_STORED = SetOrder()


class OpenDataset(Described, Exports, Generic[T]):
    """The items of a dataset in one order.

    `samples` are the samples in the dataset's order, `order` is that of the set, and `steps` are applied to each. Sets
    share what they are made of and never change.
    """

    def __init__(
        self,
        samples: SetSamples,
        order: SetOrder = _STORED,
        steps: ItemSteps = _NO_STEPS,
    ) -> None:
        self._samples = samples
        self._order = order
        self._steps = steps
        self._asked = 0  # how many batches a loader has asked for in order, from the first on

    @cached_property
    def data(self) -> Any:
        """The graph of nodes that an iteration goes through (`touchfs.node`)."""
        return self._steps.graph(self._leaf)

    @cached_property
    def _leaf(self) -> LazyIndexedManifestIterator:
        seed, tail, window, lanes = self._order
        return LazyIndexedManifestIterator(
            self._samples, seed is not None, seed or 0, tail=tail, window=window, lanes=lanes
        )

    def __len__(self) -> int:
        """The number of items. Raises TypeError for a filtered set."""
        return self._steps.length(len(self._samples))

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[T]:
        """The items. Each pass over a shuffled set is the next epoch, in another order, as for a training run."""
        return iter(self.data)

    @overload
    def __getitem__(self, which: int | str) -> T: ...

    @overload
    def __getitem__(self, which: slice | list[int] | range | NDArray[Any]) -> OpenDataset[T]: ...

    def __getitem__(self, which: int | str | slice | list[int] | range | NDArray[Any]) -> T | OpenDataset[T]:
        """The i-th item of the first epoch, the item of a key, or a set of the items in a slice or at some positions.

        Raises IndexError, KeyError, and TypeError where the set has no length.
        """
        if type(which) is int and 0 <= which < len(self):  # what loaders ask for, in a third of the time of all below
            item: T = self._item_at(which)
            return item
        if isinstance(which, slice):
            return self._slice(which)
        if isinstance(which, str):
            return cast(T, self._item_at(self.find(which)))
        if isinstance(which, list | range | np.ndarray):
            return self.select(which)
        count, position = len(self), operator.index(which)
        if not -count <= position < count:
            raise IndexError(f"item {position} of {count}")
        return cast(T, self._item_at(position % count))

    def __contains__(self, item: object) -> bool:
        """True for a key of this set, and for an item of it. Raises TypeError for a filtered set."""
        if not isinstance(item, str):
            return any(self[position] == item for position in range(len(self)))
        with suppress(KeyError):
            self.find(item)
            return True
        return False

    def __getitems__(self, positions: Sequence[int]) -> list[T]:
        """The items at these positions, from 0 on: what PyTorch's DataLoader asks for as a batch."""
        if len(positions) and not 0 <= min(positions) <= max(positions) < len(self):
            raise IndexError(f"items {min(positions)} to {max(positions)} of {len(self)}")
        if self._order.seed is not None and self._is_asked_in_order(positions):
            warnings.warn(_ONE_ORDER, stacklevel=2)
        if self._steps.have_batches:
            return self._steps.items(self._item_at, positions)
        # A permutation of many positions takes as long as one of a single position.
        item_at = self._steps.item_at(self._samples.__getitem__, len(self._samples))
        return self._steps.items(item_at, self._ordinals(positions))

    def _is_asked_in_order(self, positions: Sequence[int]) -> bool:
        """True if a loader asks for batches in order: in a worker, for those of this worker."""
        worker, workers = worker_of_process()
        size = len(positions)
        first = (worker + self._asked * workers) * size
        if list(positions) != [*range(first, first + size)]:
            return False
        self._asked += 1
        return size * self._asked > 1  # a sampler that shuffles begins so hardly ever

    @cached_property
    def _item_at(self) -> ItemAt:
        sample_at = self._samples.__getitem__ if self._permutation is None else self._sample
        return self._steps.item_at(sample_at, len(self._samples))

    def _sample(self, position: int) -> Sample:
        """The sample at a position of the first epoch of a shuffled set."""
        return self._samples[self._ordinals([position])[0]]

    def _ordinals(self, positions: Positions) -> list[int]:
        """The places in the dataset of the samples at these positions of the first epoch."""
        places = np.asarray(positions, np.int64)
        return cast("list[int]", (places if self._permutation is None else self._permutation(places)).tolist())

    @cached_property
    def _permutation(self) -> Permutation | None:
        return self._leaf.order.permutation(0)

    def _slice(self, which: slice) -> OpenDataset[T]:
        if not self._steps.are_item_by_item:
            raise TypeError("slice, or take from, the set before it is filtered or batched")
        span = range(len(self))[which]
        ordinals = np.array(self._ordinals(span), np.int64)
        order = "" if self._order.window is None else f", {self._order}"
        text = f"items {span.start}:{span.stop}:{span.step} of seed {self._order.seed}{order}"
        return self._of(chosen(self._samples, ordinals, text))

    def _of(self, samples: SetSamples) -> OpenDataset[T]:
        """The same of some samples, which are in order."""
        return OpenDataset(samples, SetOrder(tail=self._order.tail), self._steps)

    def select(self, positions: Iterable[int] | NDArray[Any]) -> OpenDataset[T]:
        """The items at these positions of the first epoch, in this order; they may repeat. `ds[[1, 2]]` is the same.

        Raises IndexError for a position that there is not.
        """
        if not self._steps.are_item_by_item:
            raise TypeError("select from the set before it is filtered or batched")
        given = positions if isinstance(positions, Sequence | np.ndarray) else [*positions]
        ordinals = np.array(self._ordinals(as_positions(given, len(self))), np.int64)
        text = f"items {hex_digest(ordinals.astype('<i8').tobytes())}"
        return self._of(chosen(self._samples, ordinals, text))

    def read(self, extension: str, positions: Positions) -> list[bytes]:
        """Read the file with an extension of many samples in one call: faster than `self[i][extension]` for each.

        `positions` are integers of shape (n,), such as a list, a range or an array, in any order; they may repeat.
        The bytes are in the same order. Files are read in the order of the data, small neighbours with one call:
        beside the result this takes about 200 bytes a position, and 128 KiB.

        Raises IndexError, NotFoundError for a sample without such a file, ChangedError for data that has changed
        since it was indexed, and TypeError for a set with steps.
        """
        if not self._steps.keep_samples:
            raise TypeError("files are read of samples: read them before map, filter and batch")
        if self._permutation is not None:
            positions = self._permutation(as_positions(positions, len(self)))
        return self._samples.read(extension, positions)

    def take(self, n: int) -> OpenDataset[T]:
        """The first `n` items, or all of them if there are fewer."""
        if n < 0:
            raise UsageError(f"take 0 or more items, not {n}")
        return self._slice(slice(n))

    def skip(self, n: int) -> OpenDataset[T]:
        """All items but the first `n`."""
        if n < 0:
            raise UsageError(f"skip 0 or more items, not {n}")
        return self._slice(slice(n, None))

    def __add__(self, other: OpenDataset[T]) -> OpenDataset[T]:
        """The items of this set, and then those of another one, which may be of another dataset.

        Raises TypeError for sets that are shuffled, or that have other steps: add them before.
        """
        if not isinstance(other, OpenDataset):
            return NotImplemented
        if self._order.seed is not None or other._order.seed is not None:
            raise TypeError("add the sets before they are shuffled: (a + b).shuffle(seed)")
        if self._steps != other._steps or not self._steps.are_item_by_item:
            raise TypeError("add the sets before map, filter and batch: (a + b).map(function)")
        return OpenDataset(concatenated(self._samples, other._samples), steps=self._steps)

    def keys(self) -> Iterator[str]:
        """The keys of the samples in this order, read from the index alone. Samples without one are named by number."""
        if not self._steps.are_item_by_item:
            raise TypeError("the keys are those of the set before it is filtered or batched")
        return (self._samples[ordinal].key for ordinal in self._ordinals(range(len(self))))

    def find(self, key: str) -> int:
        """The position of the first sample, or segment, with this key. Raises KeyError if this set has none."""
        if not self._steps.are_item_by_item:
            raise TypeError("a key is found in the set before it is filtered or batched")
        ordinal = find(self._samples, key)
        if ordinal is None:
            raise KeyError(f"no sample has the key {key!r}")
        return self._leaf.order.own(ordinal, 0)

    def where(self, expression: str) -> OpenDataset[T]:
        """The samples for which a filter expression holds, such as `duration > 2 and lang == "de"`.

        The positions that remain are computed once for each dataset and expression, and kept with the index. The set
        has a length. Raises UsageError for an expression that cannot be parsed, or a field that no sample has: of sets
        that were added, in one of them.
        """
        if not isinstance(expression, str):
            kind = type(expression).__name__
            raise ArgumentTypeError(
                f"where takes an expression as text, not a {kind}: filter(function) takes functions"
            )
        if not self._steps.are_item_by_item:
            raise TypeError("where(...) is for samples: call it before filter and batch")
        kept = filtered(self._samples, expression, survivors_directory())
        return OpenDataset(kept, self._order, self._steps)

    def shuffle(
        self, seed: int = 0, *, tail: str = KEEP, window: int | str | None = None, lanes: int = 1
    ) -> OpenDataset[T]:
        """The same items in a random order that depends on `seed` and on the epoch: a permutation of all of them.

        `tail` is for ranks and workers that share the items (`loader`, `touchfs.torch.NodeIterableDataset`): with
        "keep" some have one more than others, "drop" leaves the last ones out, and "pad" repeats the first ones.

        A `window` of so many items, or of a size such as "2GB", keeps the order near that of the data, for data that is
        remote and larger than the cache; `lanes` are for so many machines that share it (docs/orders.md). Raises
        UsageError for any other value.
        """
        if self._steps.have_batches:
            raise TypeError("shuffle the set before it is batched")
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise UsageError(f"a seed is an integer, not {seed!r}")
        count = None if window is None else samples_in(check_window(window, "window"), self._samples)
        window_of(seed, count, lanes)
        return OpenDataset(self._samples, SetOrder(seed, Partition(tail=tail).tail, count, lanes), self._steps)

    def map(self, fn: Callable[[T], U]) -> OpenDataset[U]:
        """`fn(item)` in the place of each item. `fn` must depend on the item alone."""
        return self._then(MapStep(fn))

    def filter(self, predicate: Callable[[T], Any]) -> OpenDataset[T]:
        """The items for which `predicate(item)` is true. Such a set has no length; `where` gives one that has."""
        return self._then(FilterStep(predicate))

    def batch(self, n: int) -> OpenDataset[list[T]]:
        """Lists of `n` items; the last one may be shorter."""
        if n < 1:
            raise UsageError(f"a batch has 1 or more items, not {n}")
        return self._then(BatchStep(n))

    def prefetch(self, ahead: int = 16, threads: int = 8) -> OpenDataset[T]:
        """The same items, of which an iteration makes the next `ahead` before they are taken, in `threads` threads.

        The functions of the maps before it run in these threads, so they must be safe for that. Of samples the files
        are fetched, up to 8 MiB of each: from another store they are asked for all at once. An item of a filter is
        made to be tested, so call `prefetch` before it. PyTorch's DataLoader asks for all items of a batch at once:
        threads make them, and also run the functions of the maps after it.

        A state holds the items that are on their way, so it is of a set with the same `ahead`. Raises UsageError
        for numbers that are no integers from 1 on.
        """
        return self._then(PrefetchStep(ahead, threads))

    def _then(self, step: ItemStep) -> OpenDataset[Any]:
        return OpenDataset(self._samples, self._order, self._steps.then(step))

    def segments(self) -> OpenDataset[Sample]:
        """The time segments of all recordings, each as a sample (the files of `segments/` in a mount)."""
        return OpenDataset(SegmentSamples(self._whole("segments").dataset))

    def merged(self, plan: str) -> OpenDataset[Sample]:
        """Adjacent segments merged by a plan such as `max=30,gap=0.5` (the files of `merged/PLAN/` in a mount)."""
        return OpenDataset(MergedSamples(self._whole("merged").dataset, parse_plan(plan)))

    def tokens(self, length: int, overlap: int = 0, drop_last: bool = False) -> OpenDataset[Sample]:
        """The tokens of all documents of each shard, in windows of `length` (the files of `tokens/LENGTH/` in a mount).

        Each window is a sample: `array()` has its tokens in their stored dtype, `array("cu_seqlens.npy")` where its
        documents end, and `json()` their keys. A window begins with the last `overlap` tokens of the one before it. The
        last one of a shard may be shorter, which `drop_last` leaves out.

        Raises UsageError for a dataset without tokens, and for an overlap that is not less than the length.
        """
        plan = TokenPlan(operator.index(length), operator.index(overlap), bool(drop_last))
        return OpenDataset(TokenSamples(self._whole("tokens").dataset, plan))

    def _whole(self, name: str) -> DatasetSamples:
        if self._steps or self._order.seed is not None or not isinstance(self._samples, DatasetSamples):
            raise TypeError(f"{name} is of a whole dataset: call it first, then where, shuffle and the others")
        return self._samples

    def _chosen(self, what: str) -> ChosenSamples:
        if not self._steps.keep_samples:
            raise TypeError(f"{what} is of samples: make it before map, filter and batch")
        return ChosenSamples(self._samples, self._ordinals(range(len(self))))

    def loader(
        self,
        batch_size: int | None = None,
        num_workers: int = 0,
        *,
        global_batch: int | None = None,
        max_duration: float | None = None,
        max_tokens: int | None = None,
        pack: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        collate_fn: Callable[[list[T]], Any] | None = None,
        **options: Any,
    ) -> BatchLoader | ItemLoader:
        """A PyTorch loader of the items, in batches of `batch_size`, which `num_workers` processes make.

        Each pass over it is the next epoch, in another order if the set is shuffled. Ranks share batches of
        `global_batch`, or `batch_size` times ranks, items. What is in them depends neither on ranks nor on workers, and
        the loader's own `state_dict` is the same on all ranks: with any others, `load_state_dict` goes on with the next
        batch. What becomes of a short last batch, `shuffle(tail=…)` says. `rank` and `world_size` are those of
        torch.distributed, or RANK and WORLD_SIZE in the environment, if they are not given.

        With `max_duration` in seconds, or `max_tokens`, batches have as many samples of like length as fit, padded to
        the longest; with `pack` as many as fit one behind the other. `global_batch` then counts such batches, by
        default one for each rank (docs/orders.md, "Batches by length").

        After `filter`, and without a batch size, the loader is torchdata's: it resumes exactly with the same number of
        workers. Without a batch size items come one by one, such as the batches of `batch`. `collate_fn` makes a batch
        of a list of items: by default, samples stay in a list, and others are put together as PyTorch does. It begins
        where `load_state_dict` has put this set. `options` are those of PyTorch's DataLoader.

        Raises UsageError for batches of batches, and for a global batch that ranks cannot divide, and MissingExtraError
        without PyTorch and torchdata.
        """
        from touchfs.loader import loader

        given = batch_size, global_batch, max_duration, max_tokens
        if self._steps.have_batches and any(each is not None for each in given):
            raise UsageError("the items of the set are batches already: leave out batch_size")
        return loader(
            self.data,
            batch_size,
            num_workers,
            global_batch=global_batch,
            max_duration=max_duration,
            max_tokens=max_tokens,
            pack=pack,
            rank=rank,
            world_size=world_size,
            collate_fn=collate_fn,
            **options,
        )

    def state_dict(self) -> State:
        """The position of the iteration, to be saved."""
        return collect_state_dict(self.data)

    def load_state_dict(self, state: State, extend: bool = False) -> None:
        """The next iteration begins where the state says.

        With `extend`, the dataset may have other shards than before: what is left of the order comes first, and then
        what is new, and a warning says how many (docs/orders.md). Raises UsageError for a state of another set.
        """
        restore_state_dict(self.data, state, extend)

    def _ipython_key_completions_(self) -> list[str]:
        count = min(len(self), COMPLETIONS) if self._steps.are_item_by_item else 0
        return [self._samples[ordinal].key for ordinal in self._ordinals(range(count))]

    def __getstate__(self) -> dict[str, Any]:
        return {"_samples": self._samples, "_order": self._order, "_steps": self._steps, "_asked": 0}

    def __repr__(self) -> str:
        return f"{self._described()}{self._order}{self._steps}"
