"""The number of samples that a packet decodes to, from its first bytes: Opus and Vorbis, whose packets differ.

An Opus packet says its length in its first byte. A Vorbis packet has one of two block sizes; it decodes to a quarter
of the block before it and a quarter of its own, and the first packet to nothing. Which size it has depends on its mode,
and the modes are the last part of the setup header. The parts before them have no sizes, so the modes are found by
reading the header backwards, as libav does.

Sources: RFC 6716, section 3.1; RFC 7845; Vorbis I specification, sections 4.2 and 4.3.
"""

from __future__ import annotations

from collections.abc import Callable

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer

PacketLength = Callable[[Buffer], int]

OPUS_RATE = 48000
# Frame length in samples at 48 kHz for each of the 32 configurations: SILK, hybrid, CELT
_OPUS_FRAME = [480, 960, 1920, 2880] * 3 + [480, 960] * 2 + [120, 240, 480, 960] * 4
_OPUS_PACKET_MAX = 5760

# A mode in the setup header: block flag (1 bit), window type (16), transform type (16), mapping (8)
_MODE_BITS = 41
_MODES_MAX = 64
# The setup header has at least these bits before the modes.
_SETUP_BITS_MIN = 97


def opus_length(packet: Buffer) -> int:
    """Samples per channel at 48 kHz of an Opus packet. Raises FormatError."""
    if not packet:
        raise FormatError("an empty Opus packet")
    toc = packet[0]
    code = toc & 3
    if code == 3 and len(packet) < 2:
        raise FormatError("an Opus packet that is cut short")
    frames = 1 if code == 0 else 2 if code < 3 else packet[1] & 63
    length = frames * _OPUS_FRAME[toc >> 3]
    if not 0 < length <= _OPUS_PACKET_MAX:
        raise FormatError(f"an Opus packet of {length} samples")
    return length


class VorbisLength:
    """Samples per channel of the packets of a Vorbis stream, in their order."""

    def __init__(self, identification: Buffer, setup: Buffer) -> None:
        """Raises FormatError."""
        if len(identification) < 30 or bytes(identification[:7]) != b"\x01vorbis":
            raise FormatError("a Vorbis stream without its first header")
        sizes = identification[28]
        self._blocks = 1 << (sizes & 15), 1 << (sizes >> 4)
        self._flags = _block_flags(bytes(setup))
        self._mode_bits = (len(self._flags) - 1).bit_length()
        self._previous = 0

    def __call__(self, packet: Buffer) -> int:
        """Samples that the next packet decodes to. Raises FormatError."""
        if not packet or packet[0] & 1:
            raise FormatError("a Vorbis packet that is not audio")
        mode = packet[0] >> 1 & (1 << self._mode_bits) - 1
        if mode >= len(self._flags):
            raise FormatError(f"a Vorbis packet of mode {mode} of {len(self._flags)}")
        block = self._blocks[self._flags[mode]]
        length = (self._previous + block) >> 2 if self._previous else 0
        self._previous = block
        return length


def vorbis_headers(extradata: Buffer) -> tuple[bytes, bytes, bytes]:
    """Split the three headers of Vorbis, as Matroska stores them. Raises FormatError."""
    data = bytes(extradata)
    sizes: list[int] = []
    offset = 1
    if data[:1] != b"\x02":
        raise FormatError("a Vorbis stream without its headers")
    for _ in range(2):
        size = 0
        while offset < len(data) and data[offset] == 255:
            size += 255
            offset += 1
        size += data[offset] if offset < len(data) else 0
        offset += 1
        sizes.append(size)
    first, second = offset + sizes[0], offset + sum(sizes)
    return data[offset:first], data[first:second], data[second:]


def join_vorbis_headers(identification: bytes, comment: bytes, setup: bytes) -> bytes:
    """The three headers of Vorbis as one, as Matroska and libav have them."""
    lacing = b"".join(b"\xff" * (len(part) // 255) + bytes([len(part) % 255]) for part in (identification, comment))
    return b"\x02" + lacing + identification + comment + setup


def _block_flags(setup: bytes) -> list[int]:
    """The block flag of each mode: 0 for short blocks, 1 for long ones."""
    if setup[:7] != b"\x05vorbis":
        raise FormatError("a Vorbis stream without its setup header")
    bits = int.from_bytes(setup, "little")  # bit 0 is the first bit of the header
    end = bits.bit_length() - 1  # the last set bit is the framing bit; the modes end before it
    count = 0
    for modes in range(1, _MODES_MAX + 1):
        begin = end - modes * _MODE_BITS
        if begin < _SETUP_BITS_MIN:
            break
        mode = bits >> begin
        if mode >> 1 & 0xFFFFFFFF or mode >> 33 & 0xFF > 63:
            break  # window and transform types are 0, and there are 64 mappings
        if (bits >> begin - 6 & 63) + 1 == modes:
            count = modes  # the 6 bits before the modes are their number
    if not count:
        raise FormatError("a Vorbis stream without modes")
    return [bits >> end - (count - i) * _MODE_BITS & 1 for i in range(count)]
