"""Build the head of an MP4 or QuickTime file: all boxes, with an edit list for each track. The packets follow it.

The same tracks give the same bytes: nothing in it depends on the time or on a library. `moov` comes before the packets,
so that a player can begin at once. ISO/IEC 14496-12.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.media.coding.mp4_boxes import box, full_box

Ticks = NDArray[np.int64]

IDENTITY = struct.pack(">9i", 1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30)
_DATA_HEAD = struct.Struct(">I4s")
_UNDETERMINED = 0x55C4  # the language "und"
_EMPTY = -1  # the media time of an edit without media
# Kinds of files, and what they say that they are compatible with
BRANDS = {"isom": (b"isom", b"iso2", b"mp41"), "qt  ": (b"qt  ",)}


@dataclass(frozen=True, slots=True)
class Edit:
    """Show the media from `media_time` ticks of the track on, or nothing. `duration` is in ticks of the movie."""

    duration: int
    media_time: int | None


@dataclass(frozen=True, slots=True)
class MovieTrack:
    """A track: `positions` and `sizes` of its packets in the data of the movie, `durations` and `shifts` in ticks.

    A shift is from the time at which a packet is decoded to that at which it is shown. `keys` are the numbers of key
    frames from 1 on, None if all are. If `frame_size` is not 0, packets are PCM of samples of so many bytes, one a
    tick. `header` is the end of `tkhd`, from its 8 reserved bytes on.
    """

    handler: bytes
    timescale: int
    header: bytes
    sample_entry: bytes
    positions: Ticks
    sizes: Ticks
    durations: Ticks
    shifts: Ticks | None
    keys: Ticks | None
    frame_size: int
    edits: Sequence[Edit]


def movie_head(brand: str, timescale: int, tracks: Sequence[MovieTrack], data_size: int) -> bytes:
    """Build what precedes `data_size` bytes of packets. Raises FormatError for times or data that do not fit."""
    major, *_ = brands = BRANDS[brand]
    head = box(b"ftyp", major, (512).to_bytes(4, "big"), *brands)
    try:
        size = len(head) + len(_moov(timescale, tracks, 0)) + _DATA_HEAD.size  # it does not depend on the positions
        return head + _moov(timescale, tracks, size) + _DATA_HEAD.pack(_DATA_HEAD.size + data_size, b"mdat")
    except (struct.error, OverflowError) as error:
        raise FormatError("its times or its 4 GB do not fit in an MP4: choose a shorter span") from error


def _moov(timescale: int, tracks: Sequence[MovieTrack], begin: int) -> bytes:
    duration = max((_duration(track) for track in tracks), default=0)
    header = struct.pack(">16xIQIH10x", timescale, duration, 1 << 16, 1 << 8) + IDENTITY + bytes(24)
    numbered = enumerate(tracks, 1)
    return box(
        b"moov",
        full_box(b"mvhd", 1, 0, header, struct.pack(">I", len(tracks) + 1)),
        *(_trak(number, track, begin) for number, track in numbered),
    )


def _duration(track: MovieTrack) -> int:
    return sum(edit.duration for edit in track.edits)


def _trak(number: int, track: MovieTrack, begin: int) -> bytes:
    edits = [
        struct.pack(">Qqi", edit.duration, _EMPTY if edit.media_time is None else edit.media_time, 1 << 16)
        for edit in track.edits
    ]
    media_header = struct.pack(">16xIQHH", track.timescale, int(track.durations.sum()), _UNDETERMINED, 0)
    kind = full_box(b"vmhd", 0, 1, bytes(8)) if track.handler == b"vide" else full_box(b"smhd", 0, 0, bytes(4))
    here = full_box(b"dref", 0, 0, _count(1), full_box(b"url ", 0, 1))
    return box(
        b"trak",
        full_box(b"tkhd", 1, 3, struct.pack(">16xI4xQ", number, _duration(track)), track.header),
        box(b"edts", full_box(b"elst", 1, 0, _count(len(edits)), *edits)),
        box(
            b"mdia",
            full_box(b"mdhd", 1, 0, media_header),
            full_box(b"hdlr", 0, 0, bytes(4), track.handler, bytes(13)),
            box(b"minf", kind, box(b"dinf", here), _stbl(track, begin)),
        ),
    )


def _stbl(track: MovieTrack, begin: int) -> bytes:
    if track.frame_size:
        counts = track.sizes // track.frame_size
        total = int(counts.sum())
        sizes = struct.pack(">II", track.frame_size, total)
        chunks, durations = _chunks(counts), struct.pack(">III", 1, total, 1)
    else:
        sizes = struct.pack(">II", 0, len(track.sizes)) + _column(track.sizes)
        chunks, durations = _chunks(np.ones(1, np.int64)), _runs(track.durations)
    boxes = [track.sample_entry, full_box(b"stts", 0, 0, durations)]
    if track.shifts is not None and track.shifts.any():
        boxes.append(full_box(b"ctts", 0, 0, _runs(track.shifts)))
    if track.keys is not None:
        boxes.append(full_box(b"stss", 0, 0, _count(len(track.keys)), _column(track.keys)))
    places = _column(track.positions + begin)
    boxes += [
        full_box(b"stsc", 0, 0, chunks),
        full_box(b"stsz", 0, 0, sizes),
        full_box(b"stco", 0, 0, _count(len(track.positions)), places),
    ]
    return box(b"stbl", *boxes)


def _chunks(counts: Ticks) -> bytes:
    """`stsc`: samples of each packet, which is a chunk; equal ones in sequence are an entry."""
    starts = np.flatnonzero(np.diff(counts, prepend=-1))
    entries = np.stack([starts + 1, counts[starts], np.ones(len(starts), np.int64)], 1)
    return _count(len(entries)) + _column(entries)


def _runs(values: Ticks) -> bytes:
    """`stts` and `ctts`: how often each value follows in sequence."""
    starts = np.flatnonzero(np.diff(values, prepend=values[0] - 1))
    counts = np.diff(starts, append=len(values))
    return _count(len(starts)) + _column(np.stack([counts, values[starts]], 1))


def _column(values: Ticks) -> bytes:
    if len(values) and not 0 <= int(values.min()) <= int(values.max()) < 1 << 32:
        raise OverflowError
    return values.astype(">u4").tobytes()


def _count(count: int) -> bytes:
    return count.to_bytes(4, "big")
