"""How long a recording is, by its first bytes: as soundfile has it, and as `wav.scan` has it of WAV."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from touchfs.containers.shar.write import audio
from touchfs.core.errors import FormatError
from touchfs.core.extent import Memory, drive
from touchfs.format import wav
from touchfs.media import duration


class Short(Memory):
    """The first answer has as many bytes as `first`, as where a tar was read ahead."""

    def __init__(self, data: bytes, first: int) -> None:
        super().__init__(data)
        self.first = first
        self.reads = 0

    def read(self, offset: int, length: int) -> bytes:
        self.reads += 1
        return bytes(super().read(offset, min(length, self.first) if offset == 0 else length))


def encoded(form: str, subtype: str | None, frames: int, rate: int, channels: int) -> bytes:
    file = io.BytesIO()
    noise = np.random.default_rng(0).integers(-99, 99, (frames, channels), np.int16)
    soundfile.write(file, noise, rate, subtype, format=form)
    return file.getvalue()


FORMS = [
    ("WAV", "PCM_16"),
    ("WAV", "PCM_24"),
    ("WAV", "FLOAT"),
    ("WAV", "ULAW"),
    ("WAVEX", None),
    ("RF64", None),
    ("FLAC", "PCM_16"),
    ("FLAC", "PCM_24"),
]
SOUNDS = [(16000, 1, 1234), (44100, 2, 1), (8000, 5, 777), (8000, 1, 0)]
FIRST = [44, 50, 512]


# Each form with each sound, and with each first length that is read.
@pytest.mark.parametrize(
    ("form", "subtype", "rate", "channels", "frames", "first"),
    [
        pytest.param(*form, *sound, first, marks=[] if FIRST[(number + place) % 3] == first else [pytest.mark.variant])
        for number, form in enumerate(FORMS)
        for place, sound in enumerate(SOUNDS)
        for first in FIRST
    ],
)
def test_lengths_are_those_that_soundfile_tells(
    form: str, subtype: str | None, rate: int, channels: int, frames: int, first: int
) -> None:
    if form == "FLAC" and not frames:
        return  # soundfile writes no bytes at all
    data = encoded(form, subtype, frames, rate, channels)
    source = Short(data, first)
    found = drive(duration.scan(len(data)), source)
    assert found[:3] == (rate, channels, frames)
    assert found.sample_format == {"PCM_24": "s24", "FLOAT": "f32"}.get(subtype, "s16")
    if form == "FLAC" or subtype == "ULAW":
        assert found.pcm == 0
    else:
        assert data[found.pcm - 8 : found.pcm - 4] == b"data"
    if subtype == "PCM_16" and frames:
        assert source.reads == 1


def chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)


def riff(*chunks: bytes) -> bytes:
    return chunk(b"RIFF", b"WAVE" + b"".join(chunks))


FORMAT = chunk(b"fmt ", struct.pack("<HHIIHH", 1, 1, 8000, 16000, 2, 16))


def test_what_comes_before_the_data_is_passed_over() -> None:
    data = riff(chunk(b"JUNK", bytes(10_001)), FORMAT, chunk(b"LIST", bytes(3)), chunk(b"data", bytes(100)))
    assert drive(duration.scan(len(data)), Short(data, 512)) == (8000, 1, 50, "s16", len(data) - 100)


def test_a_length_that_was_never_filled_in_is_that_of_the_rest() -> None:
    for size in (0, 2**32 - 1, 0x7FFFF000, 2_000_000_000, 2**31 - 1, 2**32 - 41, 200):
        data = bytearray(riff(FORMAT, chunk(b"data", bytes(100))))
        data[4:8] = data[40:44] = struct.pack("<I", size)
        assert drive(duration.scan(len(data)), Short(bytes(data), 512)) == (8000, 1, 50, "s16", len(data) - 100)


@pytest.mark.parametrize("bits", [8, 12, 16, 20, 24, 32])
def test_samples_of_any_width_take_whole_bytes(bits: int) -> None:
    """Also for the writer of Shar, which needs the length of a recording for its manifest."""
    width = (bits + 7) // 8 * 2
    fmt = struct.pack("<HHIIHH", wav.PCM, 2, 16000, 16000 * width, width, bits)
    data = b"WAVEfmt " + struct.pack("<I", len(fmt)) + fmt + b"data" + struct.pack("<I", 1000 * width)
    data = b"RIFF" + struct.pack("<I", len(data) + 1000 * width) + data + bytes(1000 * width)
    found = drive(duration.scan(len(data)), Memory(data))
    assert found is not None
    assert found.frames == soundfile.info(io.BytesIO(data)).frames == audio.scan(data).num_samples == 1000


def test_a_coding_whose_frames_are_not_bytes_does_not_tell() -> None:
    adpcm = chunk(b"fmt ", struct.pack("<HHIIHH", 2, 1, 8000, 4055, 256, 4))
    data = riff(adpcm, chunk(b"data", bytes(256)))
    assert drive(duration.scan(len(data)), Short(data, 512)) is None


@given(st.binary(max_size=60), st.integers(0, 2**40), st.sampled_from([b"", b"RIFF", b"fLaC", b"fLaC\0\0\0\x22"]))
def test_any_bytes_are_a_length_or_an_error(tail: bytes, size: int, head: bytes) -> None:
    data = (head + tail)[:size]
    try:
        found = drive(duration.scan(size), Short(data, 512))
    except FormatError:
        return
    assert found is None or (found.rate > 0 and found.channels > 0 and found.frames >= 0)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=3))
def test_the_short_way_says_what_the_long_one_does(changes: list[tuple[int, int]]) -> None:
    data = bytearray(encoded("WAV", "PCM_16", 100, 8000, 2))
    for place, value in changes:
        data[place] = value
    try:
        told = drive(wav.scan_cut(len(data)), Memory(bytes(data)))
    except FormatError:
        told = None
    try:
        found = drive(duration.scan(len(data)), Short(bytes(data), 512))
    except FormatError:
        found = None
    if data[:4] != b"fLaC":
        width = (told.bits + 7) // 8 if told else 0
        is_pcm = told and told.bits >= 8 and (told.codec, width) in {*((1, n) for n in (1, 2, 3, 4)), (3, 4), (3, 8)}
        if told and (is_pcm or (told.codec in (6, 7) and told.bits == 8)):
            assert (*found[:3], found.pcm) == (
                *(told.rate, told.channels, told.data_size // (width * told.channels)),
                told.data_offset if is_pcm else 0,
            )
        else:
            assert found is None


def test_real_recordings(tmp_path: Path) -> None:
    for path in (Path(__file__).parent.parent / "data" / "speech").rglob("*.wav"):
        with open(path, "rb") as file:
            data = file.read()
        assert drive(duration.scan(len(data)), Short(data, 512)).frames == soundfile.info(path).frames
