"""Samples that were given by name at the start: those whose keys a list has.

A thread looks them up when a page asks for them first. They stay in memory: there are as many lists as were given, and
each has a bounded number of keys.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.core.control_characters import quote_name
from touchfs.core.errors import TouchfsError, UsageError
from touchfs.dataset import Dataset
from touchfs.dataset.samples import DatasetSamples
from touchfs.explore.linked import ListQuery
from touchfs.posix.threads import start_thread
from touchfs.select.ids.names import given_names, open_given
from touchfs.select.predicates import Kinds
from touchfs.select.selection import AnySamples

KEYS_MOST = 10_000
# The first page waits so long for what is looked up.
_PATIENCE_SECONDS = 0.3
_MISSING_SHOWN = 5
_log = logging.getLogger(__name__)


class Chosen(NamedTuple):
    """Positions in the order of a list, what there is to say of them, and whether some are still being looked up."""

    positions: NDArray[np.int64]
    remarks: Sequence[str]
    is_unfinished: bool


class GivenList:
    """The samples of a list of keys that was given by name. A thread begins to look them up at once."""

    def __init__(self, name: str, dataset: Dataset, samples: DatasetSamples) -> None:
        self._name = name
        self._dataset = dataset
        self._samples = samples
        self._keys: Sequence[str] = ()
        self._looked = 0
        self._missing = list[str]()
        self._positions = list[int]()
        self._problem = ""
        self._done = threading.Event()
        start_thread(self._run, name="given")

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

    def chosen(self) -> Chosen:
        """What is found of it by now, in its order. Raises UsageError if it cannot be listed."""
        self._done.wait(_PATIENCE_SECONDS)
        is_unfinished = not self._done.is_set()
        if self._problem:
            raise UsageError(self._problem)
        remarks = [f"{self._looked:,} of {len(self._keys):,} keys are looked up"] if is_unfinished else []
        if missing := self._missing[:]:
            named = ", ".join(map(quote_name, missing[:_MISSING_SHOWN])) + ", …" * (len(missing) > _MISSING_SHOWN)
            remarks.append(f"{len(missing):,} of {len(self._keys):,} keys of @{self._name} are of no sample: {named}")
        return Chosen(np.array(self._positions[:], np.int64), remarks, is_unfinished)


class GivenSamples:
    """What was given by name. `samples` are those of the whole dataset, which is indexed."""

    def __init__(self) -> None:
        self._lists: dict[str, GivenList] = {}
        self._lock = threading.Lock()

    def names(self) -> Sequence[str]:
        """All names."""
        return given_names()

    def chosen(self, query: ListQuery, dataset: Dataset, samples: AnySamples) -> Chosen:
        """The samples of a list, but for those of another one, or those that another one has, too.

        Raises UsageError for a name that was not given, and for a list that cannot be listed.
        """
        if not isinstance(samples, DatasetSamples):
            raise UsageError("lists that were given are of samples: leave out of")
        found = self._list(query.ids, dataset, samples).chosen()
        for name, is_in in ((query.but, False), (query.also, True)):
            if name:
                other = self._list(name, dataset, samples).chosen()
                kept = found.positions[np.isin(found.positions, other.positions) == is_in]
                found = Chosen(kept, [*found.remarks, *other.remarks], found.is_unfinished or other.is_unfinished)
        return found

    def _list(self, name: str, dataset: Dataset, samples: DatasetSamples) -> GivenList:
        if name not in (names := self.names()):
            known = f": there are {', '.join(names)}" if names else ""
            raise UsageError(f"no list of this name was given by --ids NAME=FILE{known}")
        with self._lock:
            if name not in self._lists:
                self._lists[name] = GivenList(name, dataset, samples)
            return self._lists[name]


def _decoded(key: bytes) -> str:
    """The key whose `encode_key` this is."""
    try:
        return key.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return key.decode("utf-8", "surrogateescape")
