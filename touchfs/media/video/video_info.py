"""The description of a video: coding, size, times and places of all packets of its pictures, and of its sound.

A caller may keep it as bytes, with the key by which it knows that the file is the same: what is kept is checked
against damage and against the size of the file, and not against other bytes of the same size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

from touchfs.core.errors import FormatError, UsageError
from touchfs.media.coding.checked_bytes import damaged, pack_checked, unpack_checked
from touchfs.media.coding.packet_table import PacketTable
from touchfs.media.video.movie import BRANDS

# The version of this package's code: raise it when the same span or frame gets other bytes. It is a part of the key of
# what is kept of them, with `renderer()` of `slices/render.py`.
VIDEO_VERSION = 1

# magic, version, checksum of the rest, size of the JSON text. After it: the blobs, whose sizes are in the text.
_MAGIC, _VERSION, _OF = b"tfVI", 1, "a video"
_SIZE_MAX = 1 << 15  # of pictures, in pixels
_RATE_MAX = 1 << 31  # ticks a second
_SECONDS_MAX = 1 << 31
# Times that a caller gives have no more digits, so that 5.7 is 5.7 and not the nearest float.
_NANOSECONDS = 10**9
_MATRIX_SIZE = 44  # at the end of `tkhd`, with the width and height after it
# Errors that wrong values from outside raise
NONSENSE = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, StopIteration, RecursionError)

# Takes the number of packets, and from the blobs as many as they need
ReadPackets = Callable[[int, Iterator[bytes]], PacketTable]


class NoPicturesError(FormatError):
    """The file may be a recording, but it is no video."""


@dataclass(frozen=True, slots=True)
class SoundTrack:
    """The sound of a video: `rate` in Hz, times of its packets in ticks of `time_base` seconds.

    `sample_entry` is the box `stsd` of an MP4 of it, with `brand`; empty if an MP4 cannot have it. `frame_size` is the
    bytes of one sample of all channels if it is PCM, else 0.
    """

    coding: str
    rate: int
    frame_size: int
    time_base: Fraction
    brand: str
    sample_entry: bytes
    packets: PacketTable


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """Pictures of `width` × `height` pixels; times of packets in ticks of `time_base` seconds.

    `coding` has libav's names, `container` is that of `slices/containers.py`. The video begins `start` seconds after
    time 0 of its packets. `codec_tag` and `extradata` are what the
    decoder needs. `brand`, `sample_entry` and `track_header` are boxes of an MP4 of the pictures; the entry is empty
    if an MP4 cannot have them. `file_size` is that of the whole file.
    """

    container: str
    coding: str
    codec_tag: str
    width: int
    height: int
    time_base: Fraction
    start: Fraction
    file_size: int
    extradata: bytes
    brand: str
    sample_entry: bytes
    track_header: bytes
    packets: PacketTable
    sound: SoundTrack | None

    def __post_init__(self) -> None:
        """Raises FormatError for values that no video has."""
        tracks: list[VideoInfo | SoundTrack] = [self] if self.sound is None else [self, self.sound]
        if not (
            0 < self.width <= _SIZE_MAX
            and 0 < self.height <= _SIZE_MAX
            and all(0 < track.time_base.denominator < _RATE_MAX for track in tracks)
            and all(0 < track.time_base.numerator < _RATE_MAX for track in tracks)
            and all(not track.sample_entry or track.brand in BRANDS for track in tracks)
            and abs(self.start) < _SECONDS_MAX
            and len(self.packets)
        ):
            raise FormatError(f"pictures of {self.width} × {self.height}: it is damaged, or cannot be sliced")
        if self.sound is not None and not (0 < self.sound.rate < _RATE_MAX and 0 <= self.sound.frame_size < 1 << 16):
            raise FormatError(f"sound of {self.sound.rate} Hz: it is damaged")
        for track in tracks:
            track.packets.check(self.file_size)
            if float(abs(track.packets.times).max(initial=0)) * float(track.time_base) >= _SECONDS_MAX:
                raise FormatError("its times are of centuries: it is damaged")

    @property
    def seconds(self) -> float:
        """The time at which the last frame ends."""
        return float(self.packets.end * self.time_base - self.start)

    @property
    def rotation(self) -> int:
        """The angle by which players turn the pictures, in degrees clockwise: 0, 90, 180 or 270."""
        if len(self.track_header) < _MATRIX_SIZE:
            return 0
        a, b = struct.unpack_from(">ii", self.track_header, len(self.track_header) - _MATRIX_SIZE)
        if abs(a) >= abs(b):
            return 0 if a >= 0 else 180
        return 90 if b > 0 else 270

    def to_ticks(self, seconds: float) -> int:
        """The nearest tick to a time in seconds, as ffmpeg rounds it. Raises UsageError."""
        if not abs(seconds) < _SECONDS_MAX:
            raise UsageError(f"no video has a time of {seconds} s")
        exact = Fraction(round(seconds * _NANOSECONDS), _NANOSECONDS) + self.start
        return int((exact / self.time_base + Fraction(1, 2)) // 1)

    def to_bytes(self) -> bytes:
        """All of it as bytes, for `from_bytes`."""
        blobs: list[bytes] = []
        values = _values(self, blobs)
        return pack_checked(_MAGIC, _VERSION, {**values, "blobs": [len(blob) for blob in blobs]}, *blobs)

    @classmethod
    def from_bytes(cls, data: bytes, file_size: int) -> VideoInfo:
        """Read what `to_bytes` returned, for a file of `file_size` bytes. Raises FormatError."""
        values, rest = unpack_checked(data, _MAGIC, _VERSION, _OF)
        try:
            blobs, start = [], 0
            for length in values.pop("blobs"):
                blobs.append(rest[start : start + length])
                start += len(blobs[-1])
            info = build(values, iter(blobs), lambda count, blobs: PacketTable.from_bytes(next(blobs), count))
        except NONSENSE as error:
            raise damaged(_OF) from error
        if info.file_size != file_size:
            raise FormatError(f"what is kept of a video is of a file of {info.file_size} bytes, not of {file_size}")
        return info


def build(values: dict[str, Any], blobs: Iterator[bytes], packets: ReadPackets) -> VideoInfo:
    """Make it of values that JSON can hold, and of blobs, both by the order of the fields. `packets` takes those of a
    table. Raises FormatError, and the errors of NONSENSE for other values.
    """
    parsed = _parsed(VideoInfo, values, blobs, packets)
    sound = values["sound"]
    return VideoInfo(
        **parsed, sound=None if sound is None else SoundTrack(**_parsed(SoundTrack, sound, blobs, packets))
    )


def _parsed(
    track: type[VideoInfo | SoundTrack], values: dict[str, Any], blobs: Iterator[bytes], packets: ReadPackets
) -> dict[str, Any]:
    parsed: dict[str, Any] = {}
    for field in fields(track):
        value: Any = values.get(field.name)
        match field.type, value:
            case "bytes", _:
                parsed[field.name] = bytes(next(blobs))
            case "PacketTable", _:
                parsed[field.name] = packets(int(value), blobs)
            case "Fraction", [numerator, denominator]:
                parsed[field.name] = Fraction(int(numerator), int(denominator))
            case "str", _:
                parsed[field.name] = str(value)
            case "int", _:
                parsed[field.name] = int(value)
    return parsed


def _values(track: VideoInfo | SoundTrack, blobs: list[bytes]) -> dict[str, Any]:
    """The fields for `build`. Bytes and packets go to `blobs`."""
    values: dict[str, Any] = {}
    for field in fields(track):
        match getattr(track, field.name):
            case bytes(data):
                blobs.append(data)
            case PacketTable() as table:
                blobs.append(table.to_bytes())
                values[field.name] = len(table)
            case Fraction() as fraction:
                values[field.name] = fraction.as_integer_ratio()
            case SoundTrack() as sound:
                values[field.name] = _values(sound, blobs)
            case value:
                values[field.name] = value
    return values
