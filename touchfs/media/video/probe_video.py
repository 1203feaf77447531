"""Find out what a video is, without decoding it: its coding, and the times and places of all packets.

libav's demuxer reads the whole file once, in a child process. What it finds is all that spans need.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from touchfs.core.errors import FormatError
from touchfs.core.extent import Content, drive
from touchfs.media.coding.packet_table import COLUMNS, PacketTable
from touchfs.media.decoder.pool import DecodePool
from touchfs.media.slices.containers import DEMUXERS, detect
from touchfs.media.slices.reading import Exactly
from touchfs.media.video.video_info import NONSENSE, NoPicturesError, VideoInfo, build

CONTAINERS = ("avi", "matroska", "mov")
# A child has a second more for so many bytes. Packets of an hour take about 1 s besides.
_BYTES_A_SECOND = 2e6


def probe_video(content: Content, pool: DecodePool) -> VideoInfo:
    """Find out what a video is.

    Raises NoPicturesError, FormatError, the errors of `pool.request`, and those of `content`.
    """
    container, _ = drive(detect(content.size), Exactly(content))
    if container not in CONTAINERS:
        raise NoPicturesError(f"a {container} file is no video")
    request = {"demuxer": DEMUXERS[container], "size": content.size}
    answer = pool.request("demux_video", request, content=content, extra_seconds=content.size / _BYTES_A_SECOND)
    if not answer.values:
        raise NoPicturesError("has no pictures")
    values = {**answer.values, "container": container, "file_size": content.size}
    try:
        return build(values, map(bytes, answer.blobs), _table)
    except NONSENSE as error:
        raise FormatError("cannot be demuxed: the decoder sends nonsense") from error


def _table(_: int, blobs: Iterator[bytes]) -> PacketTable:
    return PacketTable.from_columns(list(islice(blobs, len(COLUMNS))))
