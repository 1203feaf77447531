"""Draw a recording or a span of it, whatever its length: at most 128 MB are read, in blocks of some megabytes.

PCM up to that is drawn from every sample, longer PCM from the beginning of each column. A coded recording of over two
minutes is drawn for its first minute, unless a span of it is asked for; of a span of over two minutes, short stretches
at equal distances are decoded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import monotonic
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import DecodeLimitError, UsageError
from touchfs.core.extent import Content, Extent
from touchfs.explore.page import Recording
from touchfs.form.lengths import info_of
from touchfs.limits import LIMITS, Limits
from touchfs.media.coding.sample_format import wav_header
from touchfs.media.decoder.pool import DecodePool
from touchfs.media.decoder.shared import shared_pool
from touchfs.media.slices.media_info import FROM_START, MediaInfo
from touchfs.media.slices.probe import probe
from touchfs.media.slices.read_slice import read_slice
from touchfs.picture.shrink import bounds
from touchfs.picture.sketch import Sketch

MOST_BYTES = 1 << 27
_BLOCK_BYTES = 1 << 22
# Coded recordings of more seconds are drawn for the first ones, and spans of more in stretches.
WHOLE_SECONDS, _FIRST_SECONDS = 120, 60
# SoundFacts that a page of HTML has in it.
_PLAYED_SECONDS, _PLAYED_BYTES = 30, 2_000_000
_CHANNELS = {1: "mono", 2: "stereo"}
_FLOAT_BYTES = 4
# Stretches of a long coded span, the seconds of each, and in which all of them have to be decoded
_STRETCHES, _STRETCH_SECONDS, _STRETCHES_WITHIN = 120, 0.25, 20.0
_SHORTEST_SECONDS = 0.01
# Times of spans have milliseconds, and a recording may end between two.
_ROUNDED = 0.001
# Seconds of the begin and the end of a part of a recording
Span: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class SoundFacts:
    """The facts of a recording. `drawn` seconds from `start` on are in its picture, `remark` says how.

    If it `has_spans`, any part of it can be drawn, also all.
    """

    facts: str
    rate: int
    channels: int
    seconds: float
    start: float
    drawn: float
    remark: str
    has_spans: bool


def describe(content: Content, pool: DecodePool, limits: Limits = LIMITS, span: Span | None = None) -> SoundFacts:
    """Say what a recording is, and how it, or a span of it, is drawn. Raises as `draw`, and UsageError for a span that
    it does not have.
    """
    info = recording_info(content, pool, limits)
    first, frames = frames_drawn(info, span)
    return SoundFacts(
        _format(info),
        info.rate,
        info.channels,
        info.seconds,
        first / info.rate,
        frames / info.rate,
        _remark(info, frames, span),
        info.coding != FROM_START or info.seconds <= WHOLE_SECONDS,
    )


def recording_info(content: Content, pool: DecodePool, limits: Limits = LIMITS) -> MediaInfo:
    """The format and length of a recording. Those of a stored one are found once and kept."""
    return info_of(content, limits, pool) if isinstance(content, Extent) else probe(content, pool)


def frames_drawn(info: MediaInfo, span: Span | None = None) -> tuple[int, int]:
    """The first frame in the picture of a recording, and how many there are. Raises UsageError for a bad span."""
    if span is None:
        if info.is_plain_pcm:
            return 0, info.frames
        seconds = info.seconds if info.seconds <= WHOLE_SECONDS else _FIRST_SECONDS
        return 0, min(info.frames, int(seconds * info.rate) + 1, MOST_BYTES // (_FLOAT_BYTES * info.channels))
    start, end = span
    if end - start < _SHORTEST_SECONDS - 1e-6:
        raise UsageError(f"t={start:g},{end:g}: the second time is at least {_SHORTEST_SECONDS} s after the first one")
    if end > info.seconds + _ROUNDED:
        raise UsageError(f"t={start:g},{end:g}: the recording ends at {info.seconds:.3f} s")
    first = int(start * info.rate)
    frames = max(min(math.ceil(end * info.rate), info.frames) - first, 1)
    if info.coding == FROM_START and _is_in_stretches(info, frames):
        raise UsageError(f"t={start:g},{end:g}: of this coding at most {WHOLE_SECONDS} s can be drawn")
    return first, frames


def _is_in_stretches(info: MediaInfo, frames: int) -> bool:
    is_long = frames > WHOLE_SECONDS * info.rate or frames * info.channels * _FLOAT_BYTES > MOST_BYTES
    return is_long and not info.is_plain_pcm


def _stretch(info: MediaInfo, frames: int) -> int:
    """Frames of each stretch of a long span."""
    most = MOST_BYTES // (_FLOAT_BYTES * info.channels * _STRETCHES)
    return max(min(int(_STRETCH_SECONDS * info.rate), frames // _STRETCHES, most), 1)


def _remark(info: MediaInfo, frames: int, span: Span | None) -> str:
    """How a recording is drawn."""
    if info.is_plain_pcm:
        is_sampled = frames * info.frame_size > MOST_BYTES
        return "sampled: a part of each column is read" if is_sampled else ""
    if _is_in_stretches(info, frames):
        each = frames / _STRETCHES / info.rate
        return f"sampled: {_stretch(info, frames) / info.rate:.2g} s of every {each:.3g} s"
    is_first = span is None and frames < info.frames
    return f"the first {frames / info.rate:.0f} s of {format_seconds(info.seconds)}" * is_first


def read_drawn(content: Content, info: MediaInfo, span: Span | None, pool: DecodePool) -> NDArray[np.float32]:
    """The samples of a recording that is decoded, as they are drawn: those of a span, or stretches of a long one.

    Raises DecodeLimitError if stretches take too long, and as `read_slice`.
    """
    first, frames = frames_drawn(info, span)
    if not _is_in_stretches(info, frames):
        whole: NDArray[np.float32] = read_slice(content, info, first, frames, pool, "f32").samples
        return whole
    until, length, found = monotonic() + _STRETCHES_WITHIN, _stretch(info, frames), list[NDArray[np.float32]]()
    for start in (first + bounds(frames, _STRETCHES)[:-1]).tolist():
        if monotonic() > until:
            raise DecodeLimitError(f"an overview takes over {_STRETCHES_WITHIN:g} s: parts of it can be shown")
        found.append(read_slice(content, info, start, length, pool, "f32").samples)
    return np.concatenate(found)


def draw(
    name: str,
    content: Content,
    columns: int,
    limits: Limits = LIMITS,
    played_seconds: float = 0,
    pool: DecodePool | None = None,
    most_bytes: int = MOST_BYTES,
    span: Span | None = None,
) -> Recording:
    """Draw a recording, or a span of it, in so many columns; with its sound as WAV, if that has at most
    `played_seconds`. Of PCM at most `most_bytes` are read.

    Raises FormatError for one that cannot be decoded, MissingExtraError without its decoder, and the errors of sources.
    """
    pool = shared_pool(limits.decode_seconds) if pool is None else pool
    info = recording_info(content, pool, limits)
    sketch = Sketch(columns, info.rate, info.channels)
    first, drawn = frames_drawn(info, span)
    remark = _remark(info, drawn, span)
    if info.is_plain_pcm:
        _draw_pcm(sketch, content, info, (first, drawn), pool, most_bytes)
    else:
        samples = read_drawn(content, info, span, pool)
        sketch.add(0, samples, bounds(len(samples), columns))
    wav = b""
    if info.seconds <= min(played_seconds, _PLAYED_SECONDS) and info.frames * info.channels * 2 <= _PLAYED_BYTES:
        data = read_slice(content, info, 0, info.frames, pool, "s16").samples.tobytes()
        wav = wav_header(len(data), info.rate, info.channels, "s16") + data
    return Recording(name, _facts(info, sketch), sketch, info.rate, info.seconds, drawn / info.rate, remark, wav)


def _draw_pcm(
    sketch: Sketch, content: Content, info: MediaInfo, part: tuple[int, int], pool: DecodePool, most_bytes: int
) -> None:
    """Draw plain PCM from a frame on, and so many frames; of that with more bytes the beginning of each column."""
    start, frames = part
    edges = start + bounds(frames, sketch.columns)
    a_column = max(frames // sketch.columns, 1) * info.frame_size

    def samples(first: int, last: int) -> NDArray[np.float32]:
        found: NDArray[np.float32] = read_slice(content, info, first, last - first, pool, "f32").samples
        return found

    if frames * info.frame_size > most_bytes:
        most = max(most_bytes // sketch.columns // info.frame_size, 1)
        for column, first in enumerate(edges[:-1].tolist()):
            taken = samples(first, first + most)
            sketch.add(column, taken, np.array([0, len(taken)]))
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
