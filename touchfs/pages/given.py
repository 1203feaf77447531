"""Samples that were given by name at the start: those whose keys a list has, and those that a state has seen.

A thread looks them up when a page asks for them first. They stay in memory: there are as many as were given, and each
has a bounded number of samples.
"""

from __future__ import annotations

import logging
import os
import threading
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from touchfs.core.control_characters import quote_name
from touchfs.core.errors import FormatError, TouchfsError, UsageError
from touchfs.core.token import State
from touchfs.dataset import Dataset
from touchfs.dataset.samples import DatasetSamples
from touchfs.explore.linked import ListQuery
from touchfs.node.core.saved import Saved
from touchfs.node.graph.state import check_graph, read_state
from touchfs.node.leaf.manifest import LazyIndexedManifestIterator
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.posix.threads import start_thread
from touchfs.select.ids.names import NAME, given_names, open_given
from touchfs.select.predicates import Kinds
from touchfs.select.selection import AnySamples

KEYS_MOST = 10_000
# Of a state: 8 MB.
SEEN_MOST = 1_000_000
_COMPARED_KEPT = 2
# The first page waits so long for what is looked up.
_PATIENCE_SECONDS = 0.3
_MISSING_SHOWN = 5
_log = logging.getLogger(__name__)


class Chosen(NamedTuple):
    """Positions in the order of a list, what there is to say of them, and whether some are still being looked up. Where
    two lists are compared, how many samples only one has, and both, each with words and the list of these.
    """

    positions: NDArray[np.int64]
    remarks: Sequence[str]
    is_unfinished: bool
    compared: Sequence[tuple[str, int, ListQuery]] = ()


class _Given(ABC):
    """Samples that a name stands for. A thread begins to look them up at once."""

    def __init__(self, name: str, dataset: Dataset, samples: DatasetSamples) -> None:
        self._name = name
        self._dataset = dataset
        self._samples = samples
        self._positions = array("q")
        self._problem = ""
        self._done = threading.Event()
        start_thread(self._run, name="given")

    @abstractmethod
    def _look_up(self) -> None:
        """Add positions. Raises TouchfsError."""

    @abstractmethod
    def _remarks(self, is_unfinished: bool) -> Iterator[str]:
        """What there is to say of them by now."""

    def _run(self) -> None:
        try:
            self._look_up()
        except TouchfsError as error:
            self._problem = error.message
        except Exception as error:  # noqa: BLE001  the page says so
            self._problem = f"@{self._name} cannot be looked up: the log of the server says why"
            _log.error("a list that was given cannot be looked up: %r", error)
        finally:
            self._done.set()

    def chosen(self) -> Chosen:
        """What is found of it by now, in its order. Raises UsageError if it cannot be listed."""
        self._done.wait(_PATIENCE_SECONDS)
        is_unfinished = not self._done.is_set()
        if self._problem:
            raise UsageError(self._problem)
        return Chosen(np.array(self._positions[:], np.int64), [*self._remarks(is_unfinished)], is_unfinished)


class _GivenList(_Given):
    """The samples of a list of keys."""

    def __init__(self, name: str, dataset: Dataset, samples: DatasetSamples) -> None:
        self._keys: Sequence[str] = ()
        self._looked = 0
        self._missing = list[str]()
        super().__init__(name, dataset, samples)

    def _look_up(self) -> None:
        ids = open_given(self._name, "key")
        if ids.kinds not in (Kinds(0), Kinds.TEXT):
            raise UsageError(
                f"@{self._name} has integers, and keys are texts: filter by a field, as in id in @{self._name}"
            )
        if ids.entries > KEYS_MOST:
            raise UsageError(
                f"@{self._name} has {ids.entries:,} ids, and a page lists at most {KEYS_MOST:,}: filter with "
                f"key in @{self._name}"
            )
        self._keys = [*map(_decoded, ids.in_order())]
        shards, positions = self._samples.dataset.by_name, set[int]()
        for key in self._keys:
            holders = self._dataset.find(key)
            if not holders:
                self._missing.append(key)
            for holder in holders:
                shard = shards[os.fsencode(self._dataset.shard(holder.position).name)]
                position = self._samples.position(shard, holder.ordinal)
                if position not in positions:
                    positions.add(position)
                    self._positions.append(position)
            self._looked += 1

    def _remarks(self, is_unfinished: bool) -> Iterator[str]:
        if is_unfinished:
            yield f"{self._looked:,} of {len(self._keys):,} keys are looked up"
        if missing := self._missing[:]:
            named = ", ".join(map(quote_name, missing[:_MISSING_SHOWN])) + ", …" * (len(missing) > _MISSING_SHOWN)
            yield f"{len(missing):,} of {len(self._keys):,} keys of @{self._name} are of no sample: {named}"


