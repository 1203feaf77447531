"""Prefetching for iterators: the files of the samples that come next are here before anybody reads them.

Only an iterator knows what comes next in a shuffled order. Whoever made a step is about to read the files of its
samples, and then makes the next step; meanwhile threads ask for the files of the following ones. Their bytes stay where
those of any read do: in memory, and in the scratch store. Nothing is read ahead behind the end of an epoch.

If the scratch store has no room, only the memory is left (64 MiB, `source/remote/kept.py`). It gives up what was read
least recently: what is asked for now goes before all that is read until its turn. So less than half of it is read
ahead, or the last of it would drive out the first.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

from touchfs.dataset.sample import Sample
from touchfs.errors import TouchfsError
from touchfs.extent import Content, Extent
from touchfs.iterators.live_graph import LiveGraph

# A graph's spec, and a token.
_Key = tuple[str, str]

THREADS = 16
# Of each file so much is asked for: who reads more reads in order, and that is fetched ahead anyway.
_FILE_MAX, _BLOCK = 8 << 20, 1 << 20
# Bytes that may be ahead of the reader. A file takes up to a block more than it has, a small one two small pieces.
_AHEAD_MAX, _SMALL = 28 << 20, 128 << 10
# What a sample is taken for until one is known.
_SAMPLE_BYTES = 8 << 20
_REMEMBERED = 4096


@runtime_checkable
class PrefetchingSource(Protocol):
    """A source of another store. That is a `UrlFile`, whose module is not loaded for local data."""

    def prefetch(self, offset: int, length: int) -> None:
        """Have bytes fetched without waiting for them."""
        ...


class Prefetch:
    """Asks for the files of the samples of the next `steps` steps, in daemon threads that begin with the first one."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        # A thread runs on the processors of the one that makes it, which may be pinned to one.
        self._processors = os.sched_getaffinity(0)
        # The bytes of the samples that were asked for, which are those of the sample read last until they are known.
        self._asked: OrderedDict[_Key, int] = OrderedDict()
        self._sample_bytes = _SAMPLE_BYTES
        self._queue: deque[tuple[_Key, LiveGraph, Any]] = deque(maxlen=_REMEMBERED)
        self._ready = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []

    def follow(self, graph: LiveGraph) -> None:
        """Prefetch what comes after the position of a graph. Never waits."""
        ahead, coming = 0, list[Any]()
        with suppress(TouchfsError):  # whoever makes these steps gets their error
            coming = graph.coming(self._steps)
        for token in coming:
            key = graph.spec_text, repr(token)
            ahead += self._asked.get(key, self._sample_bytes)
            if ahead > _AHEAD_MAX:
                break
            if key not in self._asked:
                self._ask(key, graph, token)

    def _ask(self, key: _Key, graph: LiveGraph, token: Any) -> None:
        self._asked[key] = self._sample_bytes
        if len(self._asked) > _REMEMBERED:
            self._asked.popitem(last=False)
        self._queue.append((key, graph, token))
        self._ready.release()
        if len(self._threads) < THREADS:
            self._threads.append(threading.Thread(target=self._work, daemon=True))
            self._threads[-1].start()

    def _work(self) -> None:
        os.sched_setaffinity(0, self._processors)
        while self._ready.acquire():
            with suppress(IndexError):
                key, graph, token = self._queue.popleft()
                # Whoever reads the file gets its error.
                with suppress(TouchfsError):
                    self._read(key, graph.root.make(token))

    def _read(self, key: _Key, sample: Sample) -> None:
        contents = [sample.content(name) for name in sample]
        sizes = [min(content.size, _FILE_MAX) for content in contents]
        self._sample_bytes = sum(2 * _SMALL if size <= _SMALL else size + _BLOCK for size in sizes)
        if key in self._asked:
            self._asked[key] = self._sample_bytes
        for content, size in zip(contents, sizes, strict=True):
            _fetch(content, size)


def _fetch(content: Content, size: int) -> None:
    """Have the first `size` bytes of a content here soon. A store is asked for those of a file, and not waited for; all
    others are read.
    """
    if isinstance(content, Extent) and isinstance(content.source, PrefetchingSource):
        content.source.prefetch(content.offset, size)
        return
    for offset in range(0, size, _BLOCK):
        content.read(offset, _BLOCK)
