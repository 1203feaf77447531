"""The files of samples that somebody will read soon.

Only so much is fetched of each file: who reads more reads in order, and that is fetched ahead anyway.
"""

from __future__ import annotations

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

    def prefetch(self) -> bool:
        """Have them fetched without waiting for them. False if some are in no other store, or must be decoded."""
        return _prefetch(self.content, 0, self.size)

    def fetch(self) -> None:
        """Have them here soon: what `prefetch` does not do is read. Raises the errors of the content."""
        if not self.prefetch():
            for offset in range(0, self.size, BLOCK):
                self.content.read(offset, BLOCK)


def beginnings(sample: Sample) -> Iterator[Beginning]:
    """The beginning of each file of a sample, which is what is fetched. Raises the errors of its contents."""
    for extension in sample:
        content = sample.content(extension)
        yield Beginning(content, min(content.size, FILE_MAX))


def fetch_files(sample: Sample) -> None:
    """Have the beginnings of a sample's files here soon. An error is left to the program that reads the file."""
    with suppress(TouchfsError):
        for beginning in beginnings(sample):
            beginning.fetch()


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


def _prefetch(content: Content, offset: int, length: int) -> bool:
    if isinstance(content, Rope):
        parts = [_prefetch(*piece) for piece in content.pieces(offset, length)]  # each, also after a false one
        return all(parts)
    # A `UrlFile`, whose module is not loaded for local data. A check of a Protocol would take 15 µs for each file.
    if isinstance(content, Extent) and hasattr(content.source, "prefetch"):
        content.source.prefetch(content.offset + offset, length)
        return True
    return isinstance(content, Memory)
