"""Read a span of a recording at another rate. Any span has the samples of the whole recording resampled.

libswresample computes a sample from its neighbours. So the samples around the span are read as well, and resampling
begins where samples of both rates fall together.
"""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Content
from touchfs.media.coding.sample_format import dtype
from touchfs.media.decoder.pool import DecodePool
from touchfs.media.slices.media_info import MediaInfo
from touchfs.media.slices.read_slice import PcmSlice, read_slice

# Samples at the lower rate on each side of the span. The filter has 16 on each side.
_MARGIN = 64
# Values (samples of all channels) that are resampled at once: 32 MB of floats, 90 s of CD
_VALUES_MAX = 1 << 23


def read_at_rate(
    content: Content, info: MediaInfo, first: int, length: int, rate: int, pool: DecodePool, sample_format: str
) -> PcmSlice:
    """Read the samples `[first, first + length)` of all channels, counted at `rate` Hz. Fewer at the end.

    Raises as `read_slice`.
    """
    if rate == info.rate:
        return read_slice(content, info, first, length, pool, sample_format)
    step = max(_VALUES_MAX // info.channels * rate // max(rate, info.rate), 1)
    blocks = [np.empty((0, info.channels), dtype(sample_format))]
    for start in range(first, first + length, step):
        blocks.append(_read(content, info, start, min(step, first + length - start), rate, pool, sample_format))
    return PcmSlice(np.concatenate(blocks), rate, sample_format)


def _read(
    content: Content, info: MediaInfo, first: int, length: int, rate: int, pool: DecodePool, sample_format: str
) -> NDArray[Any]:
    divisor = gcd(rate, info.rate)
    period, old_period = rate // divisor, info.rate // divisor  # samples of both rates that take the same time
    margin = -(-_MARGIN // min(period, old_period))
    begin, end = max(first // period - margin, 0), -(-(first + length) // period) + margin
    old = read_slice(content, info, begin * old_period, (end - begin) * old_period, pool, info.sample_format)
    skip = first - begin * period
    return resample(old, rate, pool, sample_format)[skip : skip + length]


def resample(pcm: PcmSlice, rate: int, pool: DecodePool, sample_format: str) -> NDArray[Any]:
    """Resample with libswresample to ceil(samples × rate / old rate) samples of a format. Raises as `pool.request`."""
    channels = pcm.samples.shape[1]
    samples = np.frombuffer(convert(pcm, rate, pool, sample_format, "wav"), dtype(sample_format)).reshape(-1, channels)
    if len(samples) != -(-len(pcm.samples) * rate // pcm.rate):
        raise FormatError("cannot be resampled: the decoder sends nonsense")
    return samples


def convert(pcm: PcmSlice, rate: int, pool: DecodePool, sample_format: str, file: str) -> Buffer:
    """Resample in a child process. Returns the samples, interleaved; or a FLAC file if `file` is "flac"."""
    request = {
        "sample_format": pcm.sample_format,
        "target": sample_format,
        "channels": pcm.samples.shape[1],
        "rate": pcm.rate,
        "new_rate": rate,
        "file": file,
    }
    return pool.request("convert", request, [np.ascontiguousarray(pcm.samples).data]).blobs[0]
