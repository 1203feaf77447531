"""Prefetching for iterators: the files of the samples that come next are read before anybody asks for them.

Only an iterator knows what comes next in a shuffled order. Whoever made a step is about to read the files of its
samples, and then makes the next step; meanwhile threads read the files of the following ones. Their bytes stay where
those of any read do: in memory, and in the scratch store. A block of steps is known at once, and nothing behind its
end: so a few samples in a hundred are read without this.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from contextlib import suppress
from typing import Any

from touchfs.errors import TouchfsError
from touchfs.iterators.live_graph import LiveGraph

THREADS = 16
# Of each file so much is read: who reads more reads in order, and that is fetched ahead anyway.
_FILE_MAX, _PIECE = 8 << 20, 1 << 20
_REMEMBERED = 4096


class Prefetch:
    """Reads the files of the samples of the next `steps` steps, in daemon threads that begin with the first of them."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        # A thread runs on the processors of the one that makes it, which may be pinned to one.
        self._processors = os.sched_getaffinity(0)
        self._asked: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._queue: deque[tuple[LiveGraph, Any]] = deque(maxlen=_REMEMBERED)
        self._ready = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []

    def follow(self, graph: LiveGraph) -> None:
        """Prefetch what comes after the position of a graph. Never waits."""
        for token in graph.coming(self._steps):
            key = graph.spec_text, repr(token)
            if key in self._asked:
                continue
            self._asked[key] = None
            if len(self._asked) > _REMEMBERED:
                self._asked.popitem(last=False)
            self._queue.append((graph, token))
            self._ready.release()
            if len(self._threads) < THREADS:
                self._threads.append(threading.Thread(target=self._work, daemon=True))
                self._threads[-1].start()

    def _work(self) -> None:
        os.sched_setaffinity(0, self._processors)
        while self._ready.acquire():
            with suppress(IndexError):
                graph, token = self._queue.popleft()
                # Whoever reads the file gets its error.
                with suppress(TouchfsError):
                    _read(graph, token)


def _read(graph: LiveGraph, token: Any) -> None:
    sample = graph.root.make(token)
    for name in sample:
        content = sample.content(name)
        for offset in range(0, min(content.size, _FILE_MAX), _PIECE):
            content.read(offset, _PIECE)
