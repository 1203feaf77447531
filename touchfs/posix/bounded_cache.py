"""The one kind of cache: values by key, of which those that were asked for last stay.

Any number of threads share one. To find a value takes no lock, as that would take three times as long as all else. Each
call of an OrderedDict is one step for other threads, if no key is compared by Python code meanwhile. So a key is looked
up in the dict, where any may be, and then the very key that is there is moved.

Changes are several steps. One lock serves all caches of a process, as it is held for a few steps of ours and nothing
else: no value is made, measured or let go of meanwhile. It is reentrant, as the garbage collector may let go of a table
anywhere. A fork has the values of its parent, a lock of its own, and waits for nothing that its parent makes.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

_lock = threading.RLock()
# What is being made, by the number of its cache and its key.
_making: dict[tuple[int, Hashable], Future[Any]] = {}


def _forked() -> None:
    global _lock
    _lock = threading.RLock()  # another thread may have held it at the fork
    _making.clear()


os.register_at_fork(after_in_child=_forked)


class BoundedCache(Generic[K, T]):
    """At most `most` values, or of `most` bytes by `size_of`, and in any case the latest one. None is no value.

    `evicted` gets each value that the cache lets go of by itself, without a lock. Others may still use it: so it closes
    only what opens itself again. A cache is sent to other processes without its values.
    """

    __slots__ = ("_evicted", "_get", "_kept", "_most", "_size", "_size_of", "_use")

    def __init__(
        self, most: int, size_of: Callable[[T], int] | None = None, evicted: Callable[[T], object] | None = None
    ) -> None:
        self._most = most
        self._size_of = size_of
        self._evicted = evicted
        # The key, the value, and its size.
        self._kept: OrderedDict[K, tuple[K, T, int]] = OrderedDict()
        self._size = 0
        self._get, self._use = self._kept.get, self._kept.move_to_end  # else a hit takes twice as long

    def find(self, key: K) -> T | None:
        """The value of a key, or None. Never waits."""
        entry = self._get(key)
        if entry is None:
            return None
        try:
            self._use(entry[0])
        except KeyError:  # another thread has just let go of it
            return None
        return entry[1]

    def get(self, key: K, make: Callable[[], T]) -> T:
        """The value of a key, made now if there is none. Who asks for it meanwhile waits, and for no other value.

        Raises what `make` raises, in all threads that wait for it. The next one that asks makes it again.
        """
        found = self.find(key)
        if found is not None:
            return found
        name, future = (id(self), key), Future[T]()
        with _lock:
            entry, making = self._kept.get(key), _making.get(name)
            if entry is None and making is None:
                _making[name] = future
        if entry is not None:
            return entry[1]
        if making is not None:
            try:
                made: T = making.result()
                return made
            finally:
                del making  # its error refers to this frame
        try:
            made = make()
            self.keep(key, made)
        except BaseException as error:
            _making.pop(name, None)  # gone in a fork that is made meanwhile
            future.set_exception(error)
            raise
        _making.pop(name, None)
        future.set_result(made)
        return made

    def keep(self, key: K, value: T) -> None:
        """Keep a value, in place of the one with this key, and let go of those that were not asked for the longest."""
        size = 1 if self._size_of is None else self._size_of(value)
        gone = []
        with _lock:
            if (before := self._kept.pop(key, None)) is not None:
                gone.append(before)
            self._kept[key] = key, value, size
            self._size += size - (0 if before is None else before[2])
            while self._size > self._most and len(self._kept) > 1:
                _, oldest = self._kept.popitem(last=False)
                self._size -= oldest[2]
                gone.append(oldest)
        self._let_go(gone)

    def pop(self, key: K) -> T | None:
        """Keep the value of a key no longer; returns it, or None."""
        with _lock:
            entry = self._kept.pop(key, None)
            self._size -= 0 if entry is None else entry[2]
        return None if entry is None else entry[1]

    def forget(self) -> None:
        """Keep nothing."""
        with _lock:
            gone, self._size = list(self._kept.values()), 0
            self._kept.clear()
        self._let_go(gone)

    def items(self) -> list[tuple[K, T]]:
        """The keys and the values, the latest last."""
        with _lock:
            return [entry[:2] for entry in self._kept.values()]

    def __contains__(self, key: K) -> bool:
        return key in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    def _let_go(self, gone: list[tuple[K, T, int]]) -> None:
        if self._evicted is not None:
            for _, value, _ in gone:
                self._evicted(value)

    def __reduce__(self) -> tuple[Any, ...]:
        return BoundedCache, (self._most, self._size_of, self._evicted)
