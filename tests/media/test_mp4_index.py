"""The packets of MP4 and QuickTime files by their tables: as libav reads them, but without reading them."""

import random
import struct
import subprocess

import av
import numpy as np
import pytest
from variants import with_variants
from videos import AAC, VIDEOS, VP9, X264, make, turned, variable

from touchfs.core.errors import FormatError
from touchfs.core.extent import Memory, drive
from touchfs.media.coding.mp4_samples import read_samples
from touchfs.media.slices.probe import probe
from touchfs.media.video.probe_video import probe_video

MPEG4 = ("-c:v", "mpeg4", "-bf", "2")
MORE = {
    "front.mp4": (*X264, *AAC, "-movflags", "+faststart"),
    "pcm.mov": (*X264, "-c:a", "pcm_s16le"),
    "hevc.mp4": ("-c:v", "libx265", "-x265-params", "log-level=none", "-g", "50", *AAC),
    "ordered.mp4": ("-c:v", "libx264", "-bf", "0", *AAC),
    "negative.mp4": (*X264, *AAC, "-movflags", "+negative_cts_offsets"),
    "alac.mov": (*MPEG4, "-c:a", "alac"),
    "mp3.mp4": (*MPEG4, "-c:a", "libmp3lame"),
    "opus.mp4": (*X264, "-c:a", "libopus"),
    "vp9.mp4": (*VP9, *AAC),
    "sidx.mp4": (*X264, *AAC, "-movflags", "+frag_keyframe+empty_moov+default_base_moof+global_sidx"),
    "one.mp4": (*X264, "-an", "-frames:v", "1"),
}
COLUMNS = ("offsets", "sizes", "times", "durations", "flags")
EDITED = ("cut.mp4", "late.mp4")
NAMES = [*(name for name in VIDEOS if name.endswith(("mp4", "mov"))), *MORE, *EDITED, "variable.mp4", "turned-90.mp4"]


# Of these, others have the codings of pictures or of sound, and other tables.
ALIKE = {
    *("open.mp4", "ntsc.mp4", "prores.mov", "hevc.mp4", "ordered.mp4"),
    *("opus.mp4", "vp9.mp4", "turned-90.mp4", "front.mp4"),
}
FIRST = with_variants(NAMES, lambda name: name not in ALIKE)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("videos")


def source(directory, name):
    if name == "variable.mp4":
        return variable(directory)
    if name == "turned-90.mp4":
        return turned(directory, 90)
    if name not in EDITED:
        return make(directory, name, *MORE[name], seconds=4) if name in MORE else make(directory, name)
    whole, path = make(directory, "h264.mp4"), directory / name
    late = ("-itsoffset", "1.5", "-i", whole, "-i", whole, "-map", "0:v", "-map", "1:a")
    options = ("-ss", "3.3", "-i", whole, "-t", "4") if name == "cut.mp4" else late
    if not path.exists():
        subprocess.run(["ffmpeg", "-v", "error", "-y", *options, "-c", "copy", path], check=True)
    return path


class Counted(Memory):
    """A content that counts the bytes that are read."""

    count = 0

    def read(self, offset, length):
        self.count += length
        return super().read(offset, length)


@pytest.mark.parametrize("name", FIRST)
def test_the_index_is_what_libav_reads(directory, pool, monkeypatch, name):
    data = source(directory, name).read_bytes()
    found = probe_video(Memory(data), pool)
    # Another name of the same demuxer, of which no index is taken
    monkeypatch.setattr("touchfs.media.video.probe_video.DEMUXERS", {"mov": "mov,mp4,m4a,3gp,3g2,mj2"})
    wanted = probe_video(Memory(data), pool)
    for track, other in ((found, wanted), (found.sound, wanted.sound)):
        for field in (each for each in (track.__slots__ if track is not None else ()) if each != "sound"):
            mine, theirs = getattr(track, field), getattr(other, field)
            if field != "packets":
                assert mine == theirs, field
                continue
            for column in COLUMNS:
                end = -1 if column == "durations" and name == "mp3.mp4" else None  # its last frame is cut by an edit
                assert np.array_equal(getattr(mine, column)[:end], getattr(theirs, column)[:end]), column


