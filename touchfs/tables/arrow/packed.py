"""The form of cells of Arrow files in compressed buffers."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from touchfs.core.errors import FormatError
from touchfs.core.extent import Content, Extent
from touchfs.form.base import Form
from touchfs.form.plain import BYTES
from touchfs.format.arrow.compression import CODECS
from touchfs.limits import Limits
from touchfs.tables.arrow.decoded_buffer import DecodedBuffer

# The detail: where a cell begins in the decompressed buffer, and its length
_PLACE = struct.Struct("<qq")


@dataclass(frozen=True, slots=True)
class PackedCell(Form):
    """`packed/CODEC[/FORM]`: a range of what a compressed buffer decompresses to, in a form, `bytes` by default.

    The stored bytes are the whole buffer, and `detail` is of `packed_detail`.
    """

    codec: str
    form: Form = BYTES

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise FormatError(f"no buffer is compressed by {self.codec!r}")

    def __str__(self) -> str:
        return f"packed/{self.codec}" if self.form is BYTES else f"packed/{self.codec}/{self.form}"

    def size(self, length: int, detail: bytes) -> int | None:
        return self.form.size(_parse(detail)[1], b"")

    @property
    def is_stored(self) -> bool:
        return self.form is BYTES

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        return self.form.content(self.stored(extent, detail, limits), b"", limits)

    def stored(self, extent: Extent, detail: bytes, limits: Limits) -> Extent:
        start, length = _parse(detail)
        return Extent(DecodedBuffer(extent, self.codec, limits), start, length)


def packed_detail(start: int, length: int) -> bytes:
    """The detail of the `length` bytes from `start` on of a decompressed buffer, for the form `PackedCell`."""
    return _PLACE.pack(start, length)


def _parse(detail: bytes) -> tuple[int, int]:
    start, length = _PLACE.unpack(detail) if len(detail) == _PLACE.size else (-1, -1)
    if min(start, length) < 0:
        raise FormatError("the catalog's place of a cell is damaged: index with --force")
    return start, length
