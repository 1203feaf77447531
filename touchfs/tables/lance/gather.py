"""Rows that threads ask for at the same time are taken together, by one of the threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from touchfs.core.errors import SourceError, TouchfsError

if TYPE_CHECKING:
    import pyarrow

# Rows of requests that are served together.
GATHERED_MAX = 1024


class _Request:
    """Rows that a thread asks for, and their table or the error when `woken` is set. If both are None, it serves."""

    __slots__ = ("error", "rows", "table", "woken")

    def __init__(self, rows: list[int]) -> None:
        self.rows = rows
        self.table: pyarrow.Table | None = None
        self.error: TouchfsError | None = None
        self.woken = threading.Event()


class Gatherer:
    """Takes rows for many threads. One thread at a time serves: it takes all rows that wait, and wakes the next one."""

    def __init__(self, take: Callable[[list[int]], pyarrow.Table]) -> None:
        self._take = take
        self._waiting: deque[_Request] = deque()
        self._is_serving = False
        self._lock = threading.Lock()

    def take(self, rows: list[int]) -> pyarrow.Table:
        """The table of rows. Raises what `take` raises for them."""
        request = _Request(rows)
        with self._lock:
            self._waiting.append(request)
            must_wait, self._is_serving = self._is_serving, True
        if must_wait:
            request.woken.wait()
        if request.table is None and request.error is None:
            self._serve()
        if request.error is not None:
            raise request.error
        return request.table

    def _serve(self) -> None:
        """Serve the first request that waits, and those behind it."""
        with self._lock:
            served = [self._waiting.popleft()]
            count = len(served[0].rows)
            while self._waiting and (count := count + len(self._waiting[0].rows)) <= GATHERED_MAX:
                served.append(self._waiting.popleft())
        try:
            self._answer(served)
        except BaseException:  # as KeyboardInterrupt: nobody else shall wait for ever
            for request in served:
                request.error = SourceError("reading was interrupted")
            raise
        finally:
            with self._lock:
                self._is_serving = bool(self._waiting)
                if self._waiting:
                    self._waiting[0].woken.set()
            for request in served:
                request.woken.set()

    def _answer(self, served: list[_Request]) -> None:
        try:
            table = self._take([row for request in served for row in request.rows])
        except TouchfsError as error:
            if len(served) == 1:
                served[0].error = error
                return
            for request in served:  # so that a damaged row is an error for those who want it
                self._answer([request])
            return
        first = 0
        for request in served:
            request.table = table.slice(first, len(request.rows))
            first += len(request.rows)
