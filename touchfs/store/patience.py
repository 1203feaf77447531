"""The time that a request may wait in total: for a thread, for a lock and for other processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import TypeVar

WAIT_SECONDS = 30.0

T = TypeVar("T")


class Patience:
    """The time budget of one request for waiting. Time spent working does not count."""

    __slots__ = ("_until", "seconds")

    def __init__(self, seconds: float = WAIT_SECONDS) -> None:
        self.seconds = seconds
        self._until = monotonic() + seconds

    @property
    def left(self) -> float:
        """The seconds that are left, 0 or more."""
        return max(self._until - monotonic(), 0.0)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Do not count the time spent in the block."""
        begin = monotonic()
        try:
            yield
        finally:
            self._until += monotonic() - begin


# The patience of a caller that must not wait at all. The store then raises WouldWaitError where it would wait.
_NONE = Patience(0)
_current: ContextVar[Patience | None] = ContextVar("patience", default=None)


def current_patience() -> Patience:
    """Return the patience of the request that this thread serves, or a new one outside of a request."""
    return _current.get() or Patience()


def with_patience(patience: Patience, function: Callable[..., T], *arguments: object) -> T:
    """Call a function with this as its current patience."""
    before = _current.set(patience)
    try:
        return function(*arguments)
    finally:
        _current.reset(before)


def without_waiting(function: Callable[..., T], *arguments: object) -> T:
    """Call a function that must not wait: the store raises WouldWaitError if a transaction would have to wait for
    another thread or process, or for the disk. A thread then calls it again.
    """
    before = _current.set(_NONE)
    try:
        return function(*arguments)
    finally:
        _current.reset(before)


def may_wait() -> bool:
    """Return False inside `without_waiting`."""
    return _current.get() is not _NONE
