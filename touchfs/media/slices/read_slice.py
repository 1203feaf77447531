"""Read a span of samples of a recording: exactly the samples of a full decode, cut there (exceptions: `preroll.py`).

Plain PCM is read from its bytes. Of most codings, the packets of the span are read, with those before it that the
decoder needs, and a child process decodes them. So a slice costs what its length costs, however long the recording is.
Other codings are decoded from the start of the recording (`decoder/decode_from_start.py`). Spans of over a few
megabytes are decoded in parts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.extent import Buffer, Content, drive
from touchfs.media.coding import flac_frames
from touchfs.media.coding.sample_format import FORMATS, convert_samples, dtype, unpack
from touchfs.media.decoder.messages import Message
from touchfs.media.decoder.pool import DecodePool
from touchfs.media.slices.containers import DEMUXERS, FROM_START_BYTES_A_SECOND
from touchfs.media.slices.media_info import FROM_START, MediaInfo
from touchfs.media.slices.packet_index import PacketIndex
from touchfs.media.slices.preroll import first_packet
from touchfs.media.slices.reading import Exactly, read_exactly, read_pieces

# Values (samples of all channels) that one request decodes: 8 MB of 32 bits, 24 s of CD. It takes up to 0.1 s.
_VALUES_MAX = 1 << 21


@dataclass(frozen=True, slots=True)
class PcmSlice:
    """Decoded sound: `samples` of shape (frames, channels) in a sample format, at `rate` Hz."""

    samples: NDArray[Any]
    rate: int
    sample_format: str


def read_slice(
    content: Content, info: MediaInfo, first: int, length: int, pool: DecodePool, sample_format: str | None = None
) -> PcmSlice:
    """Read the samples `[first, first + length)` of all channels; fewer at the end of the recording.

    By default lossy codings become 16 bits, and others keep their format. `content` must be the file that `info` was
    found for. Raises UsageError for impossible spans and formats, FormatError if the recording is damaged there, the
    errors of `pool.request` and those of `content`.
    """
    target = sample_format or info.default_format
    if first < 0 or length < 0 or target not in FORMATS:
        raise UsageError(f"no slice begins at sample {first}, or has {length} samples of format {target!r}")
    if content.size != info.file_size:
        raise FormatError(f"has {content.size} bytes, and had {info.file_size} when it was looked at")
    end = min(first + length, info.frames)
    if info.links:
        return _of_links(content, info, first, end, pool, target)
    step = max(_VALUES_MAX // info.channels, 1)
    blocks = [_read(content, info, start, min(step, end - start), pool, target) for start in range(first, end, step)]
    if len(blocks) != 1:
        blocks = [np.concatenate([np.empty((0, info.channels), dtype(target)), *blocks])]
    return PcmSlice(blocks[0], info.rate, target)


def _of_links(content: Content, info: MediaInfo, first: int, end: int, pool: DecodePool, target: str) -> PcmSlice:
    blocks = [np.empty((0, info.channels), dtype(target))]
    start = 0
    for link in info.links:
        begin, until = max(first - start, 0), min(end - start, link.frames)
        if begin < until:
            blocks.append(read_slice(content, link, begin, until - begin, pool, target).samples)
        start += link.frames
    return PcmSlice(np.concatenate(blocks), info.rate, target)


def _read(content: Content, info: MediaInfo, first: int, length: int, pool: DecodePool, target: str) -> NDArray[Any]:
    if info.is_plain_pcm:
        data = read_exactly(content, info.offset + first * info.frame_size, length * info.frame_size)
        return convert_samples(unpack(data, info.sample_format, info.channels), info.sample_format, target)
    if info.packets is not None:
        return _decoded(_indexed(content, info, info.packets, first, length), info, length, pool, target)
    if info.coding == "flac":
        try:
            packet = _flac(content, info, first, length, flac_frames.scan_headers)
            return _decoded(packet, info, length, pool, target)
        except FormatError:  # sound may look like a header
            packet = _flac(content, info, first, length, flac_frames.scan_frames)
            return _decoded(packet, info, length, pool, target)
    if info.coding == FROM_START:
        return _from_start(content, info, first, length, pool, target)
    # G.711 has a byte for each sample.
    data = read_exactly(content, info.offset + first * info.channels, length * info.channels)
    return _decoded(_one_packet(data, length, 0), info, length, pool, target)


def _decoded(packets: _Packets, info: MediaInfo, length: int, pool: DecodePool, target: str) -> NDArray[Any]:
    request = {
        "coding": info.coding,
        "rate": info.rate,
        "channels": info.channels,
        "sample_format": info.sample_format,
        "target": target,
        "skip": packets.skip,
        "count": length,
    }
    columns = (packets.pieces, packets.piece_counts, packets.lengths)
    blobs = [info.extradata, packets.data, *(column.tobytes() for column in columns)]
    return _samples(pool.request("decode", request, blobs), info, length, target)


def _from_start(
    content: Content, info: MediaInfo, first: int, length: int, pool: DecodePool, target: str
) -> NDArray[Any]:
    request = {"demuxer": DEMUXERS[info.container], "size": content.size}
    request |= {"first": first, "count": length, "target": target}
    seconds = content.size / FROM_START_BYTES_A_SECOND
    answer = pool.request("decode_from_start", request, content=content, extra_seconds=seconds)
    return _samples(answer, info, length, target)


def _samples(answer: Message, info: MediaInfo, length: int, target: str) -> NDArray[Any]:
    if [len(blob) for blob in answer.blobs] != [length * info.channels * dtype(target).itemsize]:
        raise FormatError("cannot be decoded: the decoder sends nonsense")
    return np.frombuffer(answer.blobs[0], dtype(target)).reshape(length, info.channels)


@dataclass(frozen=True, slots=True)
class _Packets:
    """The bytes of packets, (offset, size) of their pieces in them, and which of their samples are wanted."""

    data: Buffer
    pieces: NDArray[np.uint32]
    piece_counts: NDArray[np.uint32]
    lengths: NDArray[np.uint32]
    skip: int


def _flac(content: Content, info: MediaInfo, first: int, length: int, scan: flac_frames.Scan) -> _Packets:
    stream = flac_frames.parse_stream_info(info.extradata, info.offset, info.offset + info.size)
    stream = replace(stream, frames=info.frames)  # STREAMINFO may not have it
    span = drive(flac_frames.find_span(stream, first, length, scan), Exactly(content))
    # libav's decoder takes one frame after another from a packet, so nobody needs to know where each begins.
    return _one_packet(span.data, span.length, first - span.first)


def _one_packet(data: Buffer, length: int, skip: int) -> _Packets:
    return _Packets(data, _column([[0, len(data)]]), _column([1]), _column([length]), skip)


def _indexed(content: Content, info: MediaInfo, index: PacketIndex, first: int, length: int) -> _Packets:
    begin, end = index.head + first, index.head + first + length
    needed = int(np.searchsorted(index.starts, begin, "right")) - 1
    last = int(np.searchsorted(index.starts, end, "left"))
    start = first_packet(index, info.coding, info.rate, needed)
    chosen = slice(int(index.first_pieces[start]), int(index.first_pieces[last]))
    offsets, sizes = index.offsets[chosen], index.sizes[chosen]
    data, places = read_pieces(content, offsets, sizes)
    return _Packets(
        data,
        np.stack([places, sizes], 1).astype("<u4"),
        index.piece_counts[start:last],
        index.lengths[start:last],
        begin - int(index.starts[start]),
    )


def _column(values: list[Any]) -> NDArray[np.uint32]:
    return np.array(values, "<u4")
