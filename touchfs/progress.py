"""How far work has come, reported by those who do it, wherever that is, to whoever shows it.

Work calls `advance` or `reached`; whether anybody listens is not its concern. So no parameter goes through all that is
between the two. Whoever starts work listens, and divides it into stages, each a share of the whole:

    with listening(print, 1000):
        with stage(0.3):
            reached(offset, size)  # of a file that is read
        with stage(0.7, of=len(samples)):
            advance(1)

A stage that ends counts as done, also if an exception ends it.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from time import monotonic
from typing import Self, TypeVar

T = TypeVar("T")
# It hears how much is done, and how much there is.
Progress = Callable[[int, int], None]
# It hears how much more is done.
Listener = Callable[[int], None]

_EVERY = 256
_SECONDS = 0.1
_COUNT = struct.Struct("<q")


class _Stage:
    """`report` hears which part of it is done, from 0 to 1."""

    __slots__ = ("_of", "_report", "count", "part")

    def __init__(self, report: Callable[[float], None], of: int = 1) -> None:
        self.count = 0
        self.part = 0.0
        self._of = max(of, 1)
        self._report = report

    def advance(self, count: int) -> None:
        self.count += count
        self.reach(self.count / self._of)

    def reach(self, part: float) -> None:
        part = min(part, 1.0)
        if part > self.part:
            self.part = part
            self._report(part)


_current: ContextVar[_Stage | None] = ContextVar("stage", default=None)


def advance(count: int) -> None:
    """So many more of what the stage at work counts are done."""
    current = _current.get()
    if current is not None:
        current.advance(count)


def reached(done: float, total: float) -> None:
    """So much of the stage at work is done in all."""
    current = _current.get()
    if current is not None and total:
        current.reach(done / total)


def each(items: Iterable[T]) -> Iterator[T]:
    """The items. One is done when the next is asked for."""
    for number, item in enumerate(items, 1):
        yield item
        if number % _EVERY == 0:
            advance(_EVERY)


@contextmanager
def stage(share: float, of: int = 1) -> Iterator[None]:
    """A share, from 0 to 1, of the stage at work, in which `of` is how many `advance` will count."""
    outer = _current.get()
    if outer is None:
        yield
        return
    start = outer.part
    with _entered(_Stage(lambda part: outer.reach(start + share * part), of)):
        yield


@contextmanager
def listening(listener: Listener, worth: int) -> Iterator[None]:
    """Work that counts for so much to a listener."""
    heard = 0

    def report(part: float) -> None:
        nonlocal heard
        done = int(part * worth)
        if done > heard:
            more, heard = done - heard, done
            listener(more)

    with _entered(_Stage(report, worth)):
        yield


@contextmanager
def _entered(entered: _Stage) -> Iterator[None]:
    token = _current.set(entered)
    try:
        yield
    finally:
        _current.reset(token)
        entered.reach(1.0)


class ProgressTotal:
    """What tasks have done, in this process or in others, as one number that `progress` hears."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self._read = 0
        self._descriptor = -1

    def __enter__(self) -> Self:
        self.add(0)
        return self

    def __exit__(self, *error: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            os.unlink(self._path)

    def add(self, count: int) -> None:
        """For work in this process."""
        self._done += count
        if self._total:
            self._progress(self._done, self._total)

    def remote(self) -> RemoteListener:
        """For work in other processes, to which it is sent. `poll` adds what they report."""
        try:
            self._descriptor, self._path = tempfile.mkstemp(prefix="touchfs-progress-")
        except OSError:  # no directory for it: then nothing is shown
            return RemoteListener(os.devnull)
        return RemoteListener(self._path)

    def poll(self) -> None:
        if self._descriptor >= 0:
            data = os.pread(self._descriptor, 1 << 16, self._read)
            whole = len(data) // _COUNT.size * _COUNT.size
            self._read += whole
            self.add(sum(count for (count,) in _COUNT.iter_unpack(data[:whole])))


class RemoteListener:
    """A listener that appends what it hears to a file, a few times a second at most."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._count = 0
        self._next = 0.0

    def __call__(self, count: int) -> None:
        self._count += count
        if monotonic() >= self._next:
            self.flush()

    def flush(self) -> None:
        count, self._count = self._count, 0
        self._next = monotonic() + _SECONDS
        with suppress(OSError):  # on another machine there is no such file
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                os.write(descriptor, _COUNT.pack(count))
            finally:
                os.close(descriptor)

    def __reduce__(self) -> tuple[type[RemoteListener], tuple[str]]:
        return RemoteListener, (self._path,)
