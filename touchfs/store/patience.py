"""How long a request waits: for a thread, for a lock and for other processes, all of it together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import TypeVar

WAIT_SECONDS = 30.0

T = TypeVar("T")


class Patience:
    """What is left of the time that one request may wait. Time spent at work does not count."""

    __slots__ = ("_until", "seconds")

    def __init__(self, seconds: float = WAIT_SECONDS) -> None:
        self.seconds = seconds
        self._until = monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds, 0 if none."""
        return max(self._until - monotonic(), 0.0)

    @contextmanager
    def working(self) -> Iterator[None]:
        begin = monotonic()
        try:
            yield
        finally:
            self._until += monotonic() - begin


_current: ContextVar[Patience | None] = ContextVar("patience", default=None)


def current_patience() -> Patience:
    """The patience of the request that this thread works for. Without a request it is a new one."""
    return _current.get() or Patience()


def with_patience(patience: Patience, function: Callable[..., T], *arguments: object) -> T:
    """Call a function that may wait that long."""
    before = _current.set(patience)
    try:
        return function(*arguments)
    finally:
        _current.reset(before)
