"""FLAC frames: parse their headers, and find those of a span of samples by interpolation, without decoding.

A frame header begins with 15 fixed bits, says the number of its first sample, and ends with a checksum of 8 bits. Coded
sound looks like one about once in an hour of music. `scan_headers` yields whatever looks like one and fits the stream.
With it a span is found in 3 to 7 reads however long the file is, with or without a seek table, and the decoder checks
the checksums of the frames. If that fails, `scan_frames` finds the span, and takes 15 times as long. It yields frames
that prove each other: the second begins where the first one ends, in bytes and in samples, and the checksum (of 16
bits) of the first one is right.

Before FLAC 1.2, streams of blocks of several sizes did not say so in their frame headers. As in libFLAC, STREAMINFO
does: its smallest and largest block differ.

Source: RFC 9639, sections 8 and 9.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Reads

STREAM_INFO_SIZE = 34
_CHANNELS_OF_PAIRS = 2  # assignments 8 to 10: left and side, side and right, mid and side
_BITS = {0: 0, 1: 8, 2: 12, 4: 16, 5: 20, 6: 24, 7: 32}
_RATES = dict(enumerate((0, 88200, 176400, 192000, 8000, 16000, 22050, 24000, 32000, 44100, 48000, 96000)))
# Rates that follow the number, by code: bytes, and Hz of each unit
_WRITTEN_RATES = {12: (1, 1000), 13: (2, 1), 14: (2, 10)}
_BLOCK_SIZES = {1: 192, **{n: 144 << n for n in range(2, 6)}, **{n: 1 << n for n in range(8, 16)}}
_HEADER_MAX = 16
_SYNC = re.compile(rb"\xff[\xf8\xf9]")

_LAST_READ = 1 << 16
_READ_MIN, _READ_MAX = 1 << 12, 1 << 22
# Interpolation needs 3 to 6 reads; after these many the range is halved instead.
_INTERPOLATIONS = 8
_SEARCH_READS_MAX = 100
# No frame is larger: 8 channels of 65,535 samples of 32 bits, and headers
_FRAME_MAX = 8 * 65535 * 4 + (1 << 10)
# No sample takes more bytes on average, not even in frames of 16
_SAMPLE_MAX = 8


def _crc8_table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [(crc << 1 ^ (0x07 if crc & 0x80 else 0)) & 0xFF for crc in table]
    return table


_CRC8 = _crc8_table()
# Bytes whose checksum of 16 bits is computed at once
_CRC16_BLOCK = 256
# What looks like frames, and may be the one before a frame
_BEFORE_MAX = 4


@cache
def _crc16_table() -> NDArray[np.uint16]:
    """The checksum of each byte before n zeros, shape (n, 256). That of data is the XOR of those of its bytes."""
    byte = np.arange(256, dtype=np.uint16) << 8
    for _ in range(8):
        byte = byte << 1 ^ np.where(byte & 0x8000, 0x8005, 0).astype(np.uint16)
    rows = [byte]
    for _ in range(_CRC16_BLOCK - 1):
        rows.append(rows[-1] << 8 ^ byte[rows[-1] >> 8])
    return np.stack(rows)


def _crc16(data: Buffer) -> int:
    """The checksum of a frame; 0 if its own, which is its last 2 bytes, is right."""
    table = _crc16_table()
    padded = np.zeros(-(-len(data) // _CRC16_BLOCK) * _CRC16_BLOCK, np.uint8)  # zeros before it change nothing
    padded[len(padded) - len(data) :] = np.frombuffer(data, np.uint8)
    places = np.arange(_CRC16_BLOCK)[::-1]
    crc = 0
    for block in np.bitwise_xor.reduce(table[places, padded.reshape(-1, _CRC16_BLOCK)], axis=1).tolist():
        crc = int(table[-1, crc >> 8] ^ table[-2, crc & 0xFF]) ^ block
    return crc


@dataclass(frozen=True, slots=True)
class FlacStream:
    """The fields of STREAMINFO, and the byte range `[offset, end)` of the frames. `frames` is 0 if not known."""

    rate: int
    channels: int
    bits: int
    frames: int
    block_min: int
    block_max: int
    offset: int
    end: int


class FrameSpan(NamedTuple):
    """The bytes of frames that follow each other: their first sample, and their number of samples per channel."""

    first: int
    length: int
    data: Buffer


class Frame(NamedTuple):
    """A frame at a byte offset: its first sample, and its number of samples per channel."""

    offset: int
    first: int
    length: int


# `scan_headers` or `scan_frames`
Scan = Callable[[Buffer, int, FlacStream], Iterator[Frame]]


def parse_stream_info(data: Buffer, offset: int, end: int) -> FlacStream:
    """Parse the content of STREAMINFO, for frames in the byte range. Raises FormatError."""
    if len(data) < STREAM_INFO_SIZE:
        raise FormatError("a FLAC stream with a STREAMINFO that is cut short")
    numbers = int.from_bytes(data[10:18], "big")
    rate, channels, bits = numbers >> 44, (numbers >> 41 & 7) + 1, (numbers >> 36 & 31) + 1
    smallest, largest = int.from_bytes(data[:2], "big"), int.from_bytes(data[2:4], "big")
    if not rate or bits < 4 or not 16 <= smallest <= largest:
        raise FormatError(f"a FLAC stream of {bits} bits at {rate} Hz, with blocks of {smallest} to {largest} samples")
    return FlacStream(rate, channels, bits, numbers & (1 << 36) - 1, smallest, largest, offset, end)


def parse_frame(data: Buffer, at: int, stream: FlacStream, offset: int) -> Frame | None:
    """Parse the header at `data[at]`, which has the byte offset `offset` in the file; None if there is none."""
    header = bytes(data[at : at + _HEADER_MAX])
    if len(header) < 6 or header[0] != 0xFF or header[1] & 0xFE != 0xF8 or header[3] & 1:
        return None
    assignment = header[3] >> 4
    channels = assignment + 1 if assignment < 8 else _CHANNELS_OF_PAIRS if assignment < 11 else 0
    bits = _BITS.get(header[3] >> 1 & 7, -1)
    if channels != stream.channels or bits not in (0, stream.bits):
        return None
    size = max(8 - (header[4] ^ 0xFF).bit_length(), 1)  # ones at the begin of UTF-8; a plain byte has none
    if size > 7 or header[4] & 0xC0 == 0x80:
        return None
    number = header[4] & (0x7F if size == 1 else 0x7F >> size)
    for byte in header[5 : 4 + size]:
        if byte & 0xC0 != 0x80:
            return None
        number = number << 6 | byte & 0x3F
    end = 4 + size
    code, rate_code = header[2] >> 4, header[2] & 15
    if code in (6, 7):
        length = int.from_bytes(header[end : end + code - 5], "big") + 1
        end += code - 5
    else:
        length = _BLOCK_SIZES.get(code, 0)
    width, unit = _WRITTEN_RATES.get(rate_code, (0, 0))
    rate = int.from_bytes(header[end : end + width], "big") * unit if width else _RATES.get(rate_code, -1)
    end += width
    if not 0 < length <= stream.block_max or rate not in (0, stream.rate) or len(header) <= end:
        return None
    crc = 0
    for byte in header[:end]:
        crc = _CRC8[crc ^ byte]
    if crc != header[end]:
        return None
    is_variable = header[1] & 1 or stream.block_min != stream.block_max
    first = number if is_variable else number * stream.block_max
    if stream.frames and first + length > stream.frames:
        return None
    return Frame(offset, first, length)


def scan_headers(data: Buffer, offset: int, stream: FlacStream, at: int = 0) -> Iterator[Frame]:
    """Yield what looks like frames in bytes that begin at `offset` of the file, from `data[at]` on."""
    for match in _SYNC.finditer(data, at):
        if frame := parse_frame(data, match.start(), stream, offset + match.start()):
            yield frame


def scan_frames(data: Buffer, offset: int, stream: FlacStream, at: int = 0) -> Iterator[Frame]:
    """Like `scan_headers`, but only frames that prove each other, and the first one of the stream."""
    view = memoryview(data)
    before: deque[Frame] = deque(maxlen=_BEFORE_MAX)  # that the next one may follow
    last = -1  # where the last one begins that was yielded
    for frame in scan_headers(data, offset, stream, at):
        for each in before:
            data_of = view[each.offset - offset : frame.offset - offset]
            if each.first + each.length == frame.first and not _crc16(data_of):
                yield from (each, frame) if each.offset > last else (frame,)
                last = frame.offset
                break
        else:
            if frame.offset == stream.offset:
                yield frame
                last = frame.offset
        before.append(frame)


def find_frame(stream: FlacStream, sample: int, scan: Scan, before: Frame | None = None) -> Reads[Frame]:
    """Find the frame that has a sample, after the frame `before` if that is known. Raises FormatError."""
    low = before or Frame(stream.offset, -1, 0)
    high, high_sample = stream.end, stream.frames
    average = (stream.end - stream.offset) * stream.block_max // max(stream.frames, 1)
    size = min(max(2 * average, _READ_MIN), _READ_MAX)
    for count in range(_SEARCH_READS_MAX):
        if low.first <= sample < low.first + low.length:
            return low
        if count < _INTERPOLATIONS:
            share = (sample - low.first) / max(high_sample - low.first, 1)
            guess = low.offset + int((high - low.offset) * share) - size // 2
        else:
            guess = (low.offset + high) // 2
        guess = max(min(guess, high - size), low.offset)
        data = yield guess, min(size + _HEADER_MAX, stream.end - guess)
        found = False
        for frame in scan(data, guess, stream):
            if frame.offset >= high or not low.first < frame.first < high_sample:
                continue
            found = True
            if frame.first > sample:
                high, high_sample = frame.offset, frame.first
                break
            low = frame
        if not found:
            if guess == low.offset and guess + size >= high:
                break
            if size == _READ_MAX:
                high = guess + size // 2
            size = min(2 * size, _READ_MAX)
    raise FormatError(f"no FLAC frame with sample {sample} is found: it is damaged or cut short", offset=low.offset)


def find_span(stream: FlacStream, first: int, length: int, scan: Scan) -> Reads[FrameSpan]:
    """Find frames that have the samples `[first, first + length)`, up to two more than are needed.

    Only the headers of the first frame and of the one after the last are parsed, so it is for the decoder to notice
    frames in between that are damaged, or missing: these are not `FrameSpan.length` samples. Raises FormatError.
    """
    begin = yield from find_frame(stream, first, scan)
    # Whatever sizes frames have, the one with this sample begins after the last sample of the span.
    sample = first + length + stream.block_max - 1
    after = Frame(stream.end, stream.frames, 0)
    if sample < stream.frames:
        after = yield from find_frame(stream, sample, scan, begin)
    size, samples = after.offset - begin.offset, after.first - begin.first
    if size > _FRAME_MAX + samples * stream.channels * _SAMPLE_MAX:
        raise FormatError(f"FLAC frames of {samples} samples take {size} bytes: they are damaged", offset=begin.offset)
    return FrameSpan(begin.first, samples, (yield begin.offset, size))


def last_sample(stream: FlacStream) -> Reads[int]:
    """The number of samples of a stream whose STREAMINFO does not say it, from its last frame. Raises FormatError."""
    size = _LAST_READ // 4
    while size < _FRAME_MAX * 2:
        size = min(4 * size, stream.end - stream.offset)
        data = yield stream.end - size, size
        if found := list(scan_frames(data, stream.end - size, stream)):
            return found[-1].first + found[-1].length
        if size == stream.end - stream.offset:
            raise FormatError("no FLAC frame is found", offset=stream.offset)
    raise FormatError("the last FLAC frames are damaged", offset=stream.end - size)
