"""Copy a span of a video without decoding it: an MP4 whose edit list shows exactly the frames of the span.

The packets begin at the key frame before the span, and go on to the last one that a frame of the span needs. The edit
list says what is shown of them: players, ffmpeg and all that reads with libav decode the others and drop them. The
sound of the span comes with it, with a quarter of a second before, which its decoder needs.

It is no Matroska because that has no edit lists. Its ways to say "decode this, do not show it" are a flag of blocks
(invisible), times before 0, and a delay of the codec. libav ignores the flag; of frames before 0 it makes times from
the frame rate, or moves all times so that they begin at 0. So ffmpeg shows every frame of such a file.
"""

from __future__ import annotations

import struct
from fractions import Fraction

import numpy as np

from touchfs.errors import FormatError, UsageError
from touchfs.extent import Content
from touchfs.media.coding.packet_table import KEY, PacketTable
from touchfs.media.slices.reading import read_pieces
from touchfs.media.video.frame_index import FrameIndex
from touchfs.media.video.movie import IDENTITY, Edit, MovieTrack, Ticks, write_movie
from touchfs.media.video.video_info import SoundTrack, VideoInfo

# The packets of a span are in memory as a whole, once as they are read and once as a file.
_SPAN_MAX = 1 << 29
# Opus needs 80 ms to come to its state; MP3 and AAC a few packets
_SOUND_BEFORE = Fraction(1, 4)
# Ticks a second of the movie, so that sound and pictures are not moved apart
_TIMESCALE_MIN = 10_000
# Between the frames that are dropped and those that are shown. Decoders that know of no dropping (dav1d in ffmpeg 5)
# return the former with times before 0, and ffmpeg shows one that is only a frame before 0.
_GAP_SECONDS = 1
_HEADER_SIZE = 60  # of `tkhd`, after the duration
_VOLUME = 1 << 8


def remux(content: Content, info: VideoInfo, start: float, end: float) -> bytes:
    """Return an MP4 of the span `[start, end)` in seconds.

    `content` must be the file that `info` was found for. Raises UsageError for a span without frames or over 512 MiB,
    FormatError if an MP4 cannot have the coding, and the errors of `content`.
    """
    if content.size != info.file_size:
        raise FormatError(f"has {content.size} bytes, and had {info.file_size} when it was looked at")
    first, last = info.to_ticks(start), info.to_ticks(end)
    index = FrameIndex(info.packets)
    chosen = [(info.packets, _choose_pictures(index, first, last))]
    if info.sound is not None:
        chosen.append((info.sound.packets, _choose_sound(info, info.sound, first, last)))
    for track, (_, packets) in zip((info, info.sound), chosen, strict=False):
        if track is not None and not track.sample_entry and packets.start < packets.stop:
            raise FormatError(f"{track.coding} as it is stored here does not fit in an MP4: it cannot be copied")
    data, positions = _read(content, chosen)
    tracks = [_picture_track(info, index, chosen[0][1], first, last, positions[0])]
    brands = {info.brand}
    if info.sound is not None and len(positions[1]):
        tracks.append(_sound_track(info, info.sound, chosen[1][1], first, last, positions[1], tracks[0].timescale))
        brands.add(info.sound.brand)
    return write_movie(max(brands), tracks[0].timescale, tracks, data)


def _choose_pictures(index: FrameIndex, first: int, last: int) -> slice:
    """The packets from the key frame on that frames of the ticks `[first, last)` need. Raises UsageError."""
    frames = slice(*np.searchsorted(index.times, (first, last)))
    if frames.start >= frames.stop:
        raise UsageError("the span has no frames")
    return slice(index.key_before(int(index.times[frames.start])), int(index.packets[frames].max()) + 1)


def _choose_sound(info: VideoInfo, sound: SoundTrack, first: int, last: int) -> slice:
    begins, ends = _sound_times(sound)
    before = _to_samples(info, sound, first) - int(_SOUND_BEFORE * sound.rate)
    return slice(
        int(np.searchsorted(ends, before, "right")), int(np.searchsorted(begins, _to_samples(info, sound, last)))
    )


def _sound_times(sound: SoundTrack) -> tuple[Ticks, Ticks]:
    """The first sample and the end of each packet."""
    scale = float(sound.time_base * sound.rate)
    begins = np.maximum.accumulate(np.rint(sound.packets.times * scale).astype(np.int64))
    end = np.rint(sound.packets.durations[-1:] * scale).astype(np.int64) + begins[-1:]
    return begins, np.concatenate([begins[1:], end])


def _to_samples(info: VideoInfo, sound: SoundTrack, tick: int) -> int:
    return round(tick * info.time_base * sound.rate)


def _read(content: Content, chosen: list[tuple[PacketTable, slice]]) -> tuple[bytes, list[Ticks]]:
    """Read packets, those of all tracks in one pass. Returns their bytes in the order of the file, and the position of
    each track's packets in them. Raises UsageError.
    """
    offsets = np.concatenate([table.offsets[packets] for table, packets in chosen])
    sizes = np.concatenate([table.sizes[packets] for table, packets in chosen])
    if int(sizes.sum(dtype=np.int64)) > _SPAN_MAX:
        raise UsageError(f"the span has over {_SPAN_MAX:,} bytes: choose a shorter")
    order = np.argsort(offsets, kind="stable")
    data, places = read_pieces(content, offsets[order], sizes[order])
    view = memoryview(data)
    pieces = zip(places.tolist(), sizes[order].tolist(), strict=True)
    positions = np.empty(len(order), np.int64)
    positions[order] = np.cumsum(sizes[order], dtype=np.int64) - sizes[order]
    edges = np.cumsum([len(table.offsets[packets]) for table, packets in chosen[:-1]], dtype=np.int64)
    return b"".join(view[place : place + size] for place, size in pieces), np.split(positions, edges)


def _picture_track(
    info: VideoInfo, index: FrameIndex, packets: slice, first: int, last: int, positions: Ticks
) -> MovieTrack:
    factor = -(-_TIMESCALE_MIN // info.time_base.denominator)
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
