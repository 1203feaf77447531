"""Forms of recordings, whose files are WAVs."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from touchfs.core.errors import FormatError
from touchfs.core.extent import Content, Extent, Memory, Rope
from touchfs.form.base import Form, Timing
from touchfs.form.samples import check_whole, samples_of, wav_of_samples, wav_size
from touchfs.format import wav
from touchfs.limits import Limits
from touchfs.media.coding.sample_format import WIDTHS, unpack, wav_header
from touchfs.media.extensions import can_be_cut

if TYPE_CHECKING:
    from touchfs.media.slices.read_slice import PcmSlice

_RATE_MAX, _CHANNELS_MAX = 2**32 - 1, 2**16 - 1  # of a WAV
_USUAL_FORMAT = "s16"
# The detail of a piece that is decoded: first sample and number of samples
_PIECE = struct.Struct("<qq")
PIECE_SIZE = _PIECE.size


@dataclass(frozen=True, slots=True)
class Pcm(Form):
    """`wav/RATE[/CHANNELS[/FORMAT]]`: headerless PCM or floats, little-endian; mono and 16-bit by default.

    `sample_format` is one of `touchfs.media.coding.sample_format`.
    """

    rate: int
    channels: int = 1
    sample_format: str = _USUAL_FORMAT

    def __post_init__(self) -> None:
        _check(self.rate, self.channels, self.sample_format)

    def __str__(self) -> str:
        if self.sample_format != _USUAL_FORMAT:
            return f"wav/{self.rate}/{self.channels}/{self.sample_format}"
        return f"wav/{self.rate}" if self.channels == 1 else f"wav/{self.rate}/{self.channels}"

    @property
    def frame_size(self) -> int:
        """Bytes of one sample of all channels."""
        return WIDTHS[self.sample_format] * self.channels

    def size(self, length: int, detail: bytes) -> int:
        return wav.header_size(length) + length

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        return Rope((Memory(wav_header(extent.size, self.rate, self.channels, self.sample_format)), extent))

    def timing(self, length: int, detail: bytes) -> Timing:
        return Timing(length // self.frame_size, self.rate, self.channels, self.sample_format)

    def samples(self, extent: Extent, detail: bytes, limits: Limits) -> PcmSlice:
        from touchfs.media.slices.read_slice import PcmSlice
        from touchfs.media.slices.reading import read_exactly

        check_whole(extent.size // self.frame_size, self.channels, self.sample_format)
        data = read_exactly(extent, 0, extent.size)
        return PcmSlice(unpack(data, self.sample_format, self.channels), self.rate, self.sample_format)


@dataclass(frozen=True, slots=True)
class Decoded(Form):
    """`decoded/RATE/CHANNELS[/FORMAT]`: a recording in any coding; the file has the samples that `detail` names."""

    rate: int
    channels: int
    sample_format: str = _USUAL_FORMAT

    def __post_init__(self) -> None:
        _check(self.rate, self.channels, self.sample_format)

    def __str__(self) -> str:
        text = f"decoded/{self.rate}/{self.channels}"
        return text if self.sample_format == _USUAL_FORMAT else f"{text}/{self.sample_format}"

    def size(self, length: int, detail: bytes) -> int:
        return wav_size(parse_piece(detail)[1], self.channels, self.sample_format)

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        """Decodes `limits.window` bytes at a time."""
        first, length = parse_piece(detail)
        return wav_of_samples(extent, first, length, self.rate, self.channels, self.sample_format, limits)

    def timing(self, length: int, detail: bytes) -> Timing:
        return Timing(parse_piece(detail)[1], self.rate, self.channels, self.sample_format)

    def samples(self, extent: Extent, detail: bytes, limits: Limits) -> PcmSlice:
        return samples_of(extent, *parse_piece(detail), self.rate, self.channels, limits)


def piece_detail(first: int, length: int) -> bytes:
    """The detail of the `length` samples of a recording from sample `first` on, for the form `Decoded`."""
    return _PIECE.pack(first, length)


def parse_piece(detail: bytes) -> tuple[int, int]:
    """First sample and number of samples of a detail of `piece_detail`. Raises FormatError if it is damaged."""
    first, length = _PIECE.unpack(detail) if len(detail) == PIECE_SIZE else (-1, -1)
    if min(first, length) < 0:
        raise FormatError("the catalog's span of a recording is damaged: index with --force")
    return first, length


def extend_piece(
    offset: int, length: int, detail: bytes, old: tuple[int, int], new: tuple[int, int]
) -> tuple[int, int, bytes]:
    """Offset, length and detail of a piece extended from the span `old` to `new`, in samples, with the same start.

    `offset`, `length` and `detail` are those of the old piece. What follows the span in the detail stays.
    """
    if detail:
        return offset, length, piece_detail(*new) + detail[PIECE_SIZE:]
    return offset, length // old[1] * new[1], b""


def _check(rate: int, channels: int, sample_format: str) -> None:
    if not (0 < rate <= _RATE_MAX and 0 < channels <= _CHANNELS_MAX and sample_format in WIDTHS):
        raise FormatError(f"no recording has {channels} channels of {sample_format} at {rate} Hz")


def can_cut(form: Form, extension: str | None) -> bool:
    """True if a file of this form and extension is a recording whose stored bytes pieces can be made of."""
    return form.is_stored and can_be_cut(extension)
