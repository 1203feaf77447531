"""Run a codec's reads over a source."""

from __future__ import annotations

from typing import TypeVar

from touchfs.extent import Reads, Source

T = TypeVar("T")


def drive(reads: Reads[T], source: Source) -> T:
    """Perform the reads that a codec requests, and return its result. Errors of codec and source propagate."""
    try:
        offset, length = next(reads)
        while True:
            offset, length = reads.send(source.read(offset, length))
    except StopIteration as end:
        result: T = end.value
        return result
