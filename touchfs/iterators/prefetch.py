"""Prefetching for iterators: the files of the samples that come next are here before anybody reads them.

Only an iterator knows what comes next in a shuffled order. A job that made a step is about to read the files of its
samples, and then makes the next step; meanwhile threads ask for the files of the following ones. Nothing is read ahead
behind the end of an epoch.

The files are served by another process, so bytes that are read ahead are of use in the scratch store only. While that
has no room, nothing is read ahead.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from time import monotonic
from typing import Any

from touchfs.core.errors import SourceError, TouchfsError
from touchfs.dataset.sample import Sample
from touchfs.iterators.live_graph import LiveGraph
from touchfs.node.transform.sample_files import BLOCK, FILE_MAX, beginnings
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.posix.threads import start_thread
from touchfs.source.remote.kept import KEPT, TURNOVER

# A graph's spec, and a token.
_Key = tuple[str, str]

THREADS = 16
# Bytes that may be ahead of the reader. A file takes up to a block more than it has, a small one two small pieces.
_AHEAD_MAX, _SMALL = 28 << 20, 128 << 10
# What a sample is taken for until one is known.
_SAMPLE_BYTES = FILE_MAX
_REMEMBERED = 4096
# The time without reading ahead after the scratch store had no room.
_REFUSED_SECONDS = 60.0


class Prefetch:
    """Asks for the files of the samples of the next `steps` steps, in daemon threads that begin with the first one."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        TURNOVER.is_for_others = True
        # A thread runs on the processors of the one that makes it, which may be pinned to one.
        self._processors = os.sched_getaffinity(0)
        # The bytes of the samples that were asked for, which are those of the sample read last until they are known.
        self._asked: BoundedCache[_Key, int] = BoundedCache(_REMEMBERED)
        self._sample_bytes = _SAMPLE_BYTES
        self._queue: deque[tuple[_Key, LiveGraph, Any]] = deque(maxlen=_REMEMBERED)
        self._ready = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []

    def follow(self, graph: LiveGraph) -> None:
        """Prefetch what comes after the position of a graph. Never waits."""
        if KEPT.refusal_since(monotonic() - _REFUSED_SECONDS) is not None:
            return
        ahead, coming = 0, list[Any]()
        with suppress(TouchfsError):  # these steps have the error themselves
            coming = graph.coming(self._steps)
        for token in coming:
            key = graph.spec_text, repr(token)
            ahead += self._asked.find(key) or self._sample_bytes
            if ahead > _AHEAD_MAX:
                break
            if key not in self._asked:
                self._ask(key, graph, token)

    def _ask(self, key: _Key, graph: LiveGraph, token: Any) -> None:
        self._asked.keep(key, self._sample_bytes)
        self._queue.append((key, graph, token))
        self._ready.release()
        if len(self._threads) < THREADS:
            try:
                self._threads.append(start_thread(self._work, name="prefetch"))
            except SourceError:  # other threads go on; without any, a step fetches its files itself
                if not self._threads:
                    self._queue.clear()

    def _work(self) -> None:
        os.sched_setaffinity(0, self._processors)
        while self._ready.acquire():
            with suppress(IndexError):
                key, graph, token = self._queue.popleft()
                # The reader of the file gets its error.
                with suppress(TouchfsError):
                    self._read(key, graph.made([token]))

    def _read(self, key: _Key, samples: Iterable[Sample]) -> None:
        files = [file for sample in samples for file in beginnings(sample)]
        self._sample_bytes = sum(2 * _SMALL if file.size <= _SMALL else file.size + BLOCK for file in files)
        if key in self._asked:
            self._asked.keep(key, self._sample_bytes)
        for file in files:
            file.fetch()
