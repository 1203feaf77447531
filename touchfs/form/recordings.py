"""Forms of recordings, whose files are WAVs of 16-bit PCM."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from touchfs.errors import FormatError
from touchfs.extent import Content, Extent, Memory, Rope
from touchfs.form.base import Form, Timing
from touchfs.form.computed import ComputedContent
from touchfs.format import wav
from touchfs.limits import Limits

_SAMPLE_SIZE = 2
_RATE_MAX, _CHANNELS_MAX = 2**32 - 1, 2**16 - 1  # of a WAV
# The detail of a piece that is decoded: first sample and number of samples
_PIECE = struct.Struct("<qq")


@dataclass(frozen=True, slots=True)
class Pcm(Form):
    """`wav/RATE[/CHANNELS]`: headerless PCM, 16-bit little-endian, mono by default."""

    rate: int
    channels: int = 1

    def __post_init__(self) -> None:
        _check(self.rate, self.channels)

    def __str__(self) -> str:
        return f"wav/{self.rate}" if self.channels == 1 else f"wav/{self.rate}/{self.channels}"

    @property
    def frame_size(self) -> int:
        """Bytes of one sample of all channels."""
        return _SAMPLE_SIZE * self.channels

    def size(self, length: int, detail: bytes) -> int:
        return wav.header_size(length) + length

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        return Rope((Memory(wav.build_header(extent.size, self.rate, self.channels)), extent))

    def timing(self, length: int, detail: bytes) -> Timing:
        return Timing(length // self.frame_size, self.rate)


@dataclass(frozen=True, slots=True)
class Decoded(Form):
    """`decoded/RATE/CHANNELS`: a recording in any coding; the file has the samples that `detail` names."""

    rate: int
    channels: int

    def __post_init__(self) -> None:
        _check(self.rate, self.channels)

    def __str__(self) -> str:
        return f"decoded/{self.rate}/{self.channels}"

    def size(self, length: int, detail: bytes) -> int:
        size = self._span(detail)[1] * _SAMPLE_SIZE * self.channels
        return wav.header_size(size) + size

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        """Decodes `limits.window` bytes at a time."""
        first, length = self._span(detail)
        channels, frame_size = self.channels, _SAMPLE_SIZE * self.channels

        def render(offset: int, size: int) -> bytes:
            from touchfs.media.piece import decode_piece

            return decode_piece(extent, first + offset // frame_size, size // frame_size, channels)

        size, window = length * frame_size, max(limits.window // frame_size, 1) * frame_size
        return Rope((Memory(wav.build_header(size, self.rate, channels)), ComputedContent(size, window, render)))

    def timing(self, length: int, detail: bytes) -> Timing:
        return Timing(self._span(detail)[1], self.rate)

    def _span(self, detail: bytes) -> tuple[int, int]:
        """First sample and number of samples."""
        first, length = _PIECE.unpack(detail) if len(detail) == _PIECE.size else (-1, -1)
        if min(first, length) < 0:
            raise FormatError("the catalog's span of a recording is damaged: index with --force")
        return first, length


def piece_detail(first: int, length: int) -> bytes:
    """The detail of the `length` samples of a recording from sample `first` on, for the form `Decoded`."""
    return _PIECE.pack(first, length)


def extend_piece(
    offset: int, length: int, detail: bytes, old: tuple[int, int], new: tuple[int, int]
) -> tuple[int, int, bytes]:
    """Offset, length and detail of a piece extended from the span `old` to `new`, in samples, with the same start.

    `offset`, `length` and `detail` are those of the old piece.
    """
    if detail:
        return offset, length, piece_detail(*new)
    return offset, length // old[1] * new[1], b""


def _check(rate: int, channels: int) -> None:
    if not (0 < rate <= _RATE_MAX and 0 < channels <= _CHANNELS_MAX):
        raise FormatError(f"no recording has {channels} channels at {rate} Hz")
