"""Frames of a TIFF file, each as a TIFF file of its own, whose image data is not decoded.

Such a file is a header and a directory that are made here, and ranges of the original file: values of tags, and the
strips or tiles as they are compressed there. So a lossy frame is not encoded again, and its pixels are the same.
Directories that hang below the frame (Exif, GPS, reduced images) are left out.

Source: TIFF 6.0 (Adobe, 1992); Adobe Photoshop TIFF Technical Note 2 (2002) for JPEG, whose tables are a tag's value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from touchfs.core.errors import FormatError
from touchfs.core.extent import Content, Extent, Memory, Reads, Rope, Source
from touchfs.interleaved.tiff.directory import (
    LONG,
    LONG8,
    TYPE_SIZES,
    TiffEntry,
    TiffLayout,
    read_directory,
    read_header,
)

_WIDTH, _HEIGHT, _COMPRESSION = 256, 257, 259
_STRIPS, _TILES = (273, 279), (324, 325)  # tags of offsets, and of numbers of bytes
# Sub-images, Exif, GPS and interoperability directories; lists of free space. All have offsets in the original file.
_LEFT_OUT = frozenset({330, 34665, 34853, 40965, 288, 289})
# JPEG of TIFF 6.0: its tables are at offsets that tags name, and technical note 2 replaced it.
_OLD_JPEG = 6

# Directories and lists of strips that one call keeps. 64 MiB describe 8 million strips of a BigTIFF.
_METADATA_MAX = 64 * 2**20
_FRAMES_MAX = 2**16


class FileSpan(NamedTuple):
    """A range of the original file."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class TiffFrame:
    """A frame, and the file of its own: `size` bytes that are `pieces` end to end.

    `width` and `height` are those of the stored pixels; 0 if they are not stated. `uncopyable` says why there is no
    such file; then there are no pieces. It is None if there is one.
    """

    number: int
    width: int
    height: int
    uncopyable: str | None
    pieces: tuple[bytes | FileSpan, ...]
    size: int

    def content(self, source: Source, offset: int = 0) -> Rope:
        """Return the file of this frame. `offset` is that of the original file in the source."""
        parts: list[Content] = [
            Memory(piece) if isinstance(piece, bytes) else Extent(source, offset + piece.offset, piece.length)
            for piece in self.pieces
        ]
        return Rope(parts)


class _CannotCopyError(Exception):
    """A frame cannot be copied. The message says why."""


def frames(size: int, numbers: Collection[int] | None = None) -> Reads[list[TiffFrame]]:
    """Find the frames of a TIFF file of `size` bytes: those of `numbers` (from 0 on) that it has, or all.

    Raises FormatError if it is no TIFF, or if its list of frames is damaged before the last frame that is wanted.
    """
    layout, offset = yield from read_header(size)
    wanted = None if numbers is None else frozenset(numbers)
    last = _FRAMES_MAX if wanted is None else max(wanted, default=-1)
    found: list[TiffFrame] = []
    seen: set[int] = set()
    left = _METADATA_MAX
    number = 0
    while offset and number <= last:
        if offset in seen or number == _FRAMES_MAX:
            raise FormatError(f"its frames form a loop, or are over {_FRAMES_MAX:,}", offset=offset)
        seen.add(offset)
        is_wanted = wanted is None or number in wanted
        entries, offset = yield from read_directory(layout, offset, size, left, skip=not is_wanted)
        if is_wanted:
            frame, used = yield from _frame(layout, number, entries, size, left)
            found.append(frame)
            left -= used
        number += 1
    return found


def _frame(
    layout: TiffLayout, number: int, entries: Iterable[TiffEntry], size: int, left: int
) -> Reads[tuple[TiffFrame, int]]:
    """Return a frame, and the bytes of metadata that it keeps."""
    tags = {entry.tag: entry for entry in entries if entry.type in TYPE_SIZES and entry.length}
    used = len(tags) * layout.entry.size
    width, height = _integer(layout, tags, _WIDTH), _integer(layout, tags, _HEIGHT)
    try:
        if not width or not height:
            raise _CannotCopyError("it does not state its width and height")
        if _integer(layout, tags, _COMPRESSION) == _OLD_JPEG:
            raise _CannotCopyError("it is compressed as old-style JPEG (compression 6)")
        offsets_tag, chunks = yield from _chunks(layout, tags, size, left - used)
        pieces = _pieces(layout, tags, offsets_tag, chunks, size)
    except _CannotCopyError as error:
        return TiffFrame(number, width, height, str(error), (), 0), used
    length = sum(len(piece) if isinstance(piece, bytes) else piece.length for piece in pieces)
    return TiffFrame(number, width, height, None, pieces, length), used + 2 * layout.offset.size * len(chunks)


