"""Results that a process makes once and keeps in memory: the last ones, up to a number of bytes.

Threads that ask for the same result at once wait for one making. A FormatError is a result, too, and is kept for
`RETRY_SECONDS`: else a directory of the segments of a damaged recording would take as long for each file. Then it is
tried again, as the machine may have been busy.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from math import inf
from time import monotonic
from typing import Generic, NamedTuple, TypeVar

from touchfs.errors import FormatError

RETRY_SECONDS = 60.0
# Bytes of an entry besides its result: objects, their keys, and the text of an error.
_ENTRY_BYTES = 2000


T = TypeVar("T")


class _KeptResult(NamedTuple, Generic[T]):
    """A result, or the error of making it, and how long it is kept, by time.monotonic."""

    result: T | FormatError
    until: float = inf


class Results(Generic[T]):
    """The last results, and those that are being made now. `size_of` returns the bytes that one takes in memory.

    A forked process continues with those of its parent.
    """

    def __init__(self, kept_bytes: int, size_of: Callable[[T], int]) -> None:
        self._kept_bytes = kept_bytes
        self._size_of = size_of
        self._outcomes: OrderedDict[Hashable, _KeptResult[T]] = OrderedDict()
        self._size = 0
        self._after_fork()
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()  # another thread may have held it at the fork
        self._running: dict[Hashable, Future[_KeptResult[T]]] = {}

    def known(self, key: Hashable) -> T | None:
        """The result of a key if this process has it, else None. Never waits for a making."""
        with self._lock:
            outcome = self._find(key)
        return None if outcome is None or isinstance(outcome.result, FormatError) else outcome.result

    def _find(self, key: Hashable) -> _KeptResult[T] | None:
        outcome = self._outcomes.get(key)
        if outcome is None or outcome.until < monotonic():
            return None
        self._outcomes.move_to_end(key)
        return outcome

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The result of a key, made if it is missing. Raises what `make` raises."""
        with self._lock:
            outcome = self._find(key)
            running = self._running.get(key)
            if outcome is None and running is None:
                ours = self._running[key] = Future[_KeptResult[T]]()
        if outcome is None:
            outcome = running.result() if running is not None else self._run(key, make, ours)
        if isinstance(outcome.result, FormatError):  # another object each time, as its catcher may add a path
            raise type(outcome.result)(outcome.result.message, offset=outcome.result.offset)
        return outcome.result

    def _run(self, key: Hashable, make: Callable[[], T], future: Future[_KeptResult[T]]) -> _KeptResult[T]:
        try:
            outcome = _outcome(make)
        except BaseException as error:
            future.set_exception(error)
            raise
        else:
            self._add(key, outcome)
            future.set_result(outcome)
            return outcome
        finally:
            with self._lock:
                self._running.pop(key, None)

    def _add(self, key: Hashable, outcome: _KeptResult[T]) -> None:
        with self._lock:
            old = self._outcomes.pop(key, None)
            self._outcomes[key] = outcome
            self._size += self._bytes(outcome) - (0 if old is None else self._bytes(old))
            while self._size > self._kept_bytes and len(self._outcomes) > 1:
                _, oldest = self._outcomes.popitem(last=False)
                self._size -= self._bytes(oldest)

    def _bytes(self, outcome: _KeptResult[T]) -> int:
        return _ENTRY_BYTES + (0 if isinstance(outcome.result, FormatError) else self._size_of(outcome.result))


def _outcome(make: Callable[[], T]) -> _KeptResult[T]:
    """The outcome of a making. Errors that the next one may not have are raised."""
    try:
        return _KeptResult(make())
    except FormatError as error:
        return _KeptResult(type(error)(error.message, offset=error.offset), monotonic() + RETRY_SECONDS)
