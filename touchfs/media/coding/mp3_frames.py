"""The frames of an MP3 by their headers: libav needs ten times as long to tell of an hour of them.

An MP3 has no index, but the header of a frame says where the next one is. The first frames are those that libav found,
and one must follow the other to the end of the file: then libav finds the same. Else, and where the samples that it
drops at the end are not certain, nothing is said here, and libav reads all packets.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from touchfs.core.extent import Reads
from touchfs.media.coding.mpeg import (
    HEADER_SIZE,
    EncoderTag,
    layer_3_samples,
    layer_3_size,
    parse_encoder_tag,
    same_format,
)

# Samples that a decoder gives late: those of its filter bank, and one
_DECODER_DELAY = 529
_BLOCK = 1 << 18
# No frame is larger.
_FRAME_MAX = 1441
_ID3V1, _ID3V1_SIZE = b"TAG", 128


class Frames(NamedTuple):
    """Frames, one after another: where the first one begins, the sizes of all, and the samples of each.

    `padding` is the number of samples that are dropped at the end.
    """

    offset: int
    sizes: array[int]
    samples: int
    padding: int


def read_frames(
    size: int, first: Sequence[tuple[int | None, bytes]], skipped: tuple[int, int] | None
) -> Reads[Frames | None]:
    """The frames of a file of `size` bytes after its first packets, which are (offset, bytes). None if not certain.

    `skipped` are the samples that libav drops at the begin and at the end of the first packet, None if it says nothing.
    """
    begin, head = first[0]
    if begin is None:
        return None
    end = begin
    for offset, data in first:
        if offset != end or layer_3_size(data) != len(data) or same_format(data) != same_format(head):
            return None
        end += len(data)
    sizes = yield from _walk(size, end, head)
    if not sizes:
        return None
    samples, padding = layer_3_samples(head), 0
    if skipped is not None:
        start = max(begin - _FRAME_MAX, 0)
        tag, tagged = _last_tag(bytes((yield start, begin - start)))
        total = size - begin + tagged
        if tag is None or tag.frames != len(first) + len(sizes) or (tag.before + _DECODER_DELAY, 0) != skipped:
            return None
        if tag.size and abs(tag.size - total) > total >> 5:  # libav believes less then
            return None
        padding = max(tag.after - _DECODER_DELAY, 0)
    return Frames(end, sizes, samples, padding) if padding <= samples * len(sizes) else None


def _walk(size: int, offset: int, head: bytes) -> Reads[array[int] | None]:
    """The sizes of all frames from an offset to the end of the file. None if that has anything else than a tag."""
    alike, known, sizes = same_format(head), dict[bytes, int](), array("I")
    while offset + HEADER_SIZE <= size:
        block = bytes((yield offset, min(_BLOCK, size - offset)))
        place = 0
        while place <= len(block) - HEADER_SIZE:
            header = block[place : place + HEADER_SIZE]
            if (length := known.get(header)) is None:
                length = known[header] = layer_3_size(header) if same_format(header) == alike else 0
            if not length:
                is_tag = offset + place + _ID3V1_SIZE == size and header.startswith(_ID3V1)
                return sizes if is_tag else None
            sizes.append(length)
            place += length
        offset += place
    return sizes if offset == size else None


def _last_tag(before: bytes) -> tuple[EncoderTag | None, int]:
    """The tag in the last one of some bytes that are a frame, and the size of that frame."""
    for place in range(len(before) - HEADER_SIZE, -1, -1):
        if before[place] == 0xFF and layer_3_size(before[place : place + HEADER_SIZE]) == len(before) - place:
            return parse_encoder_tag(before[place:]), len(before) - place
    return None, 0
