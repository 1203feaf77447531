"""The form of single frames of TIFF files: a file of its own for each, made of ranges of the stored one.

The directory of a frame is read when its file is read first.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Content, Extent, Source, drive
from touchfs.form.base import Form
from touchfs.interleaved.tiff import TiffFrame, frames
from touchfs.limits import Limits

# A file that is open keeps its frame in memory. Real ones have some hundred strips, of which most are joined.
_HEAD_MAX, _PIECES_MAX = 1 << 20, 10_000
# The number of a frame, and the size of its file
_FRAME = struct.Struct("<IQ")


def frame_detail(number: int, size: int) -> bytes:
    """The detail of the frame with this number, from 0 on, whose file has this size in bytes."""
    return _FRAME.pack(number, size)


def why_not_shown(frame: TiffFrame) -> str:
    """Why a frame has no file of its own; "" if it has one."""
    if frame.uncopyable is not None:
        return frame.uncopyable
    head = sum(len(piece) for piece in frame.pieces if isinstance(piece, bytes))
    return "it has too many strips or tiles" if head > _HEAD_MAX or len(frame.pieces) > _PIECES_MAX else ""


class ContentSource:
    """A content as a source, whose reads are exact."""

    __slots__ = ("_content",)

    def __init__(self, content: Content) -> None:
        self._content = content

    def read(self, offset: int, length: int) -> Buffer:
        """See `Source.read`. Raises FormatError for a range that the content does not have."""
        data = self._content.read(offset, length)
        if len(data) != length:
            raise FormatError("the file is cut short", offset=offset)
        return data

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        data = self._content.read_nowait(offset, length)
        return data if data is not None and len(data) == length else None


@dataclass(frozen=True, slots=True)
class TiffFrameForm(Form):
    """`tiff-frame`: a frame of the TIFF file that is stored. `detail` is of `frame_detail`."""

    def __str__(self) -> str:
        return "tiff-frame"

    def size(self, length: int, detail: bytes) -> int:
        return _parse(detail)[1]

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        return _FrameContent(extent, *_parse(detail))


TIFF_FRAME = TiffFrameForm()


def _parse(detail: bytes) -> tuple[int, int]:
    if len(detail) != _FRAME.size:
        raise FormatError("the catalog's description of a frame is damaged: index with --force")
    number, size = _FRAME.unpack(detail)
    return number, size


class _FrameContent:
    """The file of a frame. A read blocks until the frame is found."""

    __slots__ = ("_content", "_extent", "_number", "size")

    def __init__(self, extent: Extent, number: int, size: int) -> None:
        self._extent = extent
        self._number = number
        self._content: Content | None = None
        self.size = size

    def read(self, offset: int, length: int) -> Buffer:
        if self._content is None:
            source: Source = ContentSource(self._extent)
            found = drive(frames(self._extent.size, (self._number,)), source)
            if not found or why_not_shown(found[0]) or found[0].size != self.size:
                raise FormatError("its TIFF file has no such frame: index with --force")
            self._content = found[0].content(source)
        return self._content.read(offset, length)

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        return None if self._content is None else self._content.read_nowait(offset, length)
