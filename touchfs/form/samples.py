"""The samples of a recording in any coding, as the data of a WAV file.

They are decoded in windows, which are cached in two places: the last ones of this process in memory (`computed.py`),
and all in the scratch store, so that many readers of one piece decode it once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Content, Extent, Memory, Rope
from touchfs.form.computed import ComputedContent
from touchfs.form.kept import identity_of, kept_or_made
from touchfs.form.lengths import info_of
from touchfs.format import wav
from touchfs.limits import Limits
from touchfs.media.coding.sample_format import WIDTHS, dtype, pack, wav_header

if TYPE_CHECKING:
    from touchfs.media.slices.read_slice import PcmSlice

_U8_SILENCE, _SILENCE = b"\x80", b"\0"


def wav_size(length: int, channels: int, sample_format: str) -> int:
    """The size in bytes of a WAV file of `length` samples per channel."""
    data_size = length * channels * WIDTHS[sample_format]
    return wav.header_size(data_size) + data_size


def wav_of_samples(
    extent: Extent, first: int, length: int, rate: int, channels: int, sample_format: str, limits: Limits
) -> Content:
    """A WAV file of the samples `[first, first + length)` of all channels. Decodes `limits.window` bytes at a time.

    `first` and `length` count samples at `rate` Hz. A recording of another rate (Opus has 48,000 Hz, whatever its
    manifest says) is resampled. Samples after its end are silence: MP3 and Opus may have a few samples fewer than their
    shard declares. Reading raises as `info_of`, and FormatError for another number of channels.
    """
    frame_size = channels * WIDTHS[sample_format]
    silence = _U8_SILENCE if sample_format == "u8" else _SILENCE

    def render(offset: int, size: int) -> Buffer:
        from touchfs.media.decoder.shared import shared_pool
        from touchfs.media.slices.resample import read_at_rate

        info = info_of(extent, limits)
        if info.channels != channels:
            raise FormatError(f"a recording of {info.channels} channels where {channels} were expected")
        start, count = first + offset // frame_size, size // frame_size

        def decode() -> Buffer:
            pool = shared_pool(limits.decode_seconds)
            pcm = read_at_rate(extent, info, start, count, rate, pool, sample_format)
            data = pack(pcm.samples, sample_format)
            return data if len(data) == size else bytes(data).ljust(size, silence)

        if info.is_plain_pcm:  # it is faster to convert than to keep
            return decode()
        return kept_or_made(extent, f"samples {start} {count} {rate} {sample_format}", decode)

    size, window = length * frame_size, max(limits.window // frame_size, 1) * frame_size
    header = Memory(wav_header(size, rate, channels, sample_format))
    identity = identity_of(extent)
    name = None if identity is None else (identity, first, length, rate, channels, sample_format, window)
    return Rope((header, ComputedContent(size, window, render, name)))


def samples_of(extent: Extent, first: int, length: int, rate: int, channels: int, limits: Limits) -> PcmSlice:
    """The samples `[first, first + length)` of all channels in the format in which they are decoded.

    Samples, rates, channels and errors as for `wav_of_samples`. Raises FormatError for so many that they are not
    rendered as a whole.
    """
    from touchfs.media.decoder.shared import shared_pool
    from touchfs.media.slices.read_slice import PcmSlice
    from touchfs.media.slices.resample import read_at_rate

    info = info_of(extent, limits)
    if info.channels != channels:
        raise FormatError(f"a recording of {info.channels} channels where {channels} were expected")
    sample_format = info.sample_format
    check_whole(length, channels, sample_format)
    pcm = read_at_rate(extent, info, first, length, rate, shared_pool(limits.decode_seconds), sample_format)
    if missing := length - len(pcm.samples):
        silence = np.full((missing, channels), _U8_SILENCE[0] if sample_format == "u8" else 0, dtype(sample_format))
        pcm = PcmSlice(np.concatenate([pcm.samples, silence]), rate, sample_format)
    return pcm


def check_whole(length: int, channels: int, sample_format: str) -> None:
    """Check that `length` samples per channel may be rendered as a whole. Raises FormatError."""
    from touchfs.media.slices.rendering import SAMPLES_MAX

    if length * channels * dtype(sample_format).itemsize > SAMPLES_MAX:
        raise FormatError(f"up to {SAMPLES_MAX:,} bytes of samples are rendered: choose a smaller max")
