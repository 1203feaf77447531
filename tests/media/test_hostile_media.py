"""Damaged and hostile recordings: an error of one line, or samples; never a hang, a crash, or more than asked for."""

import random
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest
from recordings import decode_all, make, make_amr

from touchfs.core.errors import FormatError, TouchfsError
from touchfs.core.extent import Memory, drive
from touchfs.media.coding.flac_frames import parse_stream_info, scan_frames
from touchfs.media.decoder.pool import DecodePool
from touchfs.media.slices.containers import detect
from touchfs.media.slices.media_info import MediaInfo
from touchfs.media.slices.probe import probe
from touchfs.media.slices.read_slice import read_slice

FILES = {
    "a.wav": ("-c:a", "pcm_s24le"),
    "a.w64": ("-c:a", "pcm_s16le"),
    "a.flac": ("-sample_fmt", "s16"),
    "a.mp3": (),
    "a.m4a": ("-c:a", "aac"),
    "b.m4a": ("-c:a", "alac"),
    "a.aac": ("-c:a", "aac"),
    "a.ogg": ("-c:a", "libvorbis"),
    "a.opus": ("-c:a", "libopus"),
    "a.webm": ("-c:a", "libopus"),
    "b.mka": ("-c:a", "libvorbis"),
    "a.ts": ("-c:a", "aac"),
    "a.wma": (),
    "a.au": (),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("recordings")


def made(directory: Path, name: str) -> bytes:
    path = make_amr(directory) if name == "a.amr" else make(directory, name, 16000, 1, "-t", "4", *FILES[name])
    return path.read_bytes()


def outcome(data: bytes, pool: DecodePool) -> list[np.ndarray] | TouchfsError:
    """The samples of a few slices, or the error."""
    content = Memory(data)
    try:
        info = probe(content, pool)
        blocks = []
        for first in (0, info.frames // 2, max(info.frames - 3000, 0)):
            blocks.append(read_slice(content, info, first, 3000, pool).samples)
            assert blocks[-1].shape == (min(3000, info.frames - first), info.channels)
    except TouchfsError as error:
        assert "\n" not in str(error)
        return error
    return blocks


@pytest.mark.parametrize("trials", [8, pytest.param(25, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", [*FILES, "a.amr"])
def test_flipped_bytes(directory, pool, name, trials):
    data = made(directory, name)
    chooser = random.Random(name)
    for _ in range(trials):
        damaged = bytearray(data)
        for _ in range(chooser.choice((1, 1, 5, 50))):
            position = (
                chooser.randrange(len(data)) if chooser.random() < 0.6 else chooser.randrange(min(len(data), 400))
            )
            damaged[position] ^= 1 << chooser.randrange(8)
        outcome(bytes(damaged), pool)


@pytest.mark.parametrize("name", [*FILES, "a.amr"])
def test_truncated(directory, pool, name):
    data = made(directory, name)
    chooser = random.Random(name)
    for size in (0, 1, 11, 12, 40, 44, 100, *(chooser.randrange(len(data)) for _ in range(5)), len(data) - 1):
        outcome(data[:size], pool)


@pytest.mark.parametrize("name", [*FILES, "a.amr"])
def test_a_hole(directory, pool, name):
    data = made(directory, name)
    half = len(data) // 2
    outcome(data[:half] + data[half + 1000 :], pool)
    outcome(data[:half] + bytes(1000) + data[half + 1000 :], pool)
    outcome(data + bytes(5000), pool)


@pytest.mark.parametrize("name", ["a.flac", "a.ogg", "a.opus"])
def test_damage_is_an_error_where_checksums_tell(directory, pool, name):
    data = made(directory, name)
    content = Memory(data)
    info = probe(content, pool)
    whole = read_slice(content, info, 0, info.frames, pool).samples
    chooser = random.Random(1)
    for _ in range(30):
        damaged = bytearray(data)
        damaged[chooser.randrange(len(data) // 4, len(data))] ^= 1 << chooser.randrange(8)
        content = Memory(bytes(damaged))
        try:
            info = probe(content, pool)
            samples = read_slice(content, info, 0, info.frames, pool).samples
        except TouchfsError:
            continue
        assert np.array_equal(samples, whole)


@pytest.mark.parametrize("name", ["a.flac", "a.ogg", "a.opus"])
def test_a_missing_part_is_an_error(directory, pool, name):
    data = made(directory, name)
    for first in range(len(data) // 3, len(data) // 2, 997):
        content = Memory(data[:first] + data[first + 1000 :])
        with pytest.raises(TouchfsError):
            read_slice(content, probe(content, pool), 0, 10**9, pool)


def test_damage_in_one_flac_frame_leaves_the_others(directory, pool):
    data = bytearray(made(directory, "a.flac"))
    whole = decode_all(directory / "a.flac")
    info = probe(Memory(bytes(data)), pool)
    for offset in (info.offset + 2, info.offset + info.size // 2):
        content = Memory(bytes(data[:offset]) + bytes(64) + bytes(data[offset + 64 :]))
        assert np.array_equal(read_slice(content, info, 9000, 9000, pool).samples, whole[9000:18000])
        with pytest.raises(TouchfsError):
            read_slice(content, info, 0, 10**9, pool)


def test_chained_ogg_recordings_of_two_kinds_are_an_error(directory, pool):
    first, second = made(directory, "a.opus"), made(directory, "a.ogg")
    for data in (first + second, first[: first.rindex(b"OggS")] + second):
        assert "chained Ogg recordings of several rates" in str(outcome(data, pool))


def test_links_that_are_planted_are_checked(directory, pool):
    data = made(directory, "a.opus")
    info = probe(Memory(data * 2), pool)
    with pytest.raises(FormatError, match="do not add up"):
        replace(info, links=info.links[:1])
    with pytest.raises(FormatError, match="several rates"):
        replace(info, links=(info.links[0], replace(info.links[1], rate=8000)))
    nested = replace(info, frames=info.frames * 2, links=(info, info))
    with pytest.raises(FormatError, match="damaged"):
        MediaInfo.from_bytes(nested.to_bytes(), 2 * len(data))


def test_flac_frames_that_others_replace_are_an_error(directory, pool):
    """Whole frames, so that their checksums are right: of another recording, or more or fewer than there were."""
    data = made(directory, "a.flac")
    info = probe(Memory(data), pool)
    stream = parse_stream_info(info.extradata, info.offset, len(data))
    frames = [frame.offset for frame in scan_frames(data, 0, stream, info.offset)]
    assert len(frames) > 9
    for replaced in (b"", data[frames[5] : frames[7]], data[frames[5] : frames[6]] + bytes(100)):
        content = Memory(data[: frames[5]] + replaced + data[frames[6] :])
        info = probe(content, pool)
        with pytest.raises(TouchfsError, match="is damaged"):
            read_slice(content, info, 0, info.frames, pool)


def test_a_truncated_flac_has_its_begin(directory, pool):
    data = made(directory, "a.flac")
    whole = decode_all(directory / "a.flac")
    content = Memory(data[: len(data) * 2 // 3])
    info = probe(content, pool)
    assert np.array_equal(read_slice(content, info, 1000, 5000, pool).samples, whole[1000:6000])
    with pytest.raises(TouchfsError, match="cut short"):
        read_slice(content, info, info.frames - 1000, 1000, pool)


def test_lists_of_other_files_are_no_recordings(pool):
    for text in (
        b"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nfile:///etc/passwd\n",
        b"ffconcat version 1.0\nfile /etc/passwd\n",
        b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nm=audio 5004 RTP/AVP 0\n",
        b"<?xml version='1.0'?><MPD></MPD>",
        b"[playlist]\nFile1=http://example.com/\n",
        b"http://example.com/",
        b"",
    ):
        with pytest.raises(TouchfsError, match="not a recording that can be sliced"):
            drive(detect(len(text)), Memory(text))


def test_references_to_other_files_are_not_followed(directory, pool):
    """A QuickTime file whose sound lies in another file, which it names by an alias."""
    data = made(directory, "a.m4a")
    assert not isinstance(outcome(data, pool), TouchfsError)
    hostile = with_reference(data, alias(directory / "a.m4a"))
    (directory / "hostile.mov").write_bytes(hostile)
    with av.open(str(directory / "hostile.mov"), options={"enable_drefs": "1", "use_absolute_path": "1"}) as container:
        assert next(container.decode(audio=0)).samples  # libav follows it if it may
    assert "has no sound" in str(outcome(hostile, pool))


def box(name: bytes, payload: bytes) -> bytes:
    return struct.pack(">I4s", 8 + len(payload), name) + payload


def alias(path: Path) -> bytes:
    """An alias record, in which libav finds the path of another file."""
    text = bytes(path)
    record = bytes(4) + struct.pack(">HHH", 0, 2, 0) + b"\x04disk".ljust(28, b"\0") + bytes(12)
    record += bytes([len(path.name)]) + path.name.encode().ljust(63, b"\0") + bytes(16) + struct.pack(">hh", -1, -1)
    record += bytes(16) + struct.pack(">hH", 2, len(text)) + text + b"\0" * (len(text) % 2) + struct.pack(">hH", -1, 0)
    return box(b"alis", b"\0\0\0\0" + record)


def with_reference(data: bytes, entry: bytes) -> bytes:
    """Replace the data reference, and correct the sizes of all boxes around it."""
    old = data.index(b"url ") - 4
    grown = bytearray(data[:old] + entry + data[old + 12 :])
    for name in (b"dref", b"dinf", b"minf", b"mdia", b"trak", b"moov"):
        at = data.rindex(name, 0, old) - 4
        (size,) = struct.unpack_from(">I", grown, at)
        struct.pack_into(">I", grown, at, size + len(entry) - 12)
    return bytes(grown)


def test_counts_that_no_bytes_hold(directory, pool):
    """Headers that claim more than the file could have."""
    flac = bytearray(made(directory, "a.flac"))
    flac[21] |= 0x0F
    flac[22:26] = b"\xff" * 4
    assert "cannot have" in str(outcome(bytes(flac), pool))
    m4a = bytearray(made(directory, "a.m4a"))
    table = m4a.index(b"stsz")
    struct.pack_into(">II", m4a, table + 8, 0, 0x0FFFFFFF)
    assert isinstance(outcome(bytes(m4a), pool), TouchfsError)
    struct.pack_into(">II", m4a, table + 8, 1, 0x7FFFFFFF)  # all packets have 1 byte
    assert isinstance(outcome(bytes(m4a), pool), TouchfsError)


def test_kept_information_may_be_planted(directory, pool):
    """With a right checksum and wrong numbers: an error, or samples of this file."""
    data = made(directory, "a.mp3")
    content = Memory(data)
    kept = probe(content, pool).to_bytes()
    size = struct.unpack_from("<I", kept, 12)[0]
    text = kept[16 : 16 + size]
    for old, new in (
        (b'"coding": "mp3"', b'"coding": "opus"'),
        (b'"coding": "mp3"', b'"coding": "h264"'),
        (b'"coding": "mp3"', b'"coding": "pcm_s16le"'),
        (b'"coding": "mp3", ', b""),
        (b'"container": "mp3", "coding": "mp3"', b'"container": "hls", "coding": "from the start"'),
        (b'"channels": 1', b'"channels": 9'),
        (b'"rate": 16000', b'"rate": -1'),
        (b'"rate": 16000', b'"rate": 1e400'),
        (b'"rate": 16000', b'"rate": []'),
        (b'"f32"', b'"f99"'),
        (b'"packets": [114, 114', b'"packets": [114, 999999999999'),
        (b'"packets": [114, 114, 1105]', b'"packets": null'),
        (b"1105", b"99999999"),
        (b"1105", b"-1"),
        (b"[", b"{"),
        (b"{", b"["),
    ):
        assert old in text
        wrong = text.replace(old, new, 1)
        rest = wrong + kept[16 + size :]
        planted = kept[:8] + struct.pack("<II", zlib.crc32(rest), len(wrong)) + rest
        try:
            info = MediaInfo.from_bytes(planted, len(data))
            read_slice(content, info, 1000, 1000, pool)
        except TouchfsError as error:
            assert "\n" not in str(error)


def test_other_processes_are_not_needed_to_refuse(directory):
    """Damage in headers that touchfs reads itself starts no child."""
    with DecodePool() as pool:
        for data in (b"RIFF\0\0\0\0WAVE", b"fLaC" + bytes(100), b"OggS" + bytes(100), b"none" * 10):
            with pytest.raises(TouchfsError):
                probe(Memory(data), pool)
        assert not pool._idle
