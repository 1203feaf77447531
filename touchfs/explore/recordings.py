"""Draw a recording, whatever its length: at most 128 MB of it are read, in blocks of some megabytes.

PCM up to that is drawn from every sample, longer PCM from the beginning of each column. A coded recording of over two
minutes is drawn for its first minute.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from touchfs.core.extent import Content
from touchfs.explore.page import Recording
from touchfs.limits import LIMITS, Limits
from touchfs.media.coding.sample_format import wav_header
from touchfs.media.decoder.pool import DecodePool
from touchfs.media.decoder.shared import shared_pool
from touchfs.media.slices.media_info import MediaInfo
from touchfs.media.slices.probe import probe
from touchfs.media.slices.read_slice import read_slice
from touchfs.picture.shrink import bounds
from touchfs.picture.sketch import Sketch

MOST_BYTES = 1 << 27
_BLOCK_BYTES = 1 << 22
_WHOLE_SECONDS, _FIRST_SECONDS = 120, 60
# SoundFacts that a page of HTML has in it.
_PLAYED_SECONDS, _PLAYED_BYTES = 30, 2_000_000
_CHANNELS = {1: "mono", 2: "stereo"}
_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class SoundFacts:
    """What a recording is. `drawn` seconds of it are in its picture, `remark` says how."""

    facts: str
    rate: int
    channels: int
    seconds: float
    drawn: float
    remark: str


def describe(content: Content, pool: DecodePool, most_bytes: int = MOST_BYTES) -> SoundFacts:
    """Say what a recording is, and how `draw` draws it. Raises as `draw`."""
    info = probe(content, pool)
    frames, remark = _drawn(info, most_bytes)
    return SoundFacts(_format(info), info.rate, info.channels, info.seconds, frames / info.rate, remark)


def _drawn(info: MediaInfo, most_bytes: int) -> tuple[int, str]:
    """How many frames are in the picture of a recording, and how they are drawn."""
    if info.is_plain_pcm:
        is_sampled = info.frames * info.frame_size > most_bytes
        return info.frames, "sampled: a part of each column is read" if is_sampled else ""
    drawn = frames_drawn(info)
    return drawn, f"the first {drawn / info.rate:.0f} s of {format_seconds(info.seconds)}" * (drawn < info.frames)


def draw(
    name: str,
    content: Content,
    columns: int,
    limits: Limits = LIMITS,
    played_seconds: float = 0,
    pool: DecodePool | None = None,
    most_bytes: int = MOST_BYTES,
) -> Recording:
    """Draw a recording in so many columns; with its sound as WAV, if that has at most `played_seconds`. Of PCM at most
    `most_bytes` are read.

    Raises FormatError for one that cannot be decoded, MissingExtraError without its decoder, and the errors of sources.
    """
    pool = shared_pool(limits.decode_seconds) if pool is None else pool
    info = probe(content, pool)
    sketch = Sketch(columns, info.rate, info.channels)
    drawn, remark = _drawn(info, most_bytes)
    if info.is_plain_pcm:
        _draw_pcm(sketch, content, info, pool, most_bytes)
    else:
        samples = read_slice(content, info, 0, drawn, pool, "f32").samples
        sketch.add(0, samples, bounds(len(samples), columns))
    wav = b""
    if info.seconds <= min(played_seconds, _PLAYED_SECONDS) and info.frames * info.channels * 2 <= _PLAYED_BYTES:
        data = read_slice(content, info, 0, info.frames, pool, "s16").samples.tobytes()
        wav = wav_header(len(data), info.rate, info.channels, "s16") + data
    return Recording(name, _facts(info, sketch), sketch, info.rate, info.seconds, drawn / info.rate, remark, wav)


def frames_drawn(info: MediaInfo) -> int:
    """How many frames of a recording that is decoded are in its picture."""
    seconds = info.seconds if info.seconds <= _WHOLE_SECONDS else _FIRST_SECONDS
    return min(info.frames, int(seconds * info.rate) + 1, MOST_BYTES // (_FLOAT_BYTES * info.channels))


def _draw_pcm(sketch: Sketch, content: Content, info: MediaInfo, pool: DecodePool, most_bytes: int) -> None:
    """Draw plain PCM; of that with more bytes the beginning of each column."""
    edges = bounds(info.frames, sketch.columns)
    a_column = max(info.frames // sketch.columns, 1) * info.frame_size

    def samples(first: int, last: int) -> NDArray[np.float32]:
        found: NDArray[np.float32] = read_slice(content, info, first, last - first, pool, "f32").samples
        return found

    if info.frames * info.frame_size > most_bytes:
        most = max(most_bytes // sketch.columns // info.frame_size, 1)
        for column, first in enumerate(edges[:-1].tolist()):
            part = samples(first, first + most)
            sketch.add(column, part, np.array([0, len(part)]))
        return
    step = max(_BLOCK_BYTES // a_column, 1)
    for column in range(0, sketch.columns, step):
        places = edges[column : column + step + 1]
        sketch.add(column, samples(int(places[0]), int(places[-1])), places - places[0])


def _facts(info: MediaInfo, sketch: Sketch) -> str:
    loudness = f"peak {_decibels(sketch.peak)}, RMS {_decibels(sketch.rms)} dBFS" if sketch.peak else "silence"
    clipped = [f"{sketch.clipped:,} clipped samples"] if sketch.clipped else []
    return " · ".join([_format(info), loudness, *clipped])


def _format(info: MediaInfo) -> str:
    channels = _CHANNELS.get(info.channels, f"{info.channels} channels")
    coding = f"{_bits(info.sample_format)} PCM" if info.is_plain_pcm else info.coding
    return " · ".join([format_seconds(info.seconds), f"{info.rate:,} Hz", channels, coding])


def _bits(sample_format: str) -> str:
    return f"{sample_format[1:]}-bit" + (" float" if sample_format.startswith("f") else "")


def _decibels(value: float) -> str:
    return f"{20 * math.log10(max(value, 1e-9)):.1f}".replace("-", "−")


def format_seconds(seconds: float) -> str:
    """A duration for people: `1.296 s`, `2:05 min`, `1:00:00 h`."""
    if seconds < 60:
        return f"{seconds:.3f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d} h"
