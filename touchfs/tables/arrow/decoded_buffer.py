"""Compressed buffers of Arrow files as sources: what they decompress to, with random access.

A buffer that decompresses to at most `Limits.window` bytes is decompressed into memory, and shares the cache of
`touchfs.form.computed`. A larger one is decompressed once, piece by piece, into the scratch store, and read there: all
processes of the machine share the file and its pages, and none needs memory for it. If the store has no room, windows
of the buffer are decompressed from its beginning, again for each window that is not cached.

The last `KEPT_BUFFERS` buffers of a process are open, so that all cells of one share it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from touchfs.core.errors import FormatError, SourceError
from touchfs.core.extent import Buffer, Content, Extent
from touchfs.core.extent.file_object import FileObject
from touchfs.core.names import hex_digest
from touchfs.form.computed import ComputedContent
from touchfs.form.kept import identity_of
from touchfs.format.arrow.compression import SIZE, decompressed_pieces, parse_size
from touchfs.limits import Limits
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.source.scratch.source import ScratchSource
from touchfs.source.scratch.store import Scratch

# Each may have a descriptor open.
KEPT_BUFFERS = 32
# Compressed bytes that are read at a time
STEP_SIZE = 1 << 18


class DecodedBuffer:
    """A source: the decompressed bytes of the compressed buffer in an extent. Nothing is read before its first read."""

    __slots__ = ("_codec", "_content", "_extent", "_limits")

    def __init__(self, extent: Extent, codec: str, limits: Limits) -> None:
        self._extent = extent
        self._codec = codec
        self._limits = limits
        self._content: Content | None = None

    @property
    def identity(self) -> str | None:
        """A text that no other bytes have; None before the first read."""
        identity = identity_of(self._extent)
        return None if identity is None else f"{identity}\0{self._codec}"

    def read(self, offset: int, length: int) -> Buffer:
        """See `Source.read`. Raises FormatError for a damaged buffer, and for a range that it does not have."""
        if self._content is None:
            self._content = self._open()
        data = self._content.read(offset, length)
        if len(data) != length:
            raise FormatError(
                "a cell is outside its compressed Arrow buffer: index with --force", offset=self._extent.offset
            )
        return data

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        if self._content is None and (identity := identity_of(self._extent)) is not None:
            self._content = _buffers.find((identity, self._codec))
        data = None if self._content is None else self._content.read_nowait(offset, length)
        return data if data is not None and len(data) == length else None

    def _open(self) -> Content:
        head = bytes(self._extent.read(0, SIZE.size))  # opens and verifies the file: its version is known from now on
        identity = identity_of(self._extent)
        make = partial(_open, self._extent, self._codec, head, self._limits)
        return make() if identity is None else _buffers.get((identity, self._codec), make)


def _close(content: Content) -> None:
    if isinstance(content, Extent) and isinstance(content.source, ScratchSource):
        content.source.close()  # so that the store may evict it; who still has it opens it again


# The buffers that are open, by the identity of their extents and their codecs.
_buffers: BoundedCache[tuple[str, str], Content] = BoundedCache(KEPT_BUFFERS, evicted=_close)


def _open(extent: Extent, codec: str, head: bytes, limits: Limits) -> Content:
    try:
        size, is_compressed = parse_size(head, extent.size, limits.decoded)
    except FormatError as error:
        error.offset = extent.offset
        raise
    if not is_compressed:
        return Extent(extent.source, extent.offset + extent.size - size, size)
    identity = identity_of(extent)
    name = identity and f"arrow buffer\0{codec}\0{identity}"
    if size > limits.window and name:
        # Without room in the store, or without the store, it is decompressed for each window.
        with suppress(SourceError):
            hashed = hex_digest(name.encode(errors="surrogateescape"))
            file = Scratch.configured().make(hashed, _pieces(extent, codec, size), size)
            return Extent(ScratchSource(file), 0, size)

    def render(offset: int, length: int) -> bytes:
        window, position = bytearray(), 0
        for piece in _pieces(extent, codec, size):
            window += piece[max(offset - position, 0) : max(offset + length - position, 0)]
            position += len(piece)
        return bytes(window)

    return ComputedContent(size, max(min(size, limits.window), 1), render, name)


def _pieces(extent: Extent, codec: str, size: int) -> Iterator[Buffer]:
    """Decompress a buffer piece by piece. All of it, so that damage at its end is found."""
    frame = Extent(extent.source, extent.offset + SIZE.size, extent.size - SIZE.size)
    try:
        yield from decompressed_pieces(codec, io.BufferedReader(FileObject(frame), STEP_SIZE), size)
    except FormatError as error:
        error.offset = extent.offset
        raise
