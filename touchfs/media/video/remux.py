"""Copy a span of a video without decoding it: an MP4 whose edit list shows exactly the frames of the span.

The packets begin at the key frame before the span, and go on to the last one that a frame of the span needs. The edit
list says what is shown of them: players, ffmpeg and all that reads with libav decode the others and drop them. The
sound of the span comes with it, with a quarter of a second before, which its decoder needs.

Only the head of the file is made. Its packets are ranges of the video, with whatever its container has between them:
the tables in the head say where each packet is. So a span takes no place, and its size follows from the tables.

It is no Matroska because that has no edit lists. Its ways to say "decode this, do not show it" are a flag of blocks
(invisible), times before 0, and a delay of the codec. libav ignores the flag; of frames before 0 it makes times from
the frame rate, or moves all times so that they begin at 0. So ffmpeg shows every frame of such a file.
"""

from __future__ import annotations

import struct
from fractions import Fraction
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from touchfs.core.errors import FormatError
from touchfs.core.extent import Content, Extent, Memory, Rope
from touchfs.media.coding.packet_table import KEY, PacketTable
from touchfs.media.video.frame_index import FrameIndex
from touchfs.media.video.movie import IDENTITY, Edit, MovieTrack, Ticks, movie_head
from touchfs.media.video.video_info import SoundTrack, VideoInfo

# The head has up to 25 bytes a packet: 12 hours of pictures and sound have 40 MB.
_PACKETS_MAX = 1 << 21
# Ranges that lie this near are one: heads of blocks and chunks are smaller, and reading a page costs no more.
_GAP_MAX = 1 << 12
# The limit for tracks whose packets lie far apart. Each is an object.
_RANGES_MAX = 1 << 16
# Opus needs 80 ms to come to its state; MP3 and AAC a few packets
_SOUND_BEFORE = Fraction(1, 4)
# Ticks a second of the movie, so that sound and pictures are not moved apart
_TIMESCALE_MIN = 10_000
# Between the frames that are dropped and those that are shown. Decoders that know of no dropping (dav1d in ffmpeg 5)
# return the former with times before 0, and ffmpeg shows one that is only a frame before 0.
_GAP_SECONDS = 1
# The brand of a file without tracks
_BRAND = "isom"
_HEADER_SIZE = 60  # of `tkhd`, after the duration
_VOLUME = 1 << 8


class Movie(NamedTuple):
    """An MP4: `head`, and after it these ranges of the bytes of the video, as (offset, size)."""

    head: bytes
    ranges: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return len(self.head) + sum(size for _, size in self.ranges)

    def content(self, video: Extent) -> Content:
        """The file. `video` are the bytes of the video."""
        parts = (Extent(video.source, video.offset + offset, size) for offset, size in self.ranges)
        return Rope((Memory(self.head), *parts))


def empty_movie() -> Movie:
    """Return an MP4 without tracks."""
    return Movie(movie_head(_BRAND, _TIMESCALE_MIN, (), 0), ())


def remux(info: VideoInfo, start: float, end: float) -> Movie:
    """Return an MP4 of the span `[start, end)` in seconds. It reads nothing.

    A span without pictures has only its sound, and one without both has no tracks. Raises UsageError for impossible
    times, and FormatError if an MP4 cannot have the coding, or not so much.
    """
    first, last = info.to_ticks(start), info.to_ticks(end)
    index = FrameIndex.of(info.packets)
    chosen = [(info.packets, _choose_pictures(index, first, last))]
    if info.sound is not None:
        chosen.append((info.sound.packets, _choose_sound(info, info.sound, first, last)))
    for track, (_, packets) in zip((info, info.sound), chosen, strict=False):
        if track is not None and not track.sample_entry and packets.start < packets.stop:
            raise FormatError(f"{track.coding} as it is stored here does not fit in an MP4: it cannot be copied")
    ranges, positions = _place(chosen)
    tracks = []
    timescale = info.time_base.denominator * _factor(info)
    brands = set()
    if len(positions[0]):
        tracks.append(_picture_track(info, index, chosen[0][1], first, last, positions[0]))
        brands.add(info.brand)
    if info.sound is not None and len(positions[1]):
        tracks.append(_sound_track(info, info.sound, chosen[1][1], first, last, positions[1], timescale))
        brands.add(info.sound.brand)
    head = movie_head(max(brands, default=_BRAND), timescale, tracks, sum(size for _, size in ranges))
    return Movie(head, ranges)


def _choose_pictures(index: FrameIndex, first: int, last: int) -> slice:
    """The packets from the key frame on that frames of the ticks `[first, last)` need."""
    frames = slice(*np.searchsorted(index.times, (first, last)))
    if frames.start >= frames.stop:
        return slice(0, 0)
    return slice(index.key_before(int(index.times[frames.start])), int(index.packets[frames].max()) + 1)


def _choose_sound(info: VideoInfo, sound: SoundTrack, first: int, last: int) -> slice:
    begins, ends = _sound_times(sound)
    if not len(begins) or _to_samples(info, sound, first) >= min(_to_samples(info, sound, last), int(ends[-1])):
        return slice(0, 0)
    before = _to_samples(info, sound, first) - int(_SOUND_BEFORE * sound.rate)
    return slice(
        int(np.searchsorted(ends, before, "right")), int(np.searchsorted(begins, _to_samples(info, sound, last)))
    )


