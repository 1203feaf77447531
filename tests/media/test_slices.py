import random
import struct
from pathlib import Path

import numpy as np
import pytest
from recordings import SECONDS, bytes_by_command, decode_all, make, make_all, make_amr, sound, to_16_bits
from variants import with_variants

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.extent import Memory
from touchfs.media.decoder.pool import DecodePool
from touchfs.media.slices.media_info import FROM_START as FROM
from touchfs.media.slices.media_info import MediaInfo
from touchfs.media.slices.probe import probe
from touchfs.media.slices.read_slice import read_slice

SLICES = 8
NO_NOISE = ("-aac_pns", "0")
PICTURE = f"testsrc=duration={SECONDS}:size=320x240"

# name, rate, channels, ffmpeg's options; the coding; how far slices may be from a full decode, of 32768
EXACT = [
    ("a.flac", 44100, 2, ("-sample_fmt", "s16"), "flac"),
    ("b.flac", 16000, 1, ("-sample_fmt", "s16", "-frame_size", "256"), "flac"),
    ("c.flac", 48000, 6, ("-sample_fmt", "s32"), "flac"),
    ("d.oga", 16000, 1, ("-c:a", "flac", "-sample_fmt", "s16"), "flac"),
    ("e.mka", 44100, 2, ("-c:a", "flac", "-sample_fmt", "s32"), "flac"),
    ("f.mp4", 44100, 2, ("-c:a", "flac", "-sample_fmt", "s16", "-strict", "-2"), "flac"),
    ("a.m4a", 44100, 2, ("-c:a", "alac", "-sample_fmt", "s16p"), "alac"),
    ("b.m4a", 48000, 1, ("-c:a", "alac", "-sample_fmt", "s32p"), "alac"),
    ("a.mp3", 44100, 2, (), "mp3"),
    ("b.mp3", 16000, 1, ("-b:a", "16k"), "mp3"),
    ("c.mp3", 48000, 2, ("-q:a", "2"), "mp3"),
    ("d.mp3", 44100, 1, ("-b:a", "64k", "-write_xing", "0"), "mp3"),
    ("e.mp3", 8000, 1, ("-b:a", "8k"), "mp3"),
    ("f.mp3", 44100, 2, ("-b:a", "320k", "-id3v2_version", "3", "-metadata", "title=t"), "mp3"),
    ("g.mkv", 44100, 2, ("-c:a", "libmp3lame"), "mp3"),
    ("a.ogg", 44100, 2, ("-c:a", "libvorbis"), "vorbis"),
    ("b.ogg", 16000, 1, ("-c:a", "libvorbis", "-q:a", "1"), "vorbis"),
    ("c.mkv", 48000, 2, ("-c:a", "libvorbis"), "vorbis"),
    ("d.webm", 44100, 1, ("-c:a", "libvorbis"), "vorbis"),
    ("c.m4a", 44100, 2, ("-c:a", "aac", *NO_NOISE), "aac"),
    ("d.m4a", 16000, 1, ("-c:a", "aac", "-b:a", "32k", *NO_NOISE), "aac"),
    ("e.aac", 48000, 2, ("-c:a", "aac", *NO_NOISE), "aac"),
    ("f.mkv", 22050, 1, ("-c:a", "aac", *NO_NOISE), "aac"),
    ("g.mov", 44100, 2, ("-c:a", "pcm_s24le"), "pcm_s24le"),
    ("h.mkv", 16000, 1, ("-c:a", "pcm_s16le"), "pcm_s16le"),
    ("i.aiff", 44100, 2, ("-c:a", "pcm_s16be"), "pcm_s16be"),
    ("i.wav", 44100, 2, ("-c:a", "adpcm_ima_wav"), "adpcm_ima_wav"),
    ("j.wav", 8000, 1, ("-c:a", "adpcm_ima_wav", "-block_size", "256"), "adpcm_ima_wav"),
    ("k.wav", 22050, 2, ("-c:a", "adpcm_ms"), "adpcm_ms"),
    ("l.wav", 8000, 1, ("-c:a", "adpcm_ms", "-block_size", "32"), "adpcm_ms"),
    ("j.mp4", 44100, 2, ("-f", "lavfi", "-i", PICTURE, "-c:v", "mpeg4", "-c:a", "aac", *NO_NOISE), "aac"),
    ("k.mkv", 48000, 2, ("-f", "lavfi", "-i", PICTURE, "-c:v", "mpeg4", "-c:a", "libvorbis"), "vorbis"),
    ("l.mp4", 44100, 1, ("-c:a", "aac", "-movflags", "+frag_keyframe+empty_moov", *NO_NOISE), "aac"),
    ("m.mp4", 44100, 2, ("-c:a", "libmp3lame"), "mp3"),
    ("a.opus", 48000, 2, ("-c:a", "libopus", "-b:a", "128k"), "opus"),
    ("o.mp3", 16000, 1, ("-q:a", "5", "-write_xing", "0"), "mp3"),
    ("p.au", 44100, 2, ("-c:a", "pcm_s24be"), "pcm_s24be"),
    ("q.caf", 16000, 1, ("-c:a", "pcm_s16be"), "pcm_s16be"),
]
# Another recording has their coding and container, or one that is cut alike
ALIKE = {
    *("d.oga", "b.m4a", "b.mp3", "d.mp3", "f.mp3", "b.ogg", "d.webm", "d.m4a", "f.mkv"),
    *("h.mkv", "i.aiff", "j.wav", "l.wav", "k.mkv", "m.mp4", "q.caf", "b.mpg"),
}
# Those that are decoded from their start
FROM_START = [
    ("a.ts", 44100, 2, ("-c:a", "aac"), FROM),
    ("b.mpg", 44100, 1, (), FROM),
    ("c.ac3", 48000, 2, (), FROM),
    ("d.wma", 16000, 1, (), FROM),
    ("e.mkv", 48000, 6, ("-c:a", "eac3"), FROM),
]
NEAR = [
    ("n.mp2", 44100, 2, (), "mp2"),
    ("b.opus", 16000, 1, ("-c:a", "libopus", "-b:a", "12k", "-application", "voip"), "opus"),
    ("c.webm", 48000, 1, ("-c:a", "libopus", "-b:a", "24k"), "opus"),
    ("d.mp4", 48000, 2, ("-c:a", "libopus", "-b:a", "64k"), "opus"),
    ("e.ogg", 24000, 1, ("-c:a", "libopus", "-b:a", "32k", "-frame_duration", "60"), "opus"),
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """With what the tests have in common."""
    place = tmp_path_factory.mktemp("recordings")
    rows = [row[:4] for row in EXACT + FROM_START + NEAR if row[0] not in ALIKE and "-i" not in row[3]]
    rows += [(name, 16000, 6 if kind == "extensible" else 2, options) for kind, (name, options) in PCM.items()]
    make_all(place, rows)
    return place


def spans(frames: int, count: int = SLICES):
    """Random spans, and those at the begin, at the end and of one sample."""
    chooser = random.Random(frames)
    yield from ((0, 100), (max(frames - 100, 0), 100), (frames // 2, 1))
    for _ in range(count):
        first = chooser.randrange(frames)
        yield first, chooser.randrange(1, min(frames - first, 60_000) + 1)


def opened(path: Path, pool: DecodePool) -> tuple[Memory, MediaInfo]:
    """Content and information, which has been kept as bytes in between."""
    content = Memory(path.read_bytes())
    info = probe(content, pool)
    return content, MediaInfo.from_bytes(info.to_bytes(), content.size)


@pytest.mark.parametrize(
    "row", with_variants(EXACT + FROM_START, lambda row: row[0] not in ALIKE), ids=lambda row: row[0]
)
def test_a_slice_is_that_of_a_full_decode(directory, pool, row):
    name, rate, channels, options, coding = row
    path = make(directory, name, rate, channels, *options)
    content, info = opened(path, pool)
    whole = decode_all(path)
    assert (info.coding, info.channels, info.frames) == (coding, channels, len(whole))
    assert info.rate == (48000 if coding == "opus" else rate)
    expected = whole >> 8 if info.sample_format == "s24" else whole
    for first, length in spans(info.frames):
        pcm = read_slice(content, info, first, length, pool, info.sample_format)
        assert np.array_equal(pcm.samples, expected[first : first + length]), (first, length)


@pytest.mark.parametrize("row", NEAR, ids=lambda row: row[0])
def test_predicting_codings_come_near_a_full_decode(directory, pool, row):
    name, rate, channels, options, coding = row
    path = make(directory, name, rate, channels, *options)
    near_a_full_decode(path, pool, coding)


def test_amr(directory, pool):
    near_a_full_decode(make_amr(directory), pool, "amr_nb")


def near_a_full_decode(path: Path, pool: DecodePool, coding: str) -> None:
    content, info = opened(path, pool)
    whole = to_16_bits(decode_all(path)).astype(int)
    assert (info.coding, info.frames) == (coding, len(whole))
    for first, length in spans(info.frames):
        pcm = read_slice(content, info, first, length, pool)
        assert pcm.sample_format == "s16"
        assert np.abs(pcm.samples - whole[first : first + length]).max() <= 1, (first, length)


# The first recording of each coding
OF_EACH_CODING = list({row[4]: row for row in reversed(EXACT + NEAR)}.values())


@pytest.fixture(scope="module")
def by_command(directory):
    """Their samples, by name."""
    rows = [(make(directory, *row[:3], *row[3]), ("-f", "s16le")) for row in OF_EACH_CODING]
    decoded = bytes_by_command(rows)
    return {
        row[0]: np.frombuffer(each, "<i2").reshape(-1, row[2])
        for row, each in zip(OF_EACH_CODING, decoded, strict=True)
    }


@pytest.mark.parametrize("row", OF_EACH_CODING, ids=lambda row: row[0])
def test_the_length_is_that_of_the_command_and_so_are_the_samples(directory, by_command, pool, row):
    """Another version of libav may round differently in its transforms, and know from an edit list where sound ends."""
    name, rate, channels, options, coding = row
    path = make(directory, name, rate, channels, *options)
    content, info = opened(path, pool)
    whole = by_command[name]
    assert info.frames == len(whole) or (info.container == "mov" and info.frames == SECONDS * rate)
    pcm = read_slice(content, info, 1000, 50_000, pool)
    difference = to_16_bits(pcm.samples << 8 if info.default_format == "s24" else pcm.samples).astype(int)
    difference -= whole[1000:51_000]
    equal = ("flac", "alac", "mp3", "pcm_s16le", "pcm_s16be", "adpcm_ms")
    # Before libav 6 each step of IMA's ADPCM was rounded by itself, and errors added up in a block.
    assert np.abs(difference).max() <= (0 if coding in equal else 64 if coding == "adpcm_ima_wav" else 1)


def test_noise_substitution_of_aac_differs_only_in_the_noise(directory, pool):
    path = make(directory, "noise.m4a", 44100, 1, "-c:a", "aac", "-b:a", "32k", "-aac_pns", "1")
    content, info = opened(path, pool)
    whole = decode_all(path)
    pcm = read_slice(content, info, 100_000, 100_000, pool, "f32")
    ours, theirs = (np.abs(np.fft.rfft(each[:, 0])) for each in (pcm.samples, whole[100_000:200_000]))
    speech = slice(0, 3000)  # below 1.3 kHz
    assert np.abs(ours[speech] - theirs[speech]).max() < 1e-3 * theirs[speech].max()
    assert abs((ours**2).sum() / (theirs**2).sum() - 1) < 0.05


PCM = {
    "u8": ("u8.wav", ("-c:a", "pcm_u8")),
    "s16": ("s16.wav", ("-c:a", "pcm_s16le")),
    "s24": ("s24.wav", ("-c:a", "pcm_s24le")),
    "s32": ("s32.wav", ("-c:a", "pcm_s32le")),
    "f32": ("f32.wav", ("-c:a", "pcm_f32le")),
    "f64": ("f64.wav", ("-c:a", "pcm_f64le")),
    "rf64": ("rf64.wav", ("-c:a", "pcm_s16le", "-rf64", "always")),
    "bext": ("bext.wav", ("-c:a", "pcm_s24le", "-write_bext", "1", "-metadata", "description=d")),
    "extensible": ("six.wav", ("-c:a", "pcm_s24le")),
    "w64": ("s24.w64", ("-c:a", "pcm_s24le")),
    "w64 of floats": ("f32.w64", ("-c:a", "pcm_f32le")),
    "alaw": ("alaw.wav", ("-c:a", "pcm_alaw")),
    "mulaw": ("mulaw.wav", ("-c:a", "pcm_mulaw")),
}


@pytest.mark.parametrize("kind", PCM)
def test_wav_of_every_format(directory, pool, kind):
    name, options = PCM[kind]
    channels = 6 if kind == "extensible" else 2
    path = make(directory, name, 16000, channels, *options)
    content, info = opened(path, pool)
    whole = decode_all(path)
    assert (
        (info.rate, info.channels, info.frames) == (16000, channels, len(whole)) == (16000, channels, 16000 * SECONDS)
    )
    expected = whole >> 8 if info.sample_format == "s24" else whole
    for first, length in spans(info.frames):
        pcm = read_slice(content, info, first, length, pool, info.sample_format)
        assert pcm.samples.dtype == expected.dtype
        assert np.array_equal(pcm.samples, expected[first : first + length]), (first, length)


def test_only_what_a_slice_needs_is_read(directory, pool):
    class Counted(Memory):
        count = 0

        def read(self, offset, length):
            self.count += length
            return super().read(offset, length)

    for name, rate, channels, options, _ in (EXACT[0], EXACT[8], EXACT[15]):
        data = make(directory, name, rate, channels, *options).read_bytes()
        content = Counted(data)
        info = probe(content, pool)
        if info.coding == "flac":
            assert content.count < 200  # the header
        content.count = 0
        read_slice(content, info, info.frames // 2, rate // 10, pool)
        assert content.count < len(data) / 10 + 80_000, name


def test_a_flac_that_does_not_say_its_length(directory, pool):
    path = make(directory, "a.flac", 44100, 2, "-sample_fmt", "s16")
    data = bytearray(path.read_bytes())
    data[21] &= 0xF0
    data[22:26] = bytes(4)
    content = Memory(bytes(data))
    info = probe(content, pool)
    whole = decode_all(path)
    assert info.frames == len(whole)
    pcm = read_slice(content, info, 200_000, 1000, pool)
    assert np.array_equal(pcm.samples, whole[200_000:201_000])


CHAINS = {
    "opus": (("x.opus", "y.opus"), ("-c:a", "libopus"), 48000),
    "vorbis": (("x.ogg", "y.ogg"), ("-c:a", "libvorbis"), 44100),
    "flac": (("x.oga", "y.oga"), ("-c:a", "flac", "-sample_fmt", "s16"), 44100),
}


@pytest.mark.parametrize("coding", CHAINS)
def test_chained_ogg_recordings_are_one_after_another(directory, pool, coding):
    """As `cat x.opus y.opus` makes them. The second one has other headers."""
    names, options, rate = CHAINS[coding]
    other = ("-b:a", "96k") if coding == "opus" else ("-ar", "44100", "-metadata", "title=another")
    paths = [make(directory, name, rate, 1, *options, *extra) for name, extra in zip(names, ((), other), strict=True)]
    parts = [path.read_bytes() for path in paths]
    alone = [read_slice(*opened(path, pool), 0, 10**9, pool).samples for path in paths]
    whole = np.concatenate([alone[0], alone[1], alone[0]])
    (directory / f"chain-{coding}.ogg").write_bytes(parts[0] + parts[1] + parts[0])
    content, info = opened(directory / f"chain-{coding}.ogg", pool)
    assert (info.coding, info.frames, len(info.links)) == (coding, len(whole), 3)
    seam = len(alone[0])
    for first, length in ((0, 10**9), (seam - 500, 1000), (seam, 100), (2 * seam - 10, 30_000), (len(whole) - 9, 99)):
        samples = read_slice(content, info, first, length, pool).samples
        difference = samples.astype(int) - whole[first : first + length]
        assert np.abs(difference).max() <= (1 if coding == "opus" else 0)


def with_edits(data: bytes, edits: list[tuple[int, int]]) -> bytes:
    """An MP4 with its edit list replaced: (duration in ticks of the film, first tick of the sound) of each part."""
    at = data.index(b"edts") - 4
    (old,) = struct.unpack_from(">I", data, at)
    entries = b"".join(struct.pack(">IiI", *edit, 1 << 16) for edit in edits)
    elst = struct.pack(">I4sII", 16 + len(entries), b"elst", 0, len(edits)) + entries
    grown = bytearray(data[:at] + struct.pack(">I4s", 8 + len(elst), b"edts") + elst + data[at + old :])
    for name in (b"trak", b"moov"):
        place = data.rindex(name, 0, at) - 4
        (size,) = struct.unpack_from(">I", data, place)
        struct.pack_into(">I", grown, place, size + len(elst) + 8 - old)
    return bytes(grown)


@pytest.mark.parametrize("options", [("-c:a", "aac", *NO_NOISE), ("-c:a", "alac", "-sample_fmt", "s16p")])
def test_an_edit_list_of_several_parts(directory, pool, options):
    path = make(directory, f"edits-{options[1]}.m4a", 44100, 1, *options)
    data = path.read_bytes()
    for edits, seconds in (
        ([(1500, 44100), (1000, 4 * 44100 + 100), (700, 2 * 44100)], 3.2),
        ([(3000, 0), (4000, 5 * 44100)], 7),  # a gap in the middle
        ([(8000, 44100), (8000, 44100)], 16),
    ):
        path.write_bytes(with_edits(data, edits))
        check_edits(path, pool, len(edits), seconds)


def check_edits(path: Path, pool: DecodePool, parts: int, seconds: float) -> None:
    whole = decode_all(path)
    content, info = opened(path, pool)
    assert info.frames == len(whole)
    assert abs(info.seconds - seconds) < 0.1
    assert len(info.links) == parts
    for first, length in spans(info.frames):
        pcm = read_slice(content, info, first, length, pool, info.sample_format)
        assert np.array_equal(pcm.samples, whole[first : first + length]), (first, length)


def test_tags_before_a_flac(directory, pool):
    path = make(directory, "a.flac", 44100, 2, "-sample_fmt", "s16")
    tag = b"ID3\x04\0\0" + bytes([0, 0, 2, 5]) + bytes(2 * 128 + 5)
    content = Memory(tag + path.read_bytes())
    info = probe(content, pool)
    assert np.array_equal(read_slice(content, info, 99_999, 1000, pool).samples, decode_all(path)[99_999:100_999])


@pytest.mark.parametrize("kind", ["s16", "s24", "f32", "alaw", "adpcm_ms", "w64"])
def test_a_wav_that_is_cut_short_has_what_is_there(directory, tmp_path, pool, kind):
    name, options = PCM.get(kind, (f"{kind}.wav", ("-c:a", kind)))
    path = tmp_path / name
    path.write_bytes(make(directory, name, 16000, 2, *options).read_bytes()[:-100_001])
    whole = decode_all(path)
    content, info = opened(path, pool)
    assert info.frames == len(whole)
    samples = read_slice(content, info, info.frames - 5000, 9999, pool, info.sample_format).samples
    assert np.array_equal(samples, (whole >> 8 if info.sample_format == "s24" else whole)[-5000:])


def test_the_end_is_the_end(directory, pool):
    path = make(directory, "a.mp3", 44100, 2)
    content, info = opened(path, pool)
    assert len(read_slice(content, info, info.frames - 10, 1000, pool).samples) == 10
    assert read_slice(content, info, info.frames, 1000, pool).samples.shape == (0, 2)
    assert read_slice(content, info, 10**12, 1, pool).samples.shape == (0, 2)
    assert read_slice(content, info, 5, 0, pool).samples.shape == (0, 2)
    with pytest.raises(UsageError):
        read_slice(content, info, -1, 10, pool)


def test_a_long_slice_is_decoded_in_parts(directory, pool, monkeypatch):
    monkeypatch.setattr("touchfs.media.slices.read_slice._VALUES_MAX", 30_000)
    for name, rate, channels, options, _ in (EXACT[0], EXACT[8], EXACT[15], EXACT[19]):
        path = make(directory, name, rate, channels, *options)
        content, info = opened(path, pool)
        whole = to_16_bits(decode_all(path))
        assert np.array_equal(read_slice(content, info, 1, 10**9, pool).samples, whole[1:]), name


def test_a_recording_cut_off_after_its_headers_is_empty(directory, pool):
    data = make(directory, "headers.ogg", 16000, 1, "-c:a", "libvorbis").read_bytes()
    content = Memory(b"OggS".join(data.split(b"OggS")[:3]))
    kept = probe(content, pool).to_bytes()
    info = MediaInfo.from_bytes(kept, content.size)
    assert (info.frames, info.packets is not None and len(info.packets)) == (0, 0)
    assert read_slice(content, info, 0, 100, pool).samples.shape == (0, 1)


def test_what_is_kept_is_checked(directory, pool):
    path = make(directory, "a.mp3", 44100, 2)
    content, info = opened(path, pool)
    kept = info.to_bytes()
    assert len(kept) < 2000
    for damaged in (b"", kept[:20], kept[:-1], kept + b"x", kept[:40] + b"!" + kept[41:], b"none" + kept[4:]):
        with pytest.raises(FormatError, match="what is kept of a recording"):
            MediaInfo.from_bytes(damaged, content.size)
    with pytest.raises(FormatError, match="another version"):
        MediaInfo.from_bytes(kept[:4] + struct.pack("<I", 999) + kept[8:], content.size)
    with pytest.raises(FormatError, match="of a file of"):
        MediaInfo.from_bytes(kept, content.size + 1)
    with pytest.raises(FormatError, match="when it was looked at"):
        read_slice(Memory(content.data + b"x"), info, 0, 1, pool)


def test_the_sound_is_what_was_encoded(directory, pool):
    """Not only equal to another decode: in FLAC it is the source."""
    path = make(directory, "a.flac", 44100, 2, "-sample_fmt", "s16")
    content, info = opened(path, pool)
    pcm = read_slice(content, info, 44100, 44100, pool)
    assert np.abs(pcm.samples / 32768 - sound(44100, 2)[44100:88200]).max() < 1e-4


@pytest.mark.parametrize("junk", [b"\0", bytes(1000), b"\xff", b"\xff\xfb", random.Random(1).randbytes(3000)], ids=len)
def test_what_comes_after_the_last_frame_of_an_mp3_is_no_sound(directory, tmp_path, pool, junk):
    path = make(directory, "a.mp3", 44100, 2)
    whole = decode_all(path)
    (tmp_path / "b.mp3").write_bytes(path.read_bytes() + junk)
    content, info = opened(tmp_path / "b.mp3", pool)
    assert info.frames == len(whole)
    assert np.array_equal(read_slice(content, info, 0, info.frames, pool, "f32").samples, whole)
