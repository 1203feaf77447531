"""Shards that are indexed when a request looks into them.

Threads of their own index them, not those that answer: a client that goes away meanwhile frees its thread, and a shard
is indexed once, however many clients wait for it.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from itertools import accumulate

from touchfs.dataset import Dataset
from touchfs.indexing.dataset_path import ROOT_NAMES
from touchfs.posix.threads import ThreadPool

# Shards that are indexed at a time: most of them wait for a store.
_THREADS = 32
_LOOK_SECONDS = 0.5
# Directories of the root whose directories are of one shard each.
_BY_SHARD = ("shards", "segments", "merged", "tokens")


class OnDemand:
    """Indexes the shards of a dataset for any number of threads."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        # What has to be done by directories: other directories than those of shards need all shards.
        needed: dict[bytes, Callable[[], object]]
        needed = dict.fromkeys((name.encode() for name in ROOT_NAMES if name not in _BY_SHARD), lambda: dataset.indexed)
        for position, shard in enumerate(dataset.listed):
            needed[os.fsencode(shard.path_in("shards"))] = partial(dataset.headers, position)
            needed[os.fsencode(shard.path_in("segments"))] = partial(dataset.shard, position)
        self._needed = needed
        self._threads = ThreadPool(_THREADS, "indexing")
        self._calls: dict[bytes, Future[object]] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Begin to index no more shards, and let the threads end. Does not wait."""
        self._threads.cancel()

    def wait(self, directory: tuple[bytes, ...], is_gone: Callable[[], bool]) -> None:
        """Wait until a directory can be looked into. `is_gone` tells whether the client has gone away.

        Raises ConnectionAbortedError if it has, and SourceError if no index can be written.
        """
        if self._dataset.is_indexed:
            return
        if directory[:1] in ((b"merged",), (b"tokens",)):  # their plans have directories of shards as segments do
            directory = (b"segments", *directory[2:])
        above = accumulate(directory, lambda path, name: path + b"/" + name)
        for path in above:
            if path not in self._needed:
                continue
            call = self._call(path)
            while not wait([call], _LOOK_SECONDS).done:
                if is_gone():
                    raise ConnectionAbortedError(errno.ECONNABORTED, "the client has gone away")
            call.result()

    def _call(self, path: bytes) -> Future[object]:
        """The call that indexes what a directory needs. One that failed is made again."""
        with self._lock:
            call = self._calls.get(path)
            if call is None or (call.done() and call.exception() is not None):
                call = self._calls[path] = self._threads.submit(self._needed[path])
            return call