def _sound_times(sound: SoundTrack) -> tuple[Ticks, Ticks]:
    """The first sample and the end of each packet. They are kept as long as the packets."""
    if (found := _times_of_sound.get(sound.packets)) is None:
        scale = float(sound.time_base * sound.rate)
        begins = np.maximum.accumulate(np.rint(sound.packets.times * scale).astype(np.int64))
        end = np.rint(sound.packets.durations[-1:] * scale).astype(np.int64) + begins[-1:]
        found = _times_of_sound[sound.packets] = begins, np.concatenate([begins[1:], end])
    return found


def _to_samples(info: VideoInfo, sound: SoundTrack, tick: int) -> int:
    return round(tick * info.time_base * sound.rate)


def _place(chosen: list[tuple[PacketTable, slice]]) -> tuple[tuple[tuple[int, int], ...], list[Ticks]]:
    """The ranges that have the packets, and the position of each track's packets in them. Raises FormatError."""
    offsets = np.concatenate([table.offsets[packets] for table, packets in chosen])
    sizes = np.concatenate([table.sizes[packets] for table, packets in chosen]).astype(np.int64)
    if len(offsets) > _PACKETS_MAX:
        raise FormatError(f"the span has over {_PACKETS_MAX:,} packets: choose a shorter")
    order = np.argsort(offsets, kind="stable")
    begins, ends = offsets[order], (offsets + sizes)[order]
    jumps = begins[1:] - ends[:-1]
    is_first = np.ones(len(order), bool)
    is_first[1:] = (jumps < 0) | (jumps > _GAP_MAX)
    starts, stops = begins[is_first], ends[np.roll(is_first, -1)]
    if len(starts) > _RANGES_MAX:
        raise FormatError(f"the packets of the span are in over {_RANGES_MAX:,} places: choose a shorter")
    lengths = stops - starts
    positions = np.empty(len(order), np.int64)
    positions[order] = begins + (np.cumsum(lengths) - lengths - starts)[np.cumsum(is_first) - 1]
    edges = np.cumsum([len(table.offsets[packets]) for table, packets in chosen[:-1]], dtype=np.int64)
    return tuple(zip(starts.tolist(), lengths.tolist(), strict=True)), np.split(positions, edges)


def _factor(info: VideoInfo) -> int:
    return -(-_TIMESCALE_MIN // info.time_base.denominator)


def _picture_track(
    info: VideoInfo, index: FrameIndex, packets: slice, first: int, last: int, positions: Ticks
) -> MovieTrack:
    factor = _factor(info)
    scale = info.time_base.numerator * factor
    frames = index.times
    begin = int(frames[np.searchsorted(frames, first)])
    times = info.packets.times[packets]
    # The order of decoding says when: packets are decoded at the times of frames, early enough for all.
    decoded = np.sort(times)
    decoded -= (decoded - times).max()
    gap = round(_GAP_SECONDS / info.time_base)
    after = np.searchsorted(frames, last)
    end = min(last, int(frames[after]) if after < len(frames) else max(info.packets.end, int(frames[-1]) + 1))
    edits = [Edit((begin - first) * scale, None)] if begin > first else []
    edits.append(Edit((end - begin) * scale, (begin + gap - int(decoded[0])) * scale))
    header = info.track_header[-_HEADER_SIZE:]
    if len(header) < _HEADER_SIZE:
        header = bytes(16) + IDENTITY + struct.pack(">II", info.width << 16, info.height << 16)
    keys = np.flatnonzero(info.packets.flags[packets] & KEY) + 1
    return MovieTrack(
        handler=b"vide",
        timescale=info.time_base.denominator * factor,
        header=header,
        sample_entry=info.sample_entry,
        positions=positions,
        sizes=info.packets.sizes[packets].astype(np.int64),
        durations=np.diff(decoded, append=decoded[-1] + max(end - int(times.max()), 1)) * scale,
        shifts=(times + gap * (times >= begin) - decoded) * scale,
        keys=None if len(keys) == len(times) else keys,
        frame_size=0,
        edits=edits,
    )


def _sound_track(
    info: VideoInfo, sound: SoundTrack, packets: slice, first: int, last: int, positions: Ticks, timescale: int
) -> MovieTrack:
    begins, ends = (each[packets] for each in _sound_times(sound))
    start, end = _to_samples(info, sound, first), min(_to_samples(info, sound, last), int(ends[-1]))
    begin = min(max(start, int(begins[0])), end)
    if sound.coding == "vorbis" and begin > begins[0]:
        # libav does not begin inside of its packets: sound begins with the first whole one.
        begin = min(int(ends[np.searchsorted(ends, begin)]), end)
    to_movie = Fraction(timescale, sound.rate)
    edits = [Edit(round((begin - start) * to_movie), None)] if begin > start else []
    edits.append(Edit(round((end - begin) * to_movie), begin - int(begins[0])))
    return MovieTrack(
        handler=b"soun",
        timescale=sound.rate,
        header=bytes(12) + _VOLUME.to_bytes(2, "big") + bytes(2) + IDENTITY + bytes(8),
        sample_entry=sound.sample_entry,
        positions=positions,
        sizes=sound.packets.sizes[packets].astype(np.int64),
        durations=ends - begins,
        shifts=None,
        keys=None,
        frame_size=sound.frame_size,
        edits=edits,
    )


_times_of_sound: WeakKeyDictionary[PacketTable, tuple[Ticks, Ticks]] = WeakKeyDictionary()
