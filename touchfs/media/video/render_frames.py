"""Render frames of a video as JPEG, upright. The same frame gives the same bytes in every run.

A frame is decoded from the key frame before it. Frames that share a key frame are decoded together.
`renderer()` of `slices/render.py` names the versions that the bytes depend on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.extent import Content
from touchfs.media.decoder.pool import DecodePool
from touchfs.media.slices.reading import read_pieces
from touchfs.media.video.frame_index import FrameIndex
from touchfs.media.video.video_info import VideoInfo

# As ffmpeg's `-q:v`: 2 is the best.
QUALITY, QUALITY_MAX = 3, 31
_QUALITY_MIN = 2
# Pixels of the frames that one request returns: 24 frames of 4K, which have 60 MB
_PIXELS_MAX = 200_000_000
# Bytes of the packets that one request decodes
_DECODED_MAX = 1 << 27
# A child has a second more for so many bytes of packets: ten seconds of 4K have 25 MB, and take 10 s.
_BYTES_A_SECOND = 2e6


def render_frames(
    content: Content,
    info: VideoInfo,
    frames: Sequence[int] | NDArray[np.int64],
    pool: DecodePool,
    quality: int = QUALITY,
) -> Iterator[bytes]:
    """Yield a JPEG of each frame, in the order of `frames`: times in ticks, as `frames_in` returns them. A frame that
    is damaged has an empty one.

    `quality` is 2 (best) to 31. `content` must be the file that `info` was found for. Raises UsageError for a time
    without a frame, FormatError if nothing can be decoded, the errors of `pool.request` and those of `content`.
    """
    if not _QUALITY_MIN <= quality <= QUALITY_MAX:
        raise UsageError(f"quality={quality}: it is {_QUALITY_MIN} (best) to {QUALITY_MAX}")
    if content.size != info.file_size:
        raise FormatError(f"has {content.size} bytes, and had {info.file_size} when it was looked at")
    index = FrameIndex.of(info.packets)
    count = max(_PIXELS_MAX // (info.width * info.height), 1)
    all_times = np.asarray(frames, np.int64)
    wanted = list(zip(index.packets_of(all_times).tolist(), all_times.tolist(), strict=True))
    for key, group in groupby(wanted, lambda each: index.key_before(each[1])):
        members = list(group)
        while members:
            part, members = _take(members, count)
            packets = slice(key, max(packet for packet, _ in part) + 1)
            times = sorted({time for _, time in part})
            rendered = dict(zip(times, _render(content, info, packets, times, pool, quality), strict=True))
            for _, time in part:
                yield rendered[time]


def _take(members: list[tuple[int, int]], count: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Split after `count` different frames."""
    seen: set[int] = set()
    for position, member in enumerate(members):
        seen.add(member[1])
        if len(seen) > count:
            return members[:position], members[position:]
    return members, []


def _render(
    content: Content, info: VideoInfo, packets: slice, times: list[int], pool: DecodePool, quality: int
) -> list[bytes]:
    """Decode packets, and encode the frames of ascending times."""
    table = info.packets
    sizes = table.sizes[packets]
    if int(sizes.sum(dtype=np.int64)) > _DECODED_MAX:
        raise FormatError(f"a frame needs over {_DECODED_MAX:,} bytes of packets, back to a key frame: not supported")
    data, places = read_pieces(content, table.offsets[packets], sizes)
    request = {
        "coding": info.coding,
        "codec_tag": info.codec_tag,
        "width": info.width,
        "height": info.height,
        "rotation": info.rotation,
        "quality": quality,
    }
    columns = (np.stack([places, sizes], 1).astype("<u4"), table.times[packets].astype("<i8"), np.array(times, "<i8"))
    blobs = [info.extradata, data, *(column.tobytes() for column in columns)]
    answer = pool.request("render_frames", request, blobs, extra_seconds=len(data) / _BYTES_A_SECOND)
    if len(answer.blobs) != len(times):
        raise FormatError("cannot be decoded: the decoder sends nonsense")
    return [bytes(blob) for blob in answer.blobs]
