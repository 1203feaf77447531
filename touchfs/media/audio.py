"""Decode any recording to mono 16-bit PCM at one rate: byte for byte as this command does with the same libav,

    ffmpeg -ss 0.0 -i FILE -f s16le -ac 1 -acodec pcm_s16le -ar RATE -

which is how TouchNet's make_data decodes. The choice of the stream, the seek to the start, the trimming of samples
before time 0 and the filters are the same. Two things differ:

- ffmpeg continues after damage and leaves a part out. Here damage is an error: a packet that cannot be decoded, one the
  demuxer marks, or fewer samples than the header counts. Damage that a format does not show (an Ogg that lacks pages,
  an MP3 cut between two frames) is not noticed.
- If a Matroska file's sound begins before its picture, ffmpeg's seek loses the first packet (20 ms). It is kept here.

For sources of 16 bits, libswresample of ffmpeg 5.1 and older resamples and mixes in 16 bits; that of 6.1 and newer,
which PyAV includes, uses float. The results differ by up to 6 (of 32768). `arithmetic` selects one. Sources of more
bits always use float.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING, Literal, cast

from touchfs.core.errors import FormatError, MissingExtraError, NotFoundError, SourceError
from touchfs.core.extras import install_hint
from touchfs.limits import LIMITS, too_large

if TYPE_CHECKING:
    from av import AudioFrame, AudioStream
    from av.container import InputContainer
    from av.filter import Graph

Arithmetic = Literal["s16", "float"]

# Demuxers of formats whose header has the exact count of samples
_COUNTED = frozenset({"aiff", "ape", "flac", "tta", "wv"})
_SEEK_TO_PTS = 0x4000000  # AVFMT_SEEK_TO_PTS
_MICROSECOND = Fraction(1, 1_000_000)
# ffmpeg seeks earlier by this many microseconds to allow for reordered frames: three frames at 23 frames a second.
_REORDERING = 3 * 1_000_000 // 23


def decode(path: str, rate: int, arithmetic: Arithmetic = "s16", limit: int = LIMITS.decoded) -> bytearray:
    """Decode a whole recording. Returns 16-bit little-endian mono samples at `rate` Hz.

    Raises FormatError if it cannot be decoded, is damaged, or decodes to over `limit` bytes; NotFoundError,
    SourceError; MissingExtraError without PyAV.
    """
    try:
        import av

        from touchfs.media.libav import open_media
    except ImportError as error:
        raise MissingExtraError(
            f"only PCM of 16 bits, 1 channel, {rate} Hz in a WAV file is read without PyAV ({error}): "
            f"{install_hint('media')}",
            path=path,
        ) from error
    pcm = bytearray()
    try:
        # The prefix file: keeps a colon in a name from being a protocol.
        with open_media(f"file:{path}") as container:
            stream = _choose(container.streams.audio, path)
            start = container.start_time or 0
            _seek(container, start)
            for frames in _alike(_frames(container, stream, start, path)):
                for piece in _convert(frames, rate, arithmetic):
                    pcm += piece
                    if len(pcm) > limit:
                        raise FormatError(too_large(limit), path=path)
    except av.FFmpegError as error:
        if isinstance(error, FileNotFoundError):
            raise NotFoundError("no such file", path=path) from error
        kind = SourceError if isinstance(error, PermissionError) else FormatError
        raise kind(f"cannot be decoded: {error.strerror}", path=path) from error
    return pcm


def _choose(streams: Iterable[AudioStream], path: str) -> AudioStream:
    """Choose as ffmpeg does: a stream marked as default, then the one with most channels, then the first."""
    from av.stream import Disposition

    decodable = [stream for stream in streams if stream.codec_context is not None]
    if not decodable:
        raise FormatError("has no sound that PyAV can decode", path=path)
    return max(
        decodable, key=lambda stream: (bool(stream.disposition & Disposition.default), stream.codec_context.channels)
    )


def _seek(container: InputContainer, start: int) -> None:
    import av

    reordered = any(video.codec_context and video.codec_context.has_b_frames for video in container.streams.video)
    if reordered and not int(container.format.flags) & _SEEK_TO_PTS:
        start -= _REORDERING
    with suppress(av.FFmpegError):  # a format that cannot seek stays at its start
        container.seek(start)


def _frames(container: InputContainer, stream: AudioStream, start: int, path: str) -> Iterator[AudioFrame]:
    """Yield decoded frames with ffmpeg's timestamps: in samples, 0 at the start of the container."""
    count = 0
    offset = Fraction(0)
    for packet in container.demux(stream):
        if packet.is_corrupt:
            raise FormatError("is damaged or cut short", path=path)
        for frame in packet.decode():
            count += frame.samples
            if frame.pts is not None and frame.time_base is not None:
                offset = round(start * _MICROSECOND / frame.time_base) * frame.time_base
                frame.pts = round((frame.pts * frame.time_base - offset) * frame.sample_rate)
                frame.time_base = Fraction(1, frame.sample_rate)
            yield frame
    if container.format.name in _COUNTED and stream.duration is not None and stream.time_base is not None:
        expected = round(stream.duration * stream.time_base * (stream.codec_context.sample_rate or 0))
        if count < expected:
            raise FormatError(f"is damaged or cut short: {count} of {expected} samples can be decoded", path=path)


def _alike(frames: Iterator[AudioFrame]) -> Iterator[Iterator[AudioFrame]]:
    """Group consecutive frames of one format: a stream that changes its rate or channels needs a new filter graph."""
    for _, run in groupby(frames, lambda frame: (frame.format.name, frame.layout.name, frame.sample_rate)):
        yield run


def _convert(frames: Iterator[AudioFrame], rate: int, arithmetic: Arithmetic) -> Iterator[memoryview]:
    graph: Graph | None = None
    for frame in frames:
        graph = graph or _graph(frame, rate, arithmetic)
        graph.push(frame)
        yield from _drain(graph)
    if graph is not None:
        graph.push(None)
        yield from _drain(graph)


def _graph(frame: AudioFrame, rate: int, arithmetic: Arithmetic) -> Graph:
    from av.filter import Graph

    graph = Graph()
    in_16_bits = arithmetic == "s16" and frame.format.bytes <= 2
    graph.link_nodes(
        graph.add(
            "abuffer",
            sample_rate=str(frame.sample_rate),
            sample_fmt=frame.format.name,
            channel_layout=frame.layout.name,
            time_base=f"1/{frame.sample_rate}",
        ),
        graph.add("atrim", start="0"),
        graph.add("aresample", **({"internal_sample_fmt": "s16p"} if in_16_bits else {})),
        graph.add("aformat", sample_rates=str(rate), sample_fmts="s16", channel_layouts="mono"),
        graph.add("abuffersink"),
    )
    graph.configure()
    return graph


def _drain(graph: Graph) -> Iterator[memoryview]:
    """Yield the frames that are ready. BlockingIOError means that the graph needs more input, EOFError its end."""
    while True:
        try:
            frame = cast("AudioFrame", graph.pull())
        except (BlockingIOError, EOFError):
            return
        yield memoryview(frame.planes[0])[: 2 * frame.samples]  # a plane is padded
