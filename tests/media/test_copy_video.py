import random
from fractions import Fraction

import av
import numpy as np
import pytest
from spans import to_seconds
from videos import OFTEN, VIDEOS, ffmpeg, hashes, hashes_of_files, make, make_all, some, turned, variable

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.extent import Extent, Memory
from touchfs.media.video.frame_index import frames_in
from touchfs.media.video.probe_video import probe_video
from touchfs.media.video.remux import remux
from touchfs.media.video.render_frames import render_frames

SOURCES = [*VIDEOS, "variable.mp4", "turned-90.mp4"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    place = tmp_path_factory.mktemp("videos")
    make_all(place, OFTEN)
    return place


def source(directory, name):
    if name == "variable.mp4":
        return variable(directory)
    return turned(directory, 90) if name.startswith("turned") else make(directory, name)


def copied(path, start, end, pool):
    content = Memory(path.read_bytes())
    return written(content, probe_video(content, pool), start, end)


def written(content, info, start, end):
    movie = remux(info, start, end).content(Extent(content, 0, content.size))
    return bytes(movie.read(0, movie.size))


class Counted(Memory):
    """A content that counts the bytes that are read."""

    count = 0

    def read(self, offset, length):
        self.count += length
        return super().read(offset, length)


def random_spans(info, name, count):
    """The numbers of frames, and the times of the begin and the end."""
    chooser, frames = random.Random(name), frames_in(info, 0, 100)
    for _ in range(count):
        first = chooser.randrange(len(frames) - 1)
        last = chooser.randrange(first + 1, min(first + 80, len(frames)))
        yield slice(first, last), to_seconds(info, int(frames[first])), to_seconds(info, int(frames[last]))


@pytest.mark.parametrize("spans", [2, pytest.param(10, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", some(SOURCES))
def test_a_copy_has_the_frames_of_the_span(directory, tmp_path, pool, name, spans):
    path = source(directory, name)
    content = Memory(path.read_bytes())
    info = probe_video(content, pool)
    chosen = list(random_spans(info, name, spans))
    copies = [tmp_path / f"{number}.mp4" for number in range(spans)]
    for copy, (_, start, end) in zip(copies, chosen, strict=True):
        copy.write_bytes(written(content, info, start, end))
    whole, *found = hashes_of_files(path, *copies)
    assert len(whole) == len(frames_in(info, 0, 100))
    assert found == [whole[frames] for frames, _, _ in chosen]


# The last frame before a key frame of a fragmented MP4 is where ffmpeg goes to the key frame.
@pytest.mark.parametrize(
    "name",
    [
        *("h264.mp4", "variable.mp4"),
        *(pytest.param(name, marks=pytest.mark.variant) for name in ("open.mp4", "hevc.mkv", "vp9.webm", "mpeg4.avi")),
    ],
)
def test_ffmpeg_shows_the_same_of_the_span(directory, pool, name):
    path = source(directory, name)
    whole = hashes("-i", str(path), "-vsync", "passthrough")
    for frames, start, end in random_spans(probe_video(Memory(path.read_bytes()), pool), name, 3):
        seek = ("-ss", f"{start:.6f}", "-to", f"{end:.6f}", "-i", str(path), "-vsync", "passthrough")
        assert hashes(*seek) == whole[frames]


@pytest.mark.parametrize("name", ["h264.mp4", "vp9.webm", "mpeg4.avi", "mjpeg.mov"])
def test_the_same_span_has_the_same_bytes(directory, pool, name):
    path = source(directory, name)
    assert copied(path, 3.21, 4.56, pool) == copied(path, 3.21, 4.56, pool)


@pytest.mark.parametrize("name", ["mjpeg.mov", "mpeg4.avi", "prores.mov"])
def test_pcm_is_cut_to_the_sample(directory, tmp_path, pool, name):
    path = source(directory, name)
    decode = ("-map", "0:a", "-f", "s16le", "-c:a", "pcm_s16le", "-")
    whole = np.frombuffer(ffmpeg("-i", str(path), *decode), "<i2")
    for start, end in ((0.0, 1.0), (3.2, 5.52), (10.04, 12.0)):
        copy = tmp_path / "0000.mp4"
        copy.write_bytes(copied(path, start, end, pool))
        samples = np.frombuffer(ffmpeg("-i", str(copy), *decode), "<i2")
        first = round(start * 44100)
        assert abs(len(samples) - (end - start) * 44100) <= 44100 / 25
        assert np.array_equal(samples, whole[first : first + len(samples)])


@pytest.mark.parametrize("name", ["h264.mp4", "h264.mkv", "vp9.webm", "reordered.avi", "hevc.mkv", "mpeg2.mkv"])
def test_sound_is_where_the_pictures_are(directory, tmp_path, pool, name):
    path = source(directory, name)
    copy = tmp_path / "0000.mp4"
    for start in (4.0, 7.76):
        copy.write_bytes(copied(path, start, start + 2, pool))
        part = sound_from(copy, 0.2, 1.5)
        whole = sound_from(path, start + 0.19, 1.52)
        scores = [float(part @ whole[begin : begin + len(part)]) for begin in range(882)]
        assert abs(int(np.argmax(scores)) - 441) <= 44  # 1 ms, which are the ticks of Matroska


def sound_from(path, start: float, seconds: float) -> np.ndarray:
    """The sound from a time on, by the times of libav's frames: one channel at 44.1 kHz."""
    result = np.zeros(int(seconds * 44100), np.float32)
    with av.open(str(path)) as container:
        resampler = av.AudioResampler("fltp", "mono", 44100)
        for frame in container.decode(audio=0):
            begin = round((frame.pts * frame.time_base - start) * 44100)
            for block in resampler.resample(frame):
                values = block.to_ndarray()[0]
                first, last = max(begin, 0), min(begin + len(values), len(result))
                if first < last:
                    result[first:last] = values[first - begin : last - begin]
    return result


def test_a_span_may_begin_before_the_pictures(directory, tmp_path, pool):
    path = directory / "late.mkv"
    options = ("-itsoffset", "1", "-i", str(make(directory, "h264.mp4")), "-i", str(make(directory, "mjpeg.mov")))
    ffmpeg(*options, "-map", "0:v", "-map", "1:a", "-c", "copy", str(path))
    copy = tmp_path / "0000.mp4"
    copy.write_bytes(copied(path, 0.5, 2.0, pool))
    assert hashes("-i", str(copy)) == hashes("-i", str(path))[:25]
    times = ffmpeg("-i", str(copy), "-map", "0:v:0", "-f", "framemd5", "-").decode().splitlines()
    assert Fraction(times[-25].split(",")[2]) in (12, 13)  # half a second of sound comes first


def test_little_is_read_of_a_long_video(directory, pool):
    path = directory / "long.mp4"
    ffmpeg("-stream_loop", "99", "-i", str(make(directory, "h264.mp4")), "-c", "copy", str(path))
    content = Counted(path.read_bytes())
    info = probe_video(content, pool)
    assert content.count < 0.1 * content.size
    kept = info.to_bytes()
    assert len(kept) < content.size / 20
    content.count = 0
    copy = written(content, info, 600, 605)
    assert content.count < 0.01 * content.size
    assert len(copy) < 0.01 * content.size


def test_what_has_no_pictures_is_an_error(directory, pool):
    for name, options in (("sound.mp4", ("-vn", "-c:a", "aac")), ("sound.mkv", ("-vn", "-c:a", "flac"))):
        with pytest.raises(FormatError, match="no pictures"):
            probe_video(Memory(make(directory, name, *options).read_bytes()), pool)
    for name, options in (("sound.wav", ("-vn",)), ("sound.mp3", ("-vn",))):
        with pytest.raises(FormatError, match="no video"):
            probe_video(Memory(make(directory, name, *options).read_bytes()), pool)


def test_a_cover_is_no_video(directory, pool):
    make(directory, "sound.m4a", "-vn", "-c:a", "aac")
    picture, sound = directory / "cover.png", directory / "sound.m4a"
    ffmpeg("-i", str(make(directory, "h264.mp4")), "-frames:v", "1", str(picture))
    inputs = ("-i", str(sound), "-i", str(picture), "-map", "0", "-map", "1", "-c", "copy")
    ffmpeg(*inputs, "-disposition:v", "attached_pic", str(directory / "covered.m4a"))
    with pytest.raises(FormatError, match="no pictures"):
        probe_video((Memory((directory / "covered.m4a").read_bytes())), pool)


def test_an_avi_whose_order_nobody_knows_is_an_error(directory, pool):
    packed = make(directory, "packed.avi", "-c:v", "libxvid", "-bf", "2", "-an")
    h264 = make(directory, "h264.avi", "-c:v", "libx264", "-bf", "2", "-an")
    for path in (packed, h264):
        with pytest.raises(FormatError, match="does not say how to seek"):
            probe_video(Memory(path.read_bytes()), pool)


def test_impossible_spans(directory, pool):
    path = make(directory, "h264.mp4")
    for start, end in ((5, 5), (6, 5), (100, 200), (-2, -1)):
        empty = directory / "empty.mp4"
        empty.write_bytes(copied(path, start, end, pool))
        with av.open(str(empty)) as container:
            assert not container.streams
    for start in (float("nan"), float("inf"), -1e300):
        with pytest.raises(UsageError, match="no video has a time"):
            copied(path, start, 5, pool)


def test_streams_that_an_mp4_stores_in_another_form_are_not_copied(directory, pool):
    """H.264 of transport streams has no lengths of its parts, and AAC of them has headers."""
    annex_b = make(directory, "annex-b.avi", "-c:v", "libx264", "-bf", "0", "-an")
    adts = directory / "adts.avi"
    ffmpeg("-i", str(make(directory, "aac.ts", "-c:v", "mpeg2video", "-c:a", "aac")), "-c", "copy", str(adts))
    for path in (annex_b, adts):
        content = Memory(path.read_bytes())
        info = probe_video(content, pool)
        with pytest.raises(FormatError, match="does not fit in an MP4"):
            remux(info, 1, 2)
        assert len(list(render_frames(content, info, frames_in(info, 1, 2), pool))) == 25
