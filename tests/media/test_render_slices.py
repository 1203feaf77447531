import io
import math
from pathlib import Path

import numpy as np
import pytest
import soundfile
from recordings import decode_all, ffmpeg, make, to_16_bits

from touchfs.core.errors import UsageError
from touchfs.core.extent import Memory, drive
from touchfs.format import wav
from touchfs.media.coding.sample_format import WIDTHS
from touchfs.media.slices.media_info import MediaInfo
from touchfs.media.slices.probe import probe
from touchfs.media.slices.render import render, renderer
from touchfs.media.slices.rendering import Rendering

FIRST, LENGTH = 30_001, 40_000


def wav_size(info: MediaInfo, length: int, rendering: Rendering) -> int:
    width = WIDTHS[rendering.format_of(info.channels, info.default_format)] * rendering.channels_of(info.channels)
    return 44 + rendering.length_of(length, info.rate) * width


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("recordings")


FILES = {
    "u8": ("u8.wav", ("-c:a", "pcm_u8"), "PCM_U8"),
    "s16": ("s16.wav", ("-c:a", "pcm_s16le"), "PCM_16"),
    "s24": ("s24.wav", ("-c:a", "pcm_s24le"), "PCM_24"),
    "s32": ("s32.wav", ("-c:a", "pcm_s32le"), "PCM_32"),
    "f32": ("f32.wav", ("-c:a", "pcm_f32le"), "FLOAT"),
    "f64": ("f64.wav", ("-c:a", "pcm_f64le"), "DOUBLE"),
    "flac 16": ("a.flac", ("-sample_fmt", "s16"), "PCM_16"),
    "flac 24": ("b.flac", ("-sample_fmt", "s32"), "PCM_24"),
    "mp3": ("a.mp3", (), "PCM_16"),
}


def made(directory: Path, kind: str) -> Path:
    name, options, _ = FILES[kind]
    return make(directory, name, 44100, 2, *options)


@pytest.mark.parametrize("kind", FILES)
def test_a_wav_keeps_the_bits_of_its_source(directory, pool, kind):
    path = made(directory, kind)
    content = Memory(path.read_bytes())
    info = probe(content, pool)
    data = render(content, info, FIRST, LENGTH, pool, Rendering())
    assert len(data) == wav_size(info, LENGTH, Rendering())
    assert data == render(content, info, FIRST, LENGTH, pool, Rendering())
    file = soundfile.SoundFile(io.BytesIO(data))
    assert (file.subtype, file.samplerate, file.channels, file.frames) == (FILES[kind][2], 44100, 2, LENGTH)
    (directory / "slice.wav").write_bytes(data)
    ours, whole = decode_all(directory / "slice.wav"), decode_all(path)
    assert np.array_equal(ours, (to_16_bits(whole) if kind == "mp3" else whole)[FIRST : FIRST + LENGTH])
    floats = render(content, info, FIRST, LENGTH, pool, Rendering(sample_format="f32"))
    assert soundfile.SoundFile(io.BytesIO(floats)).subtype == "FLOAT"
    assert len(floats) == wav_size(info, LENGTH, Rendering(sample_format="f32"))
    assert np.abs(soundfile.read(io.BytesIO(floats))[0] - soundfile.read(io.BytesIO(data))[0]).max() < 1 / 32768


# Each kind at a rate, and as variants at the others.
KINDS_AT_RATES = [
    pytest.param(kind, rate, marks=() if turn == place else pytest.mark.variant)
    for turn, kind in enumerate(("s16", "flac 24", "mp3", "f64"))
    for place, rate in enumerate((8000, 16000, 48000, 44100))
]


