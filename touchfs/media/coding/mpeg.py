"""Headers of MPEG audio frames (ISO 11172-3, 2.4.1.3), as MP3 has them."""

from __future__ import annotations

from typing import NamedTuple

from touchfs.core.extent import Buffer

HEADER_SIZE = 4
_LAYER_3, _VERSION_1, _MONO = 0x02, 3, 3
# In kbit/s of layer III: of versions 2 and 2.5, and of version 1. The first one means that the header does not say it.
_BIT_RATES = (
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
)
# In Hz of version 1, and how often that is halved: versions 2.5, none, 2, 1
_RATES, _HALVES = (44_100, 48_000, 32_000), (2, 0, 1, 0)
# Bytes of side information before a tag: of versions 2 and 2.5, and of version 1; of several channels, and of one
_SIDE_INFORMATION = ((17, 9), (32, 17))
# Fields of the tag of Xing and LAME, by their flags: frames, bytes, table of contents, quality
_HAS_FRAMES, _HAS_SIZE = 1, 2
_TAG_FIELDS = ((_HAS_FRAMES, 4), (_HAS_SIZE, 4), (4, 100), (8, 4))
_ENCODERS = (b"LAME", b"Lavf", b"Lavc")


def is_frame_header(head: Buffer) -> bool:
    """True if a frame of MPEG audio, of any layer, may begin with these bytes."""
    if len(head) < HEADER_SIZE:
        return False
    has_sync = head[0] == 0xFF and head[1] & 0xE0 == 0xE0
    version, layer, bit_rate, rate = head[1] & 0x18, head[1] & 0x06, head[2] & 0xF0, head[2] & 0x0C
    return has_sync and version != 0x08 and layer != 0 and bit_rate != 0xF0 and rate != 0x0C


def same_format(head: Buffer) -> tuple[int, int]:
    """What the headers of frames have in common that libav takes for one stream: version, layer and rate."""
    return head[1] & 0x1E, head[2] & 0x0C


def layer_3_size(head: Buffer) -> int:
    """The bytes of a frame of layer III; 0 if no such frame begins with these bytes, or one whose size they lack."""
    if not is_frame_header(head) or head[1] & 0x06 != _LAYER_3 or not head[2] >> 4:
        return 0
    version = head[1] >> 3 & 3
    bit_rate = _BIT_RATES[version == _VERSION_1][head[2] >> 4]
    rate = _RATES[head[2] >> 2 & 3] >> _HALVES[version]
    return (72_000 << (version == _VERSION_1)) * bit_rate // rate + (head[2] >> 1 & 1)


def layer_3_samples(head: Buffer) -> int:
    """The samples per channel of a frame of layer III."""
    return 1152 if head[1] >> 3 & 3 == _VERSION_1 else 576


class EncoderTag(NamedTuple):
    """What the first frame of an MP3 says of those after it: how many there are, and the samples that its encoder put
    before and after the sound. `size` is the bytes of all with this frame, 0 if it does not say that.
    """

    frames: int
    size: int
    before: int
    after: int


def parse_encoder_tag(frame: bytes) -> EncoderTag | None:
    """The tag of Xing and LAME in a frame of layer III, as libav takes it. None if it does not say all of that."""
    tag = HEADER_SIZE + _SIDE_INFORMATION[frame[1] >> 3 & 3 == _VERSION_1][frame[3] >> 6 == _MONO]
    numbers = [int.from_bytes(frame[place : place + 4], "big") for place in range(tag + 4, tag + 16, 4)]
    flags, frames, size = numbers
    encoder = tag + 8 + sum(length for flag, length in _TAG_FIELDS if flags & flag)
    if frame[tag : tag + 4] not in (b"Xing", b"Info") or not flags & _HAS_FRAMES or len(frame) < encoder + 24:
        return None
    if frame[encoder : encoder + 4] not in _ENCODERS:
        return None
    delays = int.from_bytes(frame[encoder + 21 : encoder + 24], "big")
    return EncoderTag(frames, size if flags & _HAS_SIZE else 0, delays >> 12, delays & 0xFFF)
