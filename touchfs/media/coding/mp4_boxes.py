"""Boxes of MP4 and QuickTime files: build them, and find them in bytes or in a file. ISO/IEC 14496-12."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Reads

# That are looked at in one box or file. A fragmented file has one for each fragment.
BOXES_MAX = 1 << 10
_HEAD = struct.Struct(">I4s")
_HEAD_64 = struct.Struct(">Q")


class BoxPlace(NamedTuple):
    """A box of a file: its name, and where its contents begin and end."""

    name: bytes
    start: int
    end: int


def box(name: bytes, *parts: Buffer) -> bytes:
    """A box of these contents."""
    return b"".join((_HEAD.pack(_HEAD.size + sum(map(len, parts)), name), *parts))


def full_box(name: bytes, version: int, flags: int, *parts: Buffer) -> bytes:
    """A box with a version and flags."""
    return box(name, (version << 24 | flags).to_bytes(4, "big"), *parts)


def find_box(data: Buffer, *path: bytes) -> bytes:
    """The contents of the first box of each name of `path` in the one before. Raises FormatError."""
    view = memoryview(data)
    for name in path:
        view = _child(view, name)
    return bytes(view)


def _child(view: memoryview, wanted: bytes) -> memoryview:
    for name, contents in boxes(view):
        if name == wanted:
            return contents
    raise FormatError(f"has no box {wanted.decode('latin-1')}")


def boxes(data: Buffer) -> Iterator[tuple[bytes, memoryview]]:
    """Name and contents of each box. Boxes end where one is damaged."""
    view = memoryview(data)
    while len(view) >= _HEAD.size:
        size, name = _HEAD.unpack_from(view)
        head = _HEAD.size
        if size == 1 and len(view) >= head + _HEAD_64.size:
            (size,) = _HEAD_64.unpack_from(view, head)
            head += _HEAD_64.size
        if not head <= size <= len(view):
            return
        yield name, view[head:size]
        view = view[size:]


def places(start: int, end: int, last: bytes = b"") -> Reads[list[BoxPlace]]:
    """Find the boxes in a range of a file, up to the first one called `last`, by reading their heads.

    The list ends where a box is damaged, and after `BOXES_MAX` boxes.
    """
    found: list[BoxPlace] = []
    while start + _HEAD.size <= end and len(found) < BOXES_MAX:
        head = yield start, min(_HEAD.size + _HEAD_64.size, end - start)
        size, name = _HEAD.unpack_from(head)
        contents = start + _HEAD.size
        if size == 1 and len(head) == _HEAD.size + _HEAD_64.size:
            (size,) = _HEAD_64.unpack_from(head, _HEAD.size)
            contents += _HEAD_64.size
        elif size == 0:  # the last box of a file may not know its size
            size = end - start
        if not contents - start <= size <= end - start:
            break
        start += size
        found.append(BoxPlace(name, contents, start))
        if name == last:
            break
    return found
