"""Things that a process makes once and shares: open files, clients, datasets. Its forks have locks of their own."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class MadeOnce(Generic[K, T]):
    """The last `most` things that were asked for, by key. A fork has those of its parent.

    Threads that ask at once for the same thing wait until one of them has made it, and wait for no other thing. There
    is one such object for a whole process and a kind of things: it lives as long as the process.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: OrderedDict[K, T] = OrderedDict()
        self._renew_locks()
        os.register_at_fork(after_in_child=self._forked)

    def _renew_locks(self) -> None:
        self._lock = threading.Lock()
        self._making: dict[K, threading.Lock] = {}

    def _forked(self) -> None:
        self._renew_locks()  # another thread may have held them at the fork

    def find(self, key: K) -> T | None:
        """The thing of a key, or None if it is not made yet. Never waits until one is made."""
        with self._lock:
            if (found := self._made.get(key)) is not None:
                self._made.move_to_end(key)
            return found

    def get(self, key: K, make: Callable[[], T]) -> T:
        """The thing of a key, made now if there is none. Raises the errors of `make`."""
        if (found := self.find(key)) is not None:
            return found
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            if (found := self.find(key)) is not None:
                return found
            try:
                made = make()
                with self._lock:
                    self._made[key] = made
                    evicted = [self._made.popitem(last=False) for _ in range(len(self._made) - self._most)]
            finally:
                with self._lock:
                    if self._making.get(key) is making:  # after an error, another thread may have begun anew
                        del self._making[key]
        del evicted  # without a lock, as it may take long to close
        return made

    def forget(self) -> None:
        """Keep nothing."""
        with self._lock:
            forgotten, self._made = self._made, OrderedDict()
        del forgotten  # without a lock, as in `get`
