"""Pieces of recordings at another rate, with other channels, as FLAC: cut first, then rendered, and made once."""

import io
import math
from itertools import cycle
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import soundfile
from conformance import MemorySource, check_reads
from recordings import decode_all, make, to_16_bits
from spans import span_detail

from touchfs.core.errors import FormatError
from touchfs.core.extent import Extent
from touchfs.form.base import Form
from touchfs.form.recordings import Decoded, Pcm, piece_detail
from touchfs.form.renderings import Rendered
from touchfs.form.unmeasured import Unmeasured
from touchfs.limits import LIMITS
from touchfs.media.slices.rendering import Rendering
from touchfs.source.data import DATA
from touchfs.source.scratch.store import DIRECTORY_VARIABLE, Scratch

RATE, FIRST, LENGTH = 44100, 30_001, 40_000
SOURCES = ("pcm", "s16.wav", "s24.flac", "a.mp3", "unmeasured s16.wav", "unmeasured a.mp3")
OPTIONS = {"s16.wav": ("-c:a", "pcm_s16le"), "s24.flac": ("-sample_fmt", "s32"), "a.mp3": ("-b:a", "64k")}
Piece = tuple[Form, Extent, bytes]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scratch:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "scratch"))
    return Scratch(str(tmp_path / "scratch"))


def piece(directory: Path, source: str) -> Piece:
    """A form, the bytes and the detail of the same samples."""
    kind = source.rpartition(" ")[2].replace("pcm", "s16.wav")
    path = make(directory, kind, RATE, 2, *OPTIONS[kind])
    file = DATA.open(str(path), DATA.stat(str(path)).fingerprint)
    if source == "pcm":
        return Pcm(RATE, 2), Extent(file, path.stat().st_size - 4 * 9 * RATE + 4 * FIRST, 4 * LENGTH), b""
    whole = Extent(file, 0, path.stat().st_size)
    if source.startswith("unmeasured"):
        return Unmeasured(), whole, span_detail(FIRST / RATE, (FIRST + LENGTH) / RATE)
    return Decoded(RATE, 2, "s24" if kind == "s24.flac" else "s16"), whole, piece_detail(FIRST, LENGTH)


def shown(found: Piece, rendering: Rendering) -> bytes:
    form, extent, detail = found
    rendered = Rendered(form, rendering)
    content = rendered.content(extent, detail, LIMITS)
    data = bytes(content.read(0, content.size))
    assert rendered.known_size(extent, detail, LIMITS) == len(data)
    assert rendered.size(extent.size, detail) in (len(data), None)
    return data


def exact_cut(directory: Path, source: str) -> np.ndarray[Any, Any]:
    """The samples as floats."""
    whole = decode_all(directory / source.rpartition(" ")[2].replace("pcm", "s16.wav"))[FIRST : FIRST + LENGTH]
    return whole if whole.dtype == np.float32 else whole / np.float64(np.iinfo(whole.dtype).max + 1)


def resampled(samples: np.ndarray[Any, Any], rate: int) -> np.ndarray[Any, Any]:
    """By libswresample, from nothing but these samples of a channel."""
    resampler = av.AudioResampler("dbl", "mono", rate)
    frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples, np.float64)[None], "dbl", "mono")
    frame.sample_rate = RATE
    blocks = [*resampler.resample(frame), *resampler.resample(None)]
    made = np.concatenate([block.to_ndarray()[0] for block in blocks])
    return np.resize(np.append(made, np.zeros(99)), math.ceil(LENGTH * rate / RATE))


@pytest.mark.parametrize(("source", "rate"), [*zip(SOURCES, cycle((8000, 16000, 48000)), strict=False)])
def test_rate_is_that_of_the_exact_cut_resampled(directory: Path, source: str, rate: int) -> None:
    data = shown(piece(directory, source), Rendering(rate=rate))
    file = soundfile.SoundFile(io.BytesIO(data))
    assert (file.samplerate, file.channels, file.frames) == (rate, 2, math.ceil(LENGTH * rate / RATE))
    assert file.subtype == ("PCM_24" if "flac" in source else "PCM_16")
    samples = file.read()
    for channel in range(2):
        expected = resampled(exact_cut(directory, source)[:, channel], rate)
        step = 2.0**-23 if "flac" in source else 2.0**-15
        # It is rounded to the nearest; what 32-bit floats lose before that is far below half a step.
        assert np.abs(samples[:, channel] - expected).max() <= 0.51 * step


@pytest.mark.parametrize("source", SOURCES)
def test_channels(directory: Path, source: str) -> None:
    found, cut = piece(directory, source), exact_cut(directory, source)
    for number in (0, 1):
        samples, _ = soundfile.read(io.BytesIO(shown(found, Rendering(channels=str(number)))))
        assert np.abs(samples - cut[:, number]).max() <= (2**-16 if "mp3" in source else 0)
    samples, rate = soundfile.read(io.BytesIO(shown(found, Rendering(channels="mono"))))
    assert rate == RATE
    assert np.abs(samples - cut.mean(1, dtype=np.float64)).max() <= (2**-24 if "flac" in source else 2**-16) * 1.01
    content = Rendered(found[0], Rendering(channels="2")).content(*found[1:], LIMITS)
    with pytest.raises(FormatError, match="channels=2: the recording has 2, the first one is 0"):
        content.read(0, 100)


