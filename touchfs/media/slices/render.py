"""Render a slice as a file: WAV, or FLAC. The same slice gives the same bytes in every run.

The steps and their order are part of the result: the span is cut, channels are chosen or mixed, the rate is changed,
and the sample format last.

- `mono` is the mean of all channels; a number chooses one.
- `rate` resamples with libswresample's default filter, to ceil(samples × rate / old rate) samples.
- The file has the sample format of the source, and 16 bits for lossy codings. "f32" gives 32-bit floats.

Resampling and FLAC take the slice as a whole, so they are for slices of minutes, not of hours.
The size of a WAV is known without decoding (`wav_size`). The size of a FLAC is not.
`renderer()` names all that the bytes depend on; it belongs into the key of whatever keeps them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from touchfs.errors import FormatError, UsageError
from touchfs.extent import Content, Extent, Memory, Rope, Source
from touchfs.format import wav
from touchfs.media.coding.sample_format import WIDTHS, convert_samples, dtype, is_float, pack
from touchfs.media.decoder.pool import DecodePool
from touchfs.media.slices.media_info import MediaInfo
from touchfs.media.slices.read_slice import PcmSlice, read_slice

# Of the code in this package: raise it when the same slice gets other bytes.
RENDERER_VERSION = 1

_PCM_FMT = b"fmt " + (16).to_bytes(4, "little") + wav.PCM.to_bytes(2, "little")
_FLOAT_FMT = _PCM_FMT[:-2] + (3).to_bytes(2, "little")
_FLAC_FORMATS = {"u8": "s16", "s16": "s16", "s24": "s24"}
_FLAC_CHANNELS_MAX = 8
# Samples that are resampled or encoded at once, in bytes: 12 minutes of 44.1 kHz in 16 bits
_CONVERTED_MAX = 1 << 26
_CHANNEL = re.compile(r"mono|\d{1,2}")


@dataclass(frozen=True, slots=True)
class Rendering:
    """How a slice is shown. `rate` in Hz, None for that of the source; `channels` None for all, "mono", or a number as
    text; `sample_format` None or "f32"; `file` is "wav" or "flac". Raises UsageError for other values.
    """

    rate: int | None = None
    channels: str | None = None
    sample_format: Literal["f32"] | None = None
    file: Literal["wav", "flac"] = "wav"

    def __post_init__(self) -> None:
        if self.rate is not None and not 0 < self.rate <= 1_000_000:
            raise UsageError(f"rate={self.rate}: a rate is 1 to 1,000,000 Hz")
        if self.channels is not None and not _CHANNEL.fullmatch(self.channels):
            raise UsageError(f"channels={self.channels}: it is mono, or the number of a channel")
        if self.sample_format not in (None, "f32") or self.file not in ("wav", "flac"):
            raise UsageError(f"format={self.sample_format or self.file}: it is wav, flac or f32")
        if self.sample_format == "f32" and self.file == "flac":
            raise UsageError("FLAC has no floats: choose format=flac or format=f32")

    def channels_of(self, info: MediaInfo) -> int:
        """The number of channels of the file. Raises UsageError if the recording has no such channel."""
        if self.channels is None:
            return info.channels
        if self.channels != "mono" and int(self.channels) >= info.channels:
            raise UsageError(f"channels={self.channels}: the recording has {info.channels}, the first one is 0")
        return 1

    def format_of(self, info: MediaInfo) -> str:
        """The sample format of the file. Raises UsageError if a FLAC cannot hold it."""
        if self.file == "wav":
            return self.sample_format or info.default_format
        if info.default_format not in _FLAC_FORMATS or self.channels_of(info) > _FLAC_CHANNELS_MAX:
            raise UsageError("FLAC has up to 24 bits and 8 channels: choose format=wav for this recording")
        return _FLAC_FORMATS[info.default_format]


def renderer() -> str:
    """The versions of all that the bytes of a slice depend on."""
    names = [f"touchfs-slices {RENDERER_VERSION}"]
    for package in ("av", "soundfile"):
        try:
            names.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            names.append(f"no {package}")
    return ", ".join(names)


def slice_length(info: MediaInfo, length: int, rendering: Rendering) -> int:
    """The samples per channel of the file for a slice of `length` samples of the recording."""
    return -(-length * (rendering.rate or info.rate) // info.rate)


def wav_size(info: MediaInfo, length: int, rendering: Rendering) -> int:
    """The size in bytes of a WAV for a slice of `length` samples, which lie inside the recording."""
    frame_size = WIDTHS[rendering.format_of(info)] * rendering.channels_of(info)
    data_size = slice_length(info, length, rendering) * frame_size
    return wav.header_size(data_size) + data_size


def render(content: Content, info: MediaInfo, first: int, length: int, pool: DecodePool, rendering: Rendering) -> bytes:
    """Render the samples `[first, first + length)` as a file. Raises the errors of `read_slice`, and UsageError."""
    channels, target = rendering.channels_of(info), rendering.format_of(info)
    rate = rendering.rate or info.rate
    if rate == info.rate and channels == info.channels and rendering.file == "wav":
        pcm = read_slice(content, info, first, length, pool, target)  # the child rounds
        return _wav(pcm)
    pcm = _choose(read_slice(content, info, first, length, pool, info.sample_format), rendering)
    if rate != pcm.rate or rendering.file == "flac":
        return _converted(pcm, rate, target, rendering.file, pool)
    return _wav(PcmSlice(convert_samples(pcm.samples, pcm.sample_format, target), rate, target))


def pcm_slice(source: Source, offset: int, info: MediaInfo, first: int, length: int) -> Content | None:
    """A WAV of plain PCM that copies nothing: a header, and an extent of a source, where the recording begins at byte
    `offset`. None if the recording is not plain PCM.
    """
    if not info.is_plain_pcm:
        return None
    size = max(min(length, info.frames - first), 0) * info.frame_size
    header = wav_header(size, info.rate, info.channels, info.sample_format)
    return Rope((Memory(header), Extent(source, offset + info.offset + first * info.frame_size, size)))


def wav_header(data_size: int, rate: int, channels: int, sample_format: str) -> bytes:
    """The header of a WAV. Raises FormatError for values that no header can describe."""
    header = wav.build_header(data_size, rate, channels, 8 * WIDTHS[sample_format])
    return header.replace(_PCM_FMT, _FLOAT_FMT, 1) if is_float(sample_format) else header


def _wav(pcm: PcmSlice) -> bytes:
    data = pack(pcm.samples, pcm.sample_format)
    return b"".join((wav_header(len(data), pcm.rate, pcm.samples.shape[1], pcm.sample_format), data))


def _choose(pcm: PcmSlice, rendering: Rendering) -> PcmSlice:
    if rendering.channels is None:
        return pcm
    if rendering.channels != "mono":
        number = int(rendering.channels)
        return PcmSlice(pcm.samples[:, number : number + 1], pcm.rate, pcm.sample_format)
    mean = pcm.samples.mean(1, dtype=np.float64, keepdims=True)
    samples: NDArray[Any] = mean if is_float(pcm.sample_format) else np.rint(mean)
    return PcmSlice(samples.astype(dtype(pcm.sample_format)), pcm.rate, pcm.sample_format)


def _converted(pcm: PcmSlice, rate: int, target: str, file: str, pool: DecodePool) -> bytes:
    channels = pcm.samples.shape[1]
    if pcm.samples.nbytes > _CONVERTED_MAX:
        raise UsageError(f"slices of over {_CONVERTED_MAX:,} bytes keep their rate, and are no FLAC: choose a shorter")
    request = {
        "sample_format": pcm.sample_format,
        "target": target,
        "channels": channels,
        "rate": pcm.rate,
        "new_rate": rate,
        "file": file,
    }
    answer = pool.request("convert", request, [np.ascontiguousarray(pcm.samples).data])
    if file == "flac":
        return bytes(answer.blobs[0])
    samples = np.frombuffer(answer.blobs[0], dtype(target)).reshape(-1, channels)
    if len(samples) != -(-len(pcm.samples) * rate // pcm.rate):
        raise FormatError("cannot be resampled: the decoder sends nonsense")
    return _wav(PcmSlice(samples, rate, target))