@pytest.mark.parametrize("name", [*FIRST, "sound.m4a"])
def test_the_index_of_sound_is_what_libav_reads(directory, pool, monkeypatch, name):
    path = make(directory, name, "-vn", *AAC) if name == "sound.m4a" else source(directory, name)
    content, whole = Counted(path.read_bytes()), Counted(path.read_bytes())
    with av.open(str(path)) as container:
        if not container.streams.audio:
            return
    found = probe(content, pool)
    monkeypatch.setattr("touchfs.media.slices.probe.DEMUXERS", {"mov": "mov,mp4,m4a,3gp,3g2,mj2"})
    wanted = probe(whole, pool)
    for field in (each for each in found.__slots__ if each != "packets"):
        assert getattr(found, field) == getattr(wanted, field), field
    for column in found.packets.__slots__:
        assert np.array_equal(getattr(found.packets, column), getattr(wanted.packets, column)), column
    assert content.count <= whole.count
    if name == "mjpeg.mov":
        assert content.count < 0.6 * content.size


def test_packets_are_not_read(directory, pool):
    """Of a file whose packets are large; the tables are after them."""
    content = Counted(make(directory, "prores.mov").read_bytes())
    info = probe_video(content, pool)
    assert content.count < content.size / 4
    assert len(info.packets) == 300


@pytest.mark.parametrize("name", ["h264.mp4", "negative.mp4", "variable.mp4", "ordered.mp4"])
def test_tables_are_those_of_the_packets(directory, name):
    path = source(directory, name)
    data = path.read_bytes()
    tracks = drive(read_samples(len(data)), Memory(data))
    with av.open(str(path)) as container:
        pictures = container.streams.video[0]
        packets = [packet for packet in container.demux(pictures) if packet.size]
        samples = tracks[pictures.id]
    if name == "ordered.mp4":
        assert samples is None
        return
    assert samples.offsets.tolist() == [packet.pos for packet in packets]
    assert len({packet.pts - packet.dts - shift for packet, shift in zip(packets, samples.shifts, strict=True)}) == 1


def test_fragments_have_no_tables(directory):
    data = make(directory, "fragmented.mp4").read_bytes()
    assert drive(read_samples(len(data)), Memory(data)) is None


class Short(Memory):
    """A source as the daemon's: exact reads, or an error."""

    def read(self, offset, length):
        assert min(offset, length) >= 0
        assert offset + length <= self.size
        return super().read(offset, length)


@pytest.mark.parametrize("trials", [200, pytest.param(1500, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", ["h264.mp4", "pcm.mov"])
def test_damaged_tables_are_errors(directory, name, trials):
    """Flipped bytes, counts of billions and truncations give a result or a FormatError, soon and in little memory."""
    data = source(directory, name).read_bytes()
    begin = data.index(b"moov")
    length = struct.unpack_from(">I", data, begin - 4)[0]
    chooser = random.Random(name)
    outcomes = set()
    for trial in range(trials):
        wrong = bytearray(data)
        for _ in range(chooser.choice((1, 1, 3, 30))):
            place = chooser.randrange(begin - 4, begin + length - 8)
            wrong[place : place + 4] = chooser.choice(
                (b"\xff" * 4, b"\0" * 4, chooser.randbytes(4), b"\x7f\xff\xff\xff")
            )
        if trial % 10 == 0:
            del wrong[chooser.randrange(len(wrong)) :]
        try:
            tracks = drive(read_samples(len(wrong)), Short(bytes(wrong)))
            outcomes.add("read")
            for samples in (tracks or {}).values():
                assert samples is None or len(samples.offsets) == len(samples.shifts) <= len(data)
        except FormatError as error:
            assert "\n" not in str(error)
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


def test_tables_that_lie_are_not_believed(directory, pool):
    """An index that does not agree with the first packets is not used: the packets are read."""
    data = bytearray(make(directory, "h264.mp4").read_bytes())
    wanted = probe_video(Memory(bytes(data)), pool)
    place = data.index(b"ctts")
    data[place : place + 4] = b"free"
    found = probe_video(Memory(bytes(data)), pool)
    assert np.array_equal(found.packets.offsets, wanted.packets.offsets)
    assert not np.array_equal(found.packets.times, wanted.packets.times)
    assert (np.diff(found.packets.times) > 0).all()