@pytest.mark.parametrize(("kind", "rate"), KINDS_AT_RATES)
def test_a_slice_is_cut_first_and_then_resampled(directory, pool, kind, rate):
    content = Memory(made(directory, kind).read_bytes())
    info = probe(content, pool)
    rendering = Rendering(rate=rate, channels="mono")
    data = render(content, info, FIRST, LENGTH, pool, rendering)
    count = math.ceil(LENGTH * rate / 44100)
    assert rendering.length_of(LENGTH, info.rate) == count
    assert len(data) == wav_size(info, LENGTH, rendering)
    assert data == render(content, info, FIRST, LENGTH, pool, rendering)
    header = drive(wav.scan(len(data)), Memory(data))
    assert (header.rate, header.channels, header.data_size) == (rate, 1, count * header.bits // 8)
    samples, _ = soundfile.read(io.BytesIO(data))
    mono = render(content, info, FIRST, LENGTH, pool, Rendering(channels="mono", sample_format="f32"))
    (directory / "mono.wav").write_bytes(mono)
    theirs = ffmpeg(directory / "mono.wav", directory / "resampled.wav", "-ar", str(rate), "-c:a", "pcm_f32le")
    expected, _ = soundfile.read(theirs)
    size = min(len(samples), len(expected))
    assert abs(len(samples) - len(expected)) <= 1 + rate // 1000
    assert np.abs(samples[:size] - expected[:size]).max() < 2 / 32768


def test_channels(directory, pool):
    content = Memory(made(directory, "s16").read_bytes())
    info = probe(content, pool)
    both, _ = soundfile.read(io.BytesIO(render(content, info, 0, 1000, pool, Rendering())), dtype="int16")
    for number in (0, 1):
        data = render(content, info, 0, 1000, pool, Rendering(channels=str(number)))
        assert np.array_equal(soundfile.read(io.BytesIO(data), dtype="int16")[0], both[:, number])
    data = render(content, info, 0, 1000, pool, Rendering(channels="mono"))
    assert np.array_equal(soundfile.read(io.BytesIO(data), dtype="int16")[0], np.rint(both.mean(1)))
    with pytest.raises(UsageError, match="the recording has 2"):
        render(content, info, 0, 1000, pool, Rendering(channels="2"))


@pytest.mark.parametrize("kind", ["u8", "s16", "s24", "flac 16", "flac 24", "mp3"])
def test_flac_holds_the_same_samples(directory, pool, kind):
    content = Memory(made(directory, kind).read_bytes())
    info = probe(content, pool)
    data = render(content, info, FIRST, LENGTH, pool, Rendering(file="flac"))
    assert data == render(content, info, FIRST, LENGTH, pool, Rendering(file="flac"))
    assert data[:4] == b"fLaC"
    plain = render(content, info, FIRST, LENGTH, pool, Rendering())
    ours, theirs = (soundfile.read(io.BytesIO(each), dtype="int32")[0] for each in (data, plain))
    assert np.array_equal(ours, theirs)


def test_what_a_rendering_cannot_be(directory, pool):
    for wrong in ({"rate": 0}, {"channels": "left"}, {"channels": "-1"}, {"file": "mp3"}, {"sample_format": "s8"}):
        with pytest.raises(UsageError):
            Rendering(**wrong)
    with pytest.raises(UsageError, match="FLAC has no floats"):
        Rendering(file="flac", sample_format="f32")
    for kind in ("s32", "f32"):
        content = Memory(made(directory, kind).read_bytes())
        with pytest.raises(UsageError, match="up to 24 bits"):
            render(content, probe(content, pool), 0, 10, pool, Rendering(file="flac"))


def test_a_long_slice_keeps_its_rate(directory, pool, monkeypatch):
    monkeypatch.setattr("touchfs.media.slices.render.SAMPLES_MAX", 100_000)
    content = Memory(made(directory, "s16").read_bytes())
    info = probe(content, pool)
    for rendering in (Rendering(rate=16000), Rendering(file="flac")):
        with pytest.raises(UsageError, match="choose a shorter"):
            render(content, info, 0, LENGTH, pool, rendering)


def test_an_empty_slice_is_a_file(directory, pool):
    content = Memory(made(directory, "mp3").read_bytes())
    info = probe(content, pool)
    for rendering in (Rendering(), Rendering(rate=8000), Rendering(channels="mono"), Rendering(file="flac")):
        data = render(content, info, 100, 0, pool, rendering)
        if rendering.file == "wav":
            assert len(data) == wav_size(info, 0, rendering) == 44


def test_the_renderer_names_its_libraries():
    assert renderer() == renderer()
    assert "av " in renderer()
    assert "soundfile " in renderer()
