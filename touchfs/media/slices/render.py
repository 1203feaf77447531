"""Render a slice as a file: WAV, or FLAC. The same slice gives the same bytes in every run.

The steps and their order are part of the result: the span is cut, channels are chosen or mixed, the rate is changed,
and the sample format last.

- `mono` is the mean of all channels; a number chooses one.
- `rate` resamples with libswresample's default filter, to ceil(samples × rate / old rate) samples.
- The file has the sample format of the source, and 16 bits for lossy codings. "f32" gives 32-bit floats.

Resampling and FLAC take the slice as a whole, so they are for slices of minutes, not of hours.
The size of a WAV is known without decoding, by the methods of `Rendering`. The size of a FLAC is not.
`renderer()` names all that the bytes depend on; it belongs into the key of whatever keeps them.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import UsageError
from touchfs.core.extent import Content
from touchfs.media.coding.sample_format import convert_samples, dtype, is_float, pack, wav_header
from touchfs.media.decoder.pool import DecodePool
from touchfs.media.slices.media_info import MediaInfo
from touchfs.media.slices.read_slice import PcmSlice, read_slice
from touchfs.media.slices.rendering import MONO, SAMPLES_MAX, Rendering
from touchfs.media.slices.resample import convert, resample

# The version of the code in this package: raise it when the same slice gets other bytes.
RENDERER_VERSION = 2


@cache
def renderer() -> str:
    """The versions of all that the bytes of a slice depend on."""
    names = [f"touchfs-slices {RENDERER_VERSION}"]
    for package in ("av", "soundfile"):
        try:
            names.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            names.append(f"no {package}")
    return ", ".join(names)


def render(content: Content, info: MediaInfo, first: int, length: int, pool: DecodePool, rendering: Rendering) -> bytes:
    """Render the samples `[first, first + length)` as a file. Raises the errors of `read_slice`, and UsageError."""
    target = rendering.format_of(info.channels, info.default_format)
    has_all = rendering.channels_of(info.channels) == info.channels and rendering.rate in (None, info.rate)
    if has_all and rendering.file == "wav":
        return _wav(read_slice(content, info, first, length, pool, target))  # the child rounds
    pcm = read_slice(content, info, first, length, pool, info.sample_format)
    return render_samples(pcm, info.default_format, pool, rendering)


def render_samples(pcm: PcmSlice, sample_format: str, pool: DecodePool, rendering: Rendering) -> bytes:
    """Render samples as a file, which without a rendering would have this sample format. Raises UsageError."""
    target = rendering.format_of(pcm.samples.shape[1], sample_format)
    chosen, rate = _choose(pcm, rendering), rendering.rate or pcm.rate
    if rate != pcm.rate or rendering.file == "flac":
        return _converted(chosen, rate, target, rendering.file, pool)
    return _wav(PcmSlice(convert_samples(chosen.samples, chosen.sample_format, target), rate, target))


def _wav(pcm: PcmSlice) -> bytes:
    data = pack(pcm.samples, pcm.sample_format)
    return b"".join((wav_header(len(data), pcm.rate, pcm.samples.shape[1], pcm.sample_format), data))


def _choose(pcm: PcmSlice, rendering: Rendering) -> PcmSlice:
    if rendering.channels_of(pcm.samples.shape[1]) == pcm.samples.shape[1]:
        return pcm
    if rendering.channels != MONO:
        number = int(rendering.channels or 0)
        return PcmSlice(pcm.samples[:, number : number + 1], pcm.rate, pcm.sample_format)
    mean = pcm.samples.mean(1, dtype=np.float64, keepdims=True)
    samples: NDArray[Any] = mean if is_float(pcm.sample_format) else np.rint(mean)
    return PcmSlice(samples.astype(dtype(pcm.sample_format)), pcm.rate, pcm.sample_format)


def _converted(pcm: PcmSlice, rate: int, target: str, file: str, pool: DecodePool) -> bytes:
    if pcm.samples.nbytes > SAMPLES_MAX:
        raise UsageError(f"slices of over {SAMPLES_MAX:,} bytes keep their rate, and are no FLAC: choose a shorter")
    if file == "flac":
        return bytes(convert(pcm, rate, pool, target, file))
    return _wav(PcmSlice(resample(pcm, rate, pool, target), rate, target))
