"""Headers of MPEG audio frames (ISO 11172-3, 2.4.1.3), as MP3 has them."""

from __future__ import annotations

from touchfs.core.extent import Buffer

HEADER_SIZE = 4


def is_frame_header(head: Buffer) -> bool:
    """True if a frame of MPEG audio, of any layer, may begin with these bytes."""
    if len(head) < HEADER_SIZE:
        return False
    has_sync = head[0] == 0xFF and head[1] & 0xE0 == 0xE0
    version, layer, bit_rate, rate = head[1] & 0x18, head[1] & 0x06, head[2] & 0xF0, head[2] & 0x0C
    return has_sync and version != 0x08 and layer != 0 and bit_rate != 0xF0 and rate != 0x0C