@pytest.mark.parametrize("source", SOURCES)
def test_flac_has_the_samples_of_the_wav(directory: Path, source: str) -> None:
    found = piece(directory, source)
    assert Rendered(found[0], Rendering(file="flac")).known_size(*found[1:], LIMITS) is None
    data = shown(found, Rendering(file="flac"))
    assert data[:4] == b"fLaC"
    plain = shown(found, Rendering())
    flac, wav = (soundfile.read(io.BytesIO(each), dtype="int32")[0] for each in (data, plain))
    assert np.array_equal(flac, wav)
    mono, _ = soundfile.read(
        io.BytesIO(shown(found, Rendering(rate=8000, channels="mono", file="flac"))), dtype="int32"
    )
    wav, _ = soundfile.read(io.BytesIO(shown(found, Rendering(rate=8000, channels="mono"))), dtype="int32")
    assert np.array_equal(mono, wav)


@pytest.mark.parametrize("source", SOURCES)
def test_floats_are_not_rounded(directory: Path, source: str) -> None:
    samples, _ = soundfile.read(
        io.BytesIO(shown(piece(directory, source), Rendering(sample_format="f32"))), dtype="float32"
    )
    cut = exact_cut(directory, source)
    assert np.array_equal(samples, cut.astype(np.float32))
    if "mp3" in source:
        assert not np.array_equal(samples, to_16_bits(cut) / np.float32(2**15))


@pytest.mark.parametrize("source", SOURCES)
def test_what_changes_nothing_is_the_file_itself(directory: Path, source: str) -> None:
    form, extent, detail = piece(directory, source)
    content = form.content(extent, detail, LIMITS)
    assert shown((form, extent, detail), Rendering(rate=RATE)) == bytes(content.read(0, content.size))


def test_any_range(directory: Path) -> None:
    form, extent, detail = piece(directory, "a.mp3")
    for rendering in (Rendering(rate=8000), Rendering(file="flac", channels="0")):
        content = Rendered(form, rendering).content(extent, detail, LIMITS)
        check_reads(content, shown((form, extent, detail), rendering))


def test_it_is_rendered_once(directory: Path, scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is the same if it is rendered twice."""
    found = piece(directory, "a.mp3")
    first = shown(found, Rendering(rate=8000, file="flac"))
    monkeypatch.setattr("touchfs.media.slices.render.render_samples", lambda *_: pytest.fail("it is rendered again"))
    assert shown(found, Rendering(rate=8000, file="flac")) == first
    monkeypatch.undo()
    scratch.remove(scratch.values())
    assert shown(found, Rendering(rate=8000, file="flac")) == first


def test_its_header_is_known_before(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    form, extent, detail = piece(directory, "s24.flac")
    whole = shown((form, extent, detail), Rendering(rate=8000))
    monkeypatch.setattr(Rendered, "render", lambda *_: pytest.fail("nothing needs to be rendered"))
    content = Rendered(form, Rendering(rate=8000)).content(extent, detail, LIMITS)
    assert bytes(content.read(0, 44)) == whole[:44]
    assert content.read_nowait(0, 100) is None


@pytest.mark.parametrize("source", ["s16.wav", "s24.flac", "a.mp3"])
def test_after_the_end_is_silence(directory: Path, source: str) -> None:
    """A manifest may say that a recording is longer than it is."""
    form, extent, _ = piece(directory, source)
    last = piece_detail(9 * RATE - 100, 1000)
    samples, _ = soundfile.read(io.BytesIO(shown((form, extent, last), Rendering(channels="1"))), dtype="int32")
    expected, _ = soundfile.read(io.BytesIO(bytes(form.content(extent, last, LIMITS).read(0, 10**6))), dtype="int32")
    assert np.array_equal(samples, expected[:, 1]) and len(samples) == 1000 and not samples[100:].any()


def test_hours_are_not_rendered() -> None:
    """Before they are read."""
    hour = Extent(MemorySource(bytes(100)), 0, 2 * 3600 * RATE)
    content = Rendered(Pcm(RATE), Rendering(rate=8000)).content(hour, b"", LIMITS)
    assert content.size == 44 + 2 * 3600 * 8000
    with pytest.raises(FormatError, match="67,108,864 bytes of samples are rendered: choose a smaller max"):
        content.read(44, 1)


@pytest.mark.parametrize("form", [Decoded(RATE, 2), Unmeasured()])
def test_a_damaged_recording_is_an_error(form: Form) -> None:
    detail = span_detail(0, 1) if isinstance(form, Unmeasured) else piece_detail(0, RATE)
    extent = Extent(MemorySource(b"no recording"), 0, 12)
    rendered = Rendered(form, Rendering(rate=8000, file="flac"))
    assert rendered.known_size(extent, detail, LIMITS) is None
    with pytest.raises(FormatError, match="not a recording"):
        rendered.content(extent, detail, LIMITS).read(0, 1)
