"""Progress of work, reported by the code that does it to the code that shows it, also across processes.

Work calls `advance` or `reached` whether or not anybody listens, so no parameter is passed through the calls between.
The caller that starts work listens, and divides it into stages, each a share of the whole:

    with listening(print, 1000):
        with stage(0.3):
            reached(offset, size)  # while reading a file
        with stage(0.7, of=len(samples)):
            advance(1)

A stage that ends counts as done, even if an exception ends it.
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
from uuid import uuid4

T = TypeVar("T")
# A callback that gets the amount done and the total.
Progress = Callable[[int, int], None]
# A callback that gets the amount done since the last call.
Listener = Callable[[int], None]


def unshown(done: int, total: int) -> None:
    """A callback for progress that nobody sees."""


_EVERY = 256
_SECONDS = 0.1
_COUNT = struct.Struct("<q")


class _Stage:
    """A stage of work. `report` is called with the part that is done, from 0 to 1."""

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
    """Add `count` to the units done in the current stage."""
    current = _current.get()
    if current is not None:
        current.advance(count)


def reached(done: float, total: float) -> None:
    """Report that `done` of `total` units of the current stage are done."""
    current = _current.get()
    if current is not None and total:
        current.reach(done / total)


def each(items: Iterable[T]) -> Iterator[T]:
    """Yield the items, and count each as done when the next one is requested."""
    for number, item in enumerate(items, 1):
        yield item
        if number % _EVERY == 0:
            advance(_EVERY)


@contextmanager
def stage(share: float, of: int = 1) -> Iterator[None]:
    """Run a part of the current stage: `share` is its share, from 0 to 1, and `of` the sum of its `advance` calls."""
    outer = _current.get()
    if outer is None:
        yield
        return
    start = outer.part
    with _entered(_Stage(lambda part: outer.reach(start + share * part), of)):
        yield


@contextmanager
def watched(look: Callable[[], None]) -> Iterator[None]:
    """Call `look` a few times a second while the work inside makes progress. What it raises ends the work."""
    outer, following = _current.get(), monotonic() + _SECONDS

    def report(part: float) -> None:
        nonlocal following
        if outer is not None:
            outer.reach(start + (1 - start) * part)
        if monotonic() >= following:
            look()
            following = monotonic() + _SECONDS

    start = 0.0 if outer is None else outer.part
    with _entered(_Stage(report)):
        yield


@contextmanager
def listening(listener: Listener, worth: int) -> Iterator[None]:
    """Report the progress of the work inside to a listener, which gets `worth` units in all."""
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
    """Sums the progress of tasks in this process and in others, and passes the sum to `progress`."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self._read = 0
        self._path = ""
        self._descriptor = -1

    def __enter__(self) -> Self:
        self.add(0)
        return self

    def __exit__(self, *error: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        with suppress(FileNotFoundError):
            os.unlink(self._path)

    def add(self, count: int) -> None:
        """Add progress made in this process."""
        self._done += count
        if self._total:
            self._progress(self._done, self._total)

    def remote(self) -> RemoteListener:
        """Return a listener to send to other processes. `poll` adds what they report."""
        try:
            # Its name is known before it is there: a signal may come between the two, and then it must be removed, too.
            self._path = os.path.join(tempfile.gettempdir(), f"touchfs-progress-{uuid4().hex}")
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:  # no temporary directory: progress is not shown
            return RemoteListener(os.devnull)
        return RemoteListener(self._path)

    def poll(self) -> None:
        """Add the progress that other processes reported since the last call."""
        if self._descriptor >= 0:
            data = os.pread(self._descriptor, 1 << 16, self._read)
            whole = len(data) // _COUNT.size * _COUNT.size
            self._read += whole
            self.add(sum(count for (count,) in _COUNT.iter_unpack(data[:whole])))


class RemoteListener:
    """A listener that appends progress to a file that `ProgressTotal.poll` reads, a few times a second at most."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._count = 0
        self._next = 0.0

    def __call__(self, count: int) -> None:
        self._count += count
        if monotonic() >= self._next:
            self.flush()

    def flush(self) -> None:
        """Write the progress since the last call."""
        count, self._count = self._count, 0
        self._next = monotonic() + _SECONDS
        with suppress(OSError):  # the file does not exist on other machines
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                os.write(descriptor, _COUNT.pack(count))
            finally:
                os.close(descriptor)

    def __reduce__(self) -> tuple[type[RemoteListener], tuple[str]]:
        return RemoteListener, (self._path,)
