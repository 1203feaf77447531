"""The frames of MP3 files by their headers: those that libav finds, but without reading them by libav."""

import struct

import pytest
from recordings import make
from variants import with_variants

from touchfs.core.extent import Memory
from touchfs.media.decoder import demux as demuxing
from touchfs.media.decoder.messages import Message

LAME = ("-c:a", "libmp3lame")
FILES = {
    "cd.mp3": (44100, 2, *LAME),
    "speech.mp3": (16000, 1, *LAME, "-b:a", "32k"),
    "low.mp3": (8000, 1, *LAME, "-b:a", "8k"),
    "vbr.mp3": (48000, 2, *LAME, "-q:a", "2"),
    "half.mp3": (24000, 2, *LAME, "-q:a", "6"),
    "high.mp3": (32000, 1, *LAME, "-b:a", "320k"),
    "untagged.mp3": (44100, 1, *LAME, "-write_xing", "0"),
    "named.mp3": (22050, 1, *LAME, "-write_id3v1", "1", "-metadata", "title=a title"),
    "joint.mp3": (12000, 2, *LAME, "-joint_stereo", "0", "-id3v2_version", "0"),
}
# What a file becomes, and whether its frames are still certain
CHANGES = {
    "whole": (lambda data: data, True),
    "cut": (lambda data: data[:-100], False),
    "cut in two": (lambda data: data[: len(data) // 2], False),
    "twice": (lambda data: data + data, False),
    "zeros": (lambda data: data + bytes(500), False),
    "junk": (lambda data: data[: len(data) * 2 // 3] + bytes(300) + data[len(data) * 2 // 3 :], False),
    "ID3": (lambda data: b"ID3\4\0\0\0\0\7\x68" + bytes(1000) + data, True),
    "ID3v1": (lambda data: data + b"TAG" + bytes(125), True),
    "APE": (lambda data: data + struct.pack("<8sIIII8x", b"APETAGEX", 2000, 32, 0, 1 << 31), False),
}


def listed(data):
    """What is known of the packets, by libav alone or not."""
    values, blobs = demuxing.demux(Message({"demuxer": "mp3", "size": len(data)}, []), Memory(data))
    return values, [bytes(blob) for blob in blobs]


def nothing(*_):
    """No frame is certain."""
    yield from ()


@pytest.mark.parametrize("name", with_variants([*FILES], lambda name: name in ("cd.mp3", "speech.mp3", "untagged.mp3")))
@pytest.mark.parametrize("change", CHANGES)
def test_frames_are_those_that_libav_finds(tmp_path_factory, monkeypatch, name, change):
    rate, channels, *options = FILES[name]
    path = make(tmp_path_factory.getbasetemp(), name, rate, channels, *options)
    changed, is_certain = CHANGES[change]
    data, asked = changed(path.read_bytes()), []
    read = demuxing.read_frames

    def counted(*given):
        asked.append((yield from read(*given)))
        return asked[-1]

    monkeypatch.setattr(demuxing, "read_frames", counted)
    found = listed(data)
    monkeypatch.setattr(demuxing, "read_frames", nothing)
    assert found == listed(data)
    if name not in ("untagged.mp3", "named.mp3"):  # of which more or less is certain
        assert any(asked) == is_certain


@pytest.mark.parametrize("padding", [0, 529, 530, 1681, 4095])
def test_the_samples_that_an_encoder_added_are_dropped(tmp_path_factory, monkeypatch, padding):
    rate, channels, *options = FILES["speech.mp3"]
    data = bytearray(make(tmp_path_factory.getbasetemp(), "speech.mp3", rate, channels, *options).read_bytes())
    place = data.index(b"Lavf" if b"Lavf" in data[200:] else b"Lavc", data.index(b"Info")) + 21
    data[place : place + 3] = (1105 - 529 << 12 | padding).to_bytes(3, "big")
    found = listed(bytes(data))
    monkeypatch.setattr(demuxing, "read_frames", nothing)
    assert found == listed(bytes(data))
    assert found[0]["parts"][0][0] == 1105
