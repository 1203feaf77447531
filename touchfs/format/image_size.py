"""Width and height of an image from its headers, without decoding it: what `PIL.Image.open(…).size` says.

An orientation in Exif does not count. A TIFF's orientation does, as Pillow swaps the sides of such an image. For an
animation it is the size of its canvas.

Sources: ITU-T T.81 annex B (JPEG), PNG 1.2 section 4.1.1, GIF89a section 18, RFC 9649 (WebP), wingdi.h (BMP), TIFF 6.0
section 2, ISO/IEC 23008-12 section 6.5.3 (`ispe` of AVIF).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Memory, Reads, drive

# Most headers are in the first bytes. In a JPEG, Exif with a thumbnail or a colour profile may come before the size.
_FIRST_READ = 4096
# A JPEG has about 10 segments before its size. A profile of 16 MB, the largest there can be, has 255.
_SEGMENTS_MAX = 1000
_TIFF_ENTRIES_MAX = 4096
# Boxes of an AVIF before its pixels: a few hundred bytes for a picture, some kB for one of many tiles.
_AVIF_META_MAX = 2**20
_AVIF_BOXES_MAX = 16


class ImageSize(NamedTuple):
    """Width and height in pixels."""

    width: int
    height: int

    @property
    def aspect_ratio(self) -> float:
        """Width divided by height."""
        return self.width / self.height


def image_size(head: Buffer) -> ImageSize | None:
    """Return the size of an image that begins with `head`. None if it is no image, or its size comes later."""
    return drive(image_size_reads(len(head)), Memory(bytes(head)))


def image_size_reads(size: int) -> Reads[ImageSize | None]:
    """Find the size of an image in a file of `size` bytes. None if it is no image of a known kind, or is damaged."""
    head = bytes((yield 0, min(size, _FIRST_READ)))
    try:
        if head.startswith(b"\xff\xd8\xff"):
            found = yield from _jpeg(head, size)
        elif head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
            found = yield from _tiff(head, size)
        elif head[4:12] in (b"ftypavif", b"ftypavis"):
            found = yield from _avif(head, size)
        else:
            found = _at_fixed_place(head)
    except (struct.error, IndexError, FormatError):  # the file ends within its headers
        return None
    return found if found is not None and found.width > 0 and found.height > 0 else None


def _at_fixed_place(head: bytes) -> ImageSize | None:
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR":
        return ImageSize(*struct.unpack_from(">II", head, 16))
    if head[:6] in (b"GIF87a", b"GIF89a"):
        return ImageSize(*struct.unpack_from("<HH", head, 6))
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return _webp(head)
    if head[:2] == b"BM":
        return _bmp(head)
    return None


def _webp(head: bytes) -> ImageSize | None:
    kind = head[12:16]
    if kind == b"VP8X":
        return ImageSize(int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1)
    if kind == b"VP8L" and head[20] == 0x2F:
        (bits,) = struct.unpack_from("<I", head, 21)
        return ImageSize((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8 " and head[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", head, 26)
        return ImageSize(width & 0x3FFF, height & 0x3FFF)  # the upper 2 bits are a scale for display
    return None


def _bmp(head: bytes) -> ImageSize:
    (header_size,) = struct.unpack_from("<I", head, 14)
    if header_size == 12:  # OS/2
        return ImageSize(*struct.unpack_from("<HH", head, 18))
    width, height = struct.unpack_from("<ii", head, 18)
    return ImageSize(width, abs(height))  # negative: rows from the top


def _jpeg(head: bytes, size: int) -> Reads[ImageSize | None]:
    offset = 2
    for _ in range(_SEGMENTS_MAX):
        fields = yield from _range(head, offset, 9, size)
        if fields[0] != 0xFF:
            return None
        kind = fields[1]
        if kind == 0xFF:  # a fill byte
            offset += 1
            continue
        if kind == 0x01 or 0xD0 <= kind <= 0xD7:  # markers without a segment
            offset += 2
            continue
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):  # a frame header; not DHT, JPG, DAC
            height, width = struct.unpack_from(">HH", fields, 5)
            return ImageSize(width, height)
        (length,) = struct.unpack_from(">H", fields, 2)
        if kind in (0xD9, 0xDA) or length < 2:  # the end, or the pixels
            return None
        offset += 2 + length
    return None


def _tiff(head: bytes, size: int) -> Reads[ImageSize | None]:
    order = "<" if head[:2] == b"II" else ">"
    is_big = head[2:4] in (b"+\0", b"\0+")
    word, entry = (order + "Q", order + "HHQ8s") if is_big else (order + "I", order + "HHI4s")
    number = struct.Struct(order + ("Q" if is_big else "H"))
    (offset,) = struct.unpack_from(word, head, 8 if is_big else 4)
    (count,) = number.unpack((yield from _range(head, offset, number.size, size)))
    length = min(count, _TIFF_ENTRIES_MAX) * struct.calcsize(entry)
    values = {}
    for tag, kind, _, value in struct.iter_unpack(entry, (yield from _range(head, offset + number.size, length, size))):
        if tag in (256, 257, 274) and kind in (3, 4, 16):
            values[tag] = struct.unpack_from(order + {3: "H", 4: "I", 16: "Q"}[kind], value)[0]
    width, height = values.get(256, 0), values.get(257, 0)
    return ImageSize(height, width) if values.get(274) in (5, 6, 7, 8) else ImageSize(width, height)


def _avif(head: bytes, size: int) -> Reads[ImageSize | None]:
    """Return the largest `ispe` in `meta` → `iprp` → `ipco`: others are those of tiles and thumbnails."""
    length, kind, offset = 0, b"", 0
    for _ in range(_AVIF_BOXES_MAX):
        offset += length
        length, kind = struct.unpack(">I4s", (yield from _range(head, offset, 8, size)))
        if kind == b"meta" or length < 8:
            break
    if kind != b"meta" or not 12 <= length <= _AVIF_META_MAX:
        return None
    boxes = yield from _range(head, offset + 12, length - 12, size)
    for wanted in (b"iprp", b"ipco"):
        boxes = next((data for kind, data in _boxes(boxes) if kind == wanted), b"")
    sizes = [ImageSize(*struct.unpack_from(">II", data, 4)) for kind, data in _boxes(boxes) if kind == b"ispe"]
    return max(sizes, key=lambda found: found.width * found.height, default=None)


def _boxes(data: bytes) -> list[tuple[bytes, bytes]]:
    found, offset = [], 0
    while offset + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, offset)
        if length < 8:
            break
        found.append((kind, data[offset + 8 : offset + length]))
        offset += length
    return found


def _range(head: bytes, offset: int, length: int, size: int) -> Reads[bytes]:
    """Return a range, from `head` if it is in it. Raises FormatError if the file ends before."""
    if offset + length <= len(head):
        return head[offset : offset + length]
    if offset + length > size:
        raise FormatError("the image ends within its headers", offset=size)
    return bytes((yield offset, length))
