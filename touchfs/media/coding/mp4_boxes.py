"""Boxes of MP4 and QuickTime files: build them, and find one in bytes. ISO/IEC 14496-12."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from touchfs.errors import FormatError
from touchfs.extent import Buffer

_HEAD = struct.Struct(">I4s")
_HEAD_64 = struct.Struct(">Q")


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
