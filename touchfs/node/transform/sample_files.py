"""The files of samples that somebody will read soon.

Only so much is fetched of each file: who reads more reads in order, and that is fetched ahead anyway.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from touchfs.core.errors import TouchfsError
from touchfs.core.extent import Content, Extent, Memory, Rope
from touchfs.dataset.sample import Sample

FILE_MAX, BLOCK = 8 << 20, 1 << 20


class Beginning(NamedTuple):
    """The first `size` bytes of a content."""

    content: Content
    size: int

    def prefetch(self) -> float | None:
        """Have them fetched without waiting for them. Returns how much that is of what the cache has room for until it
        is read; None if some are in no other store, or must be decoded.
        """
        return _prefetch(self.content, 0, self.size)

    def fetch(self) -> float:
        """Have them here soon: what `prefetch` does not do is read. Returns what that does, and raises the errors of
        the content.
        """
        if (part := self.prefetch()) is not None:
            return part
        for offset in range(0, self.size, BLOCK):
            self.content.read(offset, BLOCK)
        return 0.0


def beginnings(sample: Sample) -> Iterator[Beginning]:
    """The beginning of each file of a sample, which is what is fetched. Raises the errors of its contents."""
    for extension in sample:
        content = sample.content(extension)
        yield Beginning(content, min(content.size, FILE_MAX))


def fetch_files(sample: Sample) -> float:
    """Have the beginnings of a sample's files here soon. An error is left to the program that reads the file.

    Returns how much that is of what the cache has room for until it is read.
    """
    part = 0.0
    with suppress(TouchfsError):
        for beginning in beginnings(sample):
            part += beginning.fetch()
    return part


class FetchRoom:
    """Fetches the files of samples ahead, in threads, as far as the cache has room for them: else they would push each
    other out of it unread, and be fetched again. A sample that is one of the next `threads` never waits.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._changed = threading.Condition()
        # By number, what was fetched of samples that were not taken yet.
        self._parts: dict[int, float] = {}
        self._taken = 0
        self._is_closed = False

    def fetch(self, number: int, sample: Sample) -> None:
        """Fetch the sample of a number, once there is room."""
        with self._changed:
            self._changed.wait_for(lambda: self._may_fetch(number))
        if part := fetch_files(sample):
            with self._changed:
                if number >= self._taken:
                    self._parts[number] = part

    def take(self) -> None:
        """The next sample is taken: what was fetched for it may give way to others."""
        with self._changed:
            self._parts.pop(self._taken, None)
            self._taken += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Have nobody wait any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _may_fetch(self, number: int) -> bool:
        return self._is_closed or number < self._taken + self._threads or sum(self._parts.values()) < 1


def prefetched(samples: Iterable[Sample], ahead: int) -> Iterator[Sample]:
    """The same samples. Those of the next `ahead` whose files are in another store have them fetched.

    Raises the errors of `samples`, after the samples before them.
    """
    coming = deque[Sample]()
    try:
        for sample in samples:
            with suppress(TouchfsError):
                for beginning in beginnings(sample):
                    beginning.prefetch()
            coming.append(sample)
            if len(coming) > ahead:
                yield coming.popleft()
    except TouchfsError:
        yield from coming
        raise
    yield from coming


def _prefetch(content: Content, offset: int, length: int) -> float | None:
    if isinstance(content, Rope):
        parts = [_prefetch(*piece) for piece in content.pieces(offset, length)]  # each, also after None
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None
    # A `UrlFile`, whose module is not loaded for local data. A check of a Protocol would take 15 µs for each file.
    if isinstance(content, Extent) and hasattr(content.source, "prefetch"):
        part: float = content.source.prefetch(content.offset + offset, length)
        return part
    return 0.0 if isinstance(content, Memory) else None
