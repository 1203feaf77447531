"""Ogg: find the packets of the audio, and how many samples they have. Opus, Vorbis and FLAC.

A stream is a sequence of pages. A page has a checksum, the sizes of its packets, and a granule position: the number of
samples until the end of the last packet that ends in it. A packet may go on in the next page, so it is a list of
pieces. The last page may say fewer samples than its packets have; the rest is dropped. Opus drops samples at its
begin, too (pre-skip).

A file may be a chain: recordings one after another, each with headers of its own, as when files are concatenated. Of
each link of the chain the first audio stream counts.

All pages are read, in blocks; about 1 s for 100 MB. Pages that are damaged or missing are an error.

Sources: RFC 3533; RFC 7845; Vorbis I specification, appendix A; RFC 9639, section 10.1.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from dataclasses import dataclass, field

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Reads
from touchfs.media.coding.flac_frames import parse_frame, parse_stream_info
from touchfs.media.coding.packet_length import (
    OPUS_RATE,
    PacketLength,
    VorbisLength,
    join_vorbis_headers,
    opus_length,
)

# OggS, version, flags, granule position, stream, page number, checksum, number of segments
_PAGE = struct.Struct("<4sBBqIIIB")
_CHECKSUM_OFFSET = 22
_BEGIN, _END = 2, 4
_PAGE_MAX = _PAGE.size + 255 + 255 * 255
_BLOCK = 1 << 18
# Headers with pictures are larger than any that is needed; their rest is skipped.
_HEADER_KEPT = 1 << 20
# OpusHead, version, channels, pre-skip, rate of the original, gain, mapping
_OPUS_HEAD = struct.Struct("<8sBBHIhB")
# 1, vorbis, version, channels, rate
_VORBIS_HEAD = struct.Struct("<7sIBI")
_FLAC_HEAD = b"\x7fFLAC"
_LINKS_MAX = 10_000
_MAGICS = (b"OpusHead", b"\x01vorbis", _FLAC_HEAD)

_REVERSED_BITS = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


@dataclass(slots=True)
class OggAudio:
    """An audio stream. `pieces` are (offset, size) in the file; a packet has `piece_counts` of them and decodes to
    `lengths` samples per channel, of which `head` at the begin and `tail` at the end of the stream are dropped.
    """

    coding: str = ""
    rate: int = 0
    channels: int = 0
    bits: int = 0
    extradata: bytes = b""
    head: int = 0
    tail: int = 0
    offsets: array[int] = field(default_factory=lambda: array("q"))
    sizes: array[int] = field(default_factory=lambda: array("I"))
    piece_counts: array[int] = field(default_factory=lambda: array("I"))
    lengths: array[int] = field(default_factory=lambda: array("I"))


def scan(size: int) -> Reads[list[OggAudio]]:
    """Read the pages of a file of `size` bytes. Returns the audio of each link. Raises FormatError."""
    links: list[OggAudio] = []
    stream: _Stream | None = None
    data = b""
    begin = at = 0
    while begin + at < size:
        if len(data) - at < _PAGE_MAX and begin + len(data) < size:
            more = yield begin + len(data), min(_BLOCK, size - begin - len(data))
            data, begin, at = data[at:] + bytes(more), begin + at, 0
        page_size = _check_page(data, at, begin + at)
        if page_size is None:  # cut short: the packets before can be decoded
            break
        _, _, flags, granule, serial, number, _, segments = _PAGE.unpack_from(data, at)
        payload = at + _PAGE.size + segments
        if flags & _BEGIN and stream is not None and stream.has_sound:
            links.append(stream.finish())
            stream = None
            if len(links) == _LINKS_MAX:
                raise FormatError(f"a chain of over {_LINKS_MAX:,} Ogg recordings", offset=begin + at)
        if flags & _BEGIN and stream is None and data.startswith(_MAGICS, payload):
            stream = _Stream(serial)
        if stream is not None and stream.serial == serial:
            lacing = data[at + _PAGE.size : payload]
            stream.add_page(flags, granule, number, lacing, data, payload, begin)
        at += page_size
    if stream is not None:
        links.append(stream.finish())
    if not links:
        raise FormatError("an Ogg file without Opus, Vorbis or FLAC")
    return links


def _check_page(data: bytes, at: int, offset: int) -> int | None:
    """Return the size of a page; None if the file ends before it does. Raises FormatError."""
    if data[at : at + 5] != b"OggS\0"[: max(len(data) - at, 1)]:
        raise FormatError("no Ogg page: the file is damaged", offset=offset)
    if at + _PAGE.size > len(data):
        return None
    segments = data[at + _PAGE.size - 1]
    lacing = data[at + _PAGE.size : at + _PAGE.size + segments]
    size = _PAGE.size + segments + sum(lacing)
    if len(lacing) < segments or at + size > len(data):
        return None
    page = bytearray(data[at : at + size])
    expected = page[_CHECKSUM_OFFSET : _CHECKSUM_OFFSET + 4]
    page[_CHECKSUM_OFFSET : _CHECKSUM_OFFSET + 4] = bytes(4)
    # zlib's checksum is that of Ogg with the bits of all bytes in reverse order, another begin and end.
    reverse = zlib.crc32(page.translate(_REVERSED_BITS), 0xFFFFFFFF) ^ 0xFFFFFFFF
    if reverse.to_bytes(4, "big").translate(_REVERSED_BITS) != expected:
        raise FormatError("an Ogg page whose checksum is wrong: the file is damaged", offset=offset)
    return size


class _Stream:
    """The packets of one stream, page by page."""

    def __init__(self, serial: int) -> None:
        self.serial = serial
        self._audio = OggAudio()
        self._headers: list[bytes] = []
        self._headers_left = 1
        self._length: PacketLength | None = None
        self._next_number: int | None = None
        self._packet = bytearray()  # the begin of the packet that is not complete yet
        self._pieces: list[tuple[int, int]] = []
        self._total = 0
        self._start: int | None = None
        self._end: int | None = None

    @property
    def has_sound(self) -> bool:
        """Return whether there are packets besides the headers."""
        return bool(self._audio.lengths)

    def add_page(
        self, flags: int, granule: int, number: int, lacing: bytes, data: bytes, payload: int, begin: int
    ) -> None:
        if self._next_number is not None and number != self._next_number:
            raise FormatError(f"Ogg page {self._next_number} is missing", offset=begin + payload)
        self._next_number = number + 1
        completed = 0
        size = 0
        for segment in lacing:
            size += segment
            if segment < 255:
                completed += self._add_piece(data, payload, size, begin, True)
                payload += size
                size = 0
        if size:
            self._add_piece(data, payload, size, begin, False)
        is_end = bool(flags & _END)
        if completed and granule >= 0:
            if self._start is None and not is_end:
                self._start = granule - self._total
            self._end = granule if is_end else None

    def _add_piece(self, data: bytes, payload: int, size: int, begin: int, is_last: bool) -> bool:
        """Add a piece of a packet. Returns whether it completes a packet of audio."""
        if size:
            self._pieces.append((begin + payload, size))
        limit = _HEADER_KEPT if self._headers_left else 64
        if len(self._packet) < limit:
            self._packet += data[payload : payload + min(size, limit)]
        if not is_last:
            return False
        pieces, packet = self._pieces, self._packet
        self._pieces, self._packet = [], bytearray()
        if self._headers_left:
            self._add_header(bytes(packet), begin + payload)
            return False
        if not pieces:
            return False  # an empty packet
        if self._length is None:
            raise FormatError("an Ogg stream without its headers", offset=begin + payload)
        try:
            length = self._length(packet)
        except FormatError as error:
            raise FormatError(error.message, offset=pieces[0][0]) from error
        audio = self._audio
        for offset, size in pieces:
            audio.offsets.append(offset)
            audio.sizes.append(size)
        audio.piece_counts.append(len(pieces))
        audio.lengths.append(length)
        self._total += length
        return True

    def _add_header(self, packet: bytes, offset: int) -> None:
        audio = self._audio
        self._headers.append(packet)
        self._headers_left -= 1
        if len(self._headers) == 1:
            self._headers_left = self._parse_first(packet, offset)
        if self._headers_left == 0 and audio.coding == "vorbis":
            identification, _, setup = self._headers
            self._length = VorbisLength(identification, setup)
            audio.extradata = join_vorbis_headers(identification, b"", setup)

    def _parse_first(self, packet: bytes, offset: int) -> int:
        """Parse the first header; return the number of those that follow it."""
        audio = self._audio
        if packet.startswith(b"OpusHead") and len(packet) >= _OPUS_HEAD.size:
            _, version, audio.channels, audio.head, *_ = _OPUS_HEAD.unpack_from(packet)
            audio.coding, audio.rate, audio.extradata, self._length = "opus", OPUS_RATE, packet, opus_length
            if version < 16 and audio.channels:
                return 1
        elif packet.startswith(b"\x01vorbis") and len(packet) >= _VORBIS_HEAD.size:
            _, _, audio.channels, audio.rate = _VORBIS_HEAD.unpack_from(packet)
            audio.coding = "vorbis"
            if audio.channels and audio.rate:
                return 2
        elif packet.startswith(_FLAC_HEAD) and packet[9:13] == b"fLaC":
            flac = parse_stream_info(packet[17:], 0, 0)
            audio.coding, audio.rate, audio.channels, audio.bits = "flac", flac.rate, flac.channels, flac.bits
            audio.extradata = packet[17 : 17 + 34]

            def length(packet: Buffer) -> int:
                frame = parse_frame(packet, 0, flac, 0)
                if frame is None:
                    raise FormatError("a FLAC frame that is damaged")
                return frame.length

            self._length = length
            if headers := int.from_bytes(packet[7:9], "big"):
                return headers
        raise FormatError("an Ogg stream whose first header is damaged or not supported", offset=offset)

    def finish(self) -> OggAudio:
        audio = self._audio
        if self._headers_left:
            raise FormatError("an Ogg stream without all of its headers")
        if self._end is not None:
            audio.tail = min(max(self._total - (self._end - (self._start or 0)), 0), self._total)
        return audio
