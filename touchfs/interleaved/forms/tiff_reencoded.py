"""The form of frames of TIFF files that cannot be copied: they are decoded, and encoded again without loss."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from touchfs.core.errors import FormatError
from touchfs.core.extent import Extent
from touchfs.form.base import Form
from touchfs.interleaved.forms.made import MadeContent
from touchfs.limits import Limits, too_large

_NUMBER = struct.Struct("<I")


def reencoded_detail(number: int) -> bytes:
    """The detail of the frame with this number, from 0 on."""
    return _NUMBER.pack(number)


@dataclass(frozen=True, slots=True)
class ReencodedFrame(Form):
    """`tiff-reencoded`: a frame of the TIFF file that is stored. `detail` is of `reencoded_detail`."""

    def __str__(self) -> str:
        return "tiff-reencoded"

    def size(self, length: int, detail: bytes) -> None:
        return None

    def known_size(self, extent: Extent, detail: bytes, limits: Limits) -> int | None:
        data = self.content(extent, detail, limits).find()
        return None if data is None else len(data)

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> MadeContent:
        if len(detail) != _NUMBER.size:
            raise FormatError("the catalog's description of a frame is damaged: index with --force")
        number: int = _NUMBER.unpack(detail)[0]

        def make() -> bytes:
            from touchfs.interleaved.items.tiff_frames import cut_frames

            if extent.size > limits.decoded:
                raise FormatError(too_large(limits.decoded))
            frame = cut_frames(bytes(extent.read(0, extent.size)), (number,), limits.decoded)[number]
            if frame is None:
                raise FormatError(f"frame {number} of its TIFF file cannot be decoded")
            return frame.data

        return MadeContent(extent, f"{self}\0{number}", make)


TIFF_REENCODED = ReencodedFrame()