class _SeenByState(_Given):
    """The samples that had come in the epoch of a state when it was saved, in the order in which they came."""

    def __init__(self, name: str, dataset: Dataset, samples: DatasetSamples, state: State) -> None:
        self._state = state
        super().__init__(name, dataset, samples)

    def _look_up(self) -> None:
        try:
            node = self._node(Saved(self._state["state"]).child("config"))
            check_graph(self._state, node)
            for position, _ in node.seen(self._state["state"]):
                if len(self._positions) == SEEN_MOST:
                    raise UsageError(
                        f"it has seen more than {SEEN_MOST:,} samples: list them by touchfs iterate --until"
                    )
                self._positions.append(cast(int, position))
        except (FormatError, UsageError) as error:
            raise UsageError(f"the state @{self._name} cannot be shown: {error.message}") from error

    def _node(self, config: Saved) -> LazyIndexedManifestIterator:
        """The graph of `touchfs iterate` over all samples in the order of a state."""
        fields = config.fields()
        seed = fields.get("seed")
        window = {name: fields[name] for name in ("window", "lanes") if name in fields}
        samples = DatasetSamples(self._dataset)
        return LazyIndexedManifestIterator(samples, seed is not None, 0 if seed is None else seed, **window)

    def _remarks(self, is_unfinished: bool) -> Iterator[str]:
        epoch = self._state["state"].get("epoch")
        yield f"@{self._name} has seen {len(self._positions):,} of {len(self._samples):,} samples of epoch {epoch}"


class GivenSamples:
    """What was given by name: lists of keys, and `states`. A name is asked for once the whole dataset is indexed."""

    def __init__(self, states: Mapping[str, State]) -> None:
        self._states = states
        self._given: dict[str, _Given] = {}
        self._lock = threading.Lock()
        self._compared: BoundedCache[ListQuery, Chosen] = BoundedCache(_COMPARED_KEPT)

    def names(self) -> Sequence[str]:
        """All names."""
        return [*given_names(), *self._states]

    def chosen(self, query: ListQuery, dataset: Dataset, samples: AnySamples) -> Chosen:
        """The samples of a list, but for those of another one, or those that another one has, too.

        Raises UsageError for a name that was not given, and for a list that cannot be listed.
        """
        if not isinstance(samples, DatasetSamples):
            raise UsageError("lists that were given are of samples: leave out of")
        if query.but and query.also:
            raise UsageError("two lists are compared: leave out but or also")
        found = self._of_name(query.ids, dataset, samples).chosen()
        if not (query.but or query.also):
            return found
        other = self._of_name(query.but or query.also, dataset, samples).chosen()
        if found.is_unfinished or other.is_unfinished:
            return _compared(query, found, other)
        names = ListQuery(ids=query.ids, but=query.but, also=query.also)
        return self._compared.get(names, lambda: _compared(query, found, other))

    def _of_name(self, name: str, dataset: Dataset, samples: DatasetSamples) -> _Given:
        if name not in (names := self.names()):
            known = f": there are {', '.join(names)}" if names else ""
            raise UsageError(f"no list of this name was given by --ids NAME=FILE or --state NAME=FILE{known}")
        with self._lock:
            if name not in self._given:
                state = self._states.get(name)
                self._given[name] = (
                    _GivenList(name, dataset, samples) if state is None else _SeenByState(name, dataset, samples, state)
                )
            return self._given[name]


def read_states(given: Sequence[str]) -> dict[str, State]:
    """The states in files, each `NAME=FILE`. Raises UsageError, and as `read_state`."""
    found: dict[str, State] = {}
    for each in given:
        name, separator, path = each.partition("=")
        if not separator or not NAME.fullmatch(name):
            raise UsageError(f"--state {each}: write NAME=FILE, with a name of letters, digits, _ and -")
        if name in found or name in given_names():
            raise UsageError(f"--state {each}: there is a list or a state of this name already")
        found[name] = read_state(path)
    return found


def _compared(query: ListQuery, found: Chosen, other: Chosen) -> Chosen:
    one, two = query.ids, query.but or query.also
    is_in = np.isin(found.positions, other.positions)
    both = int(np.count_nonzero(is_in))
    compared = (
        (f"only @{one}", len(found.positions) - both, ListQuery(ids=one, but=two, sort="listed")),
        (f"only @{two}", len(other.positions) - both, ListQuery(ids=two, but=one, sort="listed")),
        (f"@{one} and @{two}", both, ListQuery(ids=one, also=two, sort="listed")),
    )
    positions = found.positions[is_in if query.also else ~is_in]
    is_unfinished = found.is_unfinished or other.is_unfinished
    return Chosen(positions, [*found.remarks, *other.remarks], is_unfinished, compared)


def _decoded(key: bytes) -> str:
    """The key whose `encode_key` this is."""
    try:
        return key.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return key.decode("utf-8", "surrogateescape")
