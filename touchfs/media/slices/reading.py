"""Read ranges of a content exactly."""

from __future__ import annotations

from typing import TypeVar

from touchfs.errors import FormatError
from touchfs.extent import Buffer, Content, Reads

T = TypeVar("T")


def read_exactly(content: Content, offset: int, length: int) -> Buffer:
    """Return `length` bytes at an offset. Raises FormatError if the content ends before, and the errors of its read."""
    data = content.read(offset, length)
    if len(data) != length:
        raise FormatError(f"ends before its {content.size} bytes", offset=offset + len(data))
    return data


def drive(reads: Reads[T], content: Content) -> T:
    """Perform the reads that a codec requests, and return its result. Errors of codec and content propagate."""
    try:
        offset, length = next(reads)
        while True:
            offset, length = reads.send(read_exactly(content, offset, max(length, 0)))
    except StopIteration as end:
        result: T = end.value
        return result