def _integer(layout: TiffLayout, tags: dict[int, TiffEntry], tag: int) -> int:
    """Return the value of a tag with one integer, which is in its entry; 0 if it has none."""
    entry = tags.get(tag)
    if entry is None or entry.length != 1:
        return 0
    try:
        return layout.integers(entry, entry.value)[0]
    except FormatError:
        return 0


def _chunks(layout: TiffLayout, tags: dict[int, TiffEntry], size: int, left: int) -> Reads[tuple[int, list[FileSpan]]]:
    """Return the strips or tiles of a frame, and the tag of their offsets."""
    pairs = [pair for pair in (_STRIPS, _TILES) if pair[0] in tags and pair[1] in tags]
    if len(pairs) != 1:
        raise _CannotCopyError("it does not state where its strips or tiles are")
    lists = []
    for tag in pairs[0]:
        entry = tags[tag]
        if entry.size > left:
            raise _CannotCopyError(f"it has {entry.length:,} strips or tiles, which are too many")
        left -= entry.size
        data = entry.value
        if entry.size > layout.offset.size:
            span = _values(layout, entry, size)
            data = bytes((yield span))
        try:
            lists.append(layout.integers(entry, data))
        except FormatError as error:
            raise _CannotCopyError(error.message) from error
    chunks = [FileSpan(*span) for span in zip(*lists, strict=False)]
    if len(lists[0]) != len(lists[1]):
        raise _CannotCopyError(f"it has {len(lists[0])} offsets of strips or tiles, and sizes of {len(lists[1])}")
    if any(offset + length > size for offset, length in chunks):
        raise _CannotCopyError("its strips or tiles end after the file")
    # Else a small file could make a huge one. Files that state a range twice to save space are rare.
    if sum(length for _, length in chunks) > size:
        raise _CannotCopyError("its strips or tiles overlap")
    return pairs[0][0], chunks


def _values(layout: TiffLayout, entry: TiffEntry, size: int) -> FileSpan:
    """Return where the values of an entry are that do not fit into it."""
    span = FileSpan(layout.offset.unpack(entry.value)[0], entry.size)
    if span.offset + span.length > size:
        raise _CannotCopyError(f"the values of its tag {entry.tag} end after the file")
    return span


def _pieces(
    layout: TiffLayout, tags: dict[int, TiffEntry], offsets_tag: int, chunks: list[FileSpan], size: int
) -> tuple[bytes | FileSpan, ...]:
    """Lay out the file of a frame: header, directory, offsets of strips, values of tags, strips."""
    slot = layout.offset.size
    kept = [tags[tag] for tag in sorted(tags) if tag not in _LEFT_OUT]
    is_table = len(chunks) > 1
    table_offset = len(layout.header) + layout.count.size + len(kept) * layout.entry.size + slot
    position = table_offset + (slot * len(chunks) if is_table else 0)
    values = sum(entry.size + 1 for entry in kept)
    if values > size + len(kept) * slot:
        raise _CannotCopyError("the values of its tags overlap")
    if position + values + sum(chunk.length for chunk in chunks) >= 2 ** (8 * slot):
        raise _CannotCopyError("a file of its own would be larger than the format allows")

    ranges: list[bytes | FileSpan] = []
    rows = []
    for entry in kept:
        if entry.tag != offsets_tag and entry.size > slot:
            span = _values(layout, entry, size)
            # Values begin at even offsets.
            ranges += (span, b"\0") if span.length % 2 else (span,)
            rows.append(entry._replace(value=layout.offset.pack(position)))
            position += span.length + span.length % 2
        else:
            rows.append(entry)

    offsets = []
    for chunk in chunks:
        offsets.append(position)
        position += chunk.length
    table = b"".join(map(layout.offset.pack, offsets))
    place = layout.offset.pack(table_offset) if is_table else table
    kind = LONG8 if layout.is_big else LONG
    rows = [TiffEntry(row.tag, kind, len(chunks), place) if row.tag == offsets_tag else row for row in rows]
    directory = layout.count.pack(len(rows)) + b"".join(layout.entry.pack(*row) for row in rows)
    head = layout.header + directory + layout.offset.pack(0) + (table if is_table else b"")
    return tuple(_joined([head, *ranges, *chunks]))


def _joined(pieces: Iterable[bytes | FileSpan]) -> list[bytes | FileSpan]:
    joined: list[bytes | FileSpan] = []
    for piece in pieces:
        last = joined[-1] if joined else b""
        if isinstance(piece, bytes):
            joined.append(piece)
        elif isinstance(last, FileSpan) and last.offset + last.length == piece.offset:
            joined[-1] = FileSpan(last.offset, last.length + piece.length)
        elif piece.length:
            joined.append(piece)
    return joined
