"""Damaged recordings and endless annotations in a tar, read through the tree by a process of its own, as a worker is.

Each recording is a noise of its own, so that whoever hears another one's knows it.
"""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
import pytest
import soundfile
from tars import write_tar

from touchfs.limits import LIMITS

RATE, SECONDS = 8000, 2
CODINGS = {
    "wav": ("WAV", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
    "ogg": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
    "m4a": (),
}
INTACT = "intact"
# A machine that is busy counts, too.
SLACK = 15.0
# Of half a second of two. Noises are like each other by 0.1.
HEARD, NOT_HEARD = 0.4, 0.25
MEGABYTES_MAX = 800
READER = Path(__file__).with_name("tree_reader.py")


def flip(count: int, until: int | None = None) -> Callable[[bytes, random.Random], bytes]:
    def damage(data: bytes, dice: random.Random) -> bytes:
        damaged = bytearray(data)
        for _ in range(count):
            damaged[dice.randrange(min(until or len(data), len(data)))] ^= 1 << dice.randrange(8)
        return bytes(damaged)

    return damage


def cut(data: bytes, dice: random.Random) -> bytes:
    return data[: dice.randrange(len(data))]


def hole(data: bytes, dice: random.Random) -> bytes:
    first = dice.randrange(len(data))
    return data[:first] + data[first + dice.randrange(3000) :]


def zeros(data: bytes, dice: random.Random) -> bytes:
    first, count = dice.randrange(len(data)), dice.randrange(3000)
    return (data[:first] + bytes(count) + data[first + count :])[: len(data)]


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    INTACT: lambda data, _: data,
    "1 bit": flip(1),
    "500 bits": flip(500),
    "2 bits at the begin": flip(2, 200),
    "99 bits at the begin": flip(99, 1000),
    "cut": cut,
    "a hole": hole,
    "zeros": zeros,
    "twice": lambda data, _: data + data,
}
NAMES = [f"{coding}, {damage}" for coding in CODINGS for damage in DAMAGES]


def noise(number: int) -> np.ndarray[Any, Any]:
    """From 300 to 2,500 Hz, which all codings keep."""
    spectrum = np.zeros(RATE * SECONDS // 2 + 1, complex)
    band = slice(300 * SECONDS, 2500 * SECONDS)
    spectrum[band] = np.exp(2j * np.pi * np.random.default_rng(number).random(band.stop - band.start))
    samples = np.fft.irfft(spectrum)
    return np.asarray(0.8 * samples / np.abs(samples).max())


def coded(samples: np.ndarray[Any, Any], coding: str) -> bytes:
    file = io.BytesIO()
    if CODINGS[coding]:
        form, subtype = CODINGS[coding]
        soundfile.write(file, samples, RATE, subtype, format=form)
        return file.getvalue()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=RATE, layout="mono")
        stream.bit_rate = 48_000
        frame = av.AudioFrame.from_ndarray(samples.astype("f4").reshape(1, -1), "fltp", "mono")
        frame.sample_rate = RATE
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return file.getvalue()


class Outcome(NamedTuple):
    """What reading a file came to: its bytes or the error, and what it took in seconds."""

    path: str
    error: str | None
    seconds: float


class Reading(NamedTuple):
    """What a process found: an outcome for each file, the ERROR.txt, and the megabytes that it had at most."""

    outcomes: list[Outcome]
    report: str
    megabytes: int


def read_all(shard: Path, kept: Path) -> Reading:
    """Read segments in a process of its own, which keeps their files in `kept`, and must survive."""
    kept.mkdir()
    done = subprocess.run([sys.executable, READER, shard, kept], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    *lines, last = map(json.loads, done.stdout.splitlines())
    return Reading([Outcome(*line) for line in lines], *last)


def likeness(wav: bytes, spectra: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """How much is heard of each noise, at any place of it: 1 for all of it, 0.7 for half of it."""
    samples, rate = soundfile.read(io.BytesIO(wav), dtype="float32", always_2d=True)
    bins = spectra.shape[1]
    size = 2 * (bins - 1)
    found = np.fft.rfft(samples[:, 0], size * (rate // RATE if rate % RATE == 0 else 1))[:bins]
    energy = np.linalg.norm(found)
    if not energy:
        return np.zeros(len(spectra))
    peaks = np.abs(np.fft.irfft(found / energy * spectra.conj())).max(1)
    return np.asarray(peaks * size / 2)


def spectra_of(numbers: Iterable[int]) -> np.ndarray[Any, Any]:
    """The noises as `likeness` takes them."""
    size = 1 << (2 * RATE * SECONDS - 1).bit_length()
    spectra = np.fft.rfft([noise(number) for number in numbers], size)
    return np.asarray(spectra / np.linalg.norm(spectra, axis=1, keepdims=True), np.complex64)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_damaged_recordings_are_errors_or_their_own_sound(tmp_path: Path, seed: int) -> None:
    dice, members, spectra = random.Random(seed), {}, spectra_of(range(len(NAMES)))
    segments = json.dumps({"segments": [{"start": 0.25, "end": 1.25}, {"start": 1.5}]}).encode()
    for number in dice.sample(range(len(NAMES)), len(NAMES)):
        coding, damage = NAMES[number].split(", ")
        members[f"{number}.{coding}"] = DAMAGES[damage](coded(noise(number), coding), dice)
        members[f"{number}.json"] = segments
    read = read_all(write_tar(tmp_path / "x.tar", members), tmp_path / "kept")
    heard = 0
    for path, error, seconds in read.outcomes:
        number = int(path.split("/")[0])
        told = f"{NAMES[number]}: {path}: {error}"
        assert seconds < LIMITS.decode_seconds + SLACK, told
        if error is not None:
            assert INTACT not in told
            assert "\n" not in error
            continue
        like = likeness((tmp_path / "kept" / path.replace("/", "-")).read_bytes(), spectra)
        own, like[number] = like[number], 0
        assert like.max() < NOT_HEARD, told
        assert own > HEARD or INTACT not in told
        heard += own > HEARD
    assert len(read.outcomes) > 1.8 * len(NAMES)  # a recording with a damaged header may not be cut
    assert len(CODINGS) * 2 < heard < len(read.outcomes)
    assert read.megabytes < MEGABYTES_MAX


LONG: dict[str, Callable[[int], str]] = {
    "srt": lambda lines: "".join(f"{i}\n0:0:0,0 --> 0:0:1,0\n{LINE * 22}\n" for i in range(lines // 25)),
    "vtt": lambda lines: "WEBVTT\n\n" + "00:00.000 --> 00:01.000\nx\n\n" * (lines // 3),
    "TextGrid": lambda lines: (
        '"ooTextFile"\n"TextGrid"\n0\n2\n<exists>\n1\n"IntervalTier"\n"w"\n0\n2\n'
        + f"{lines // 3}\n"
        + '0\n1\n"x"\n' * (lines // 3)
    ),
    "txt": lambda lines: "0.5\t1.0\tx\n" * lines,
    "rttm": lambda lines: "SPEAKER r 1 1 1 <NA> <NA> a <NA> <NA>\n" * lines,
    "eaf": lambda lines: (
        "<ANNOTATION_DOCUMENT>\n<TIME_ORDER>" + '<TIME_SLOT TIME_SLOT_ID="1" TIME_VALUE="1"/>\n' * lines
    ),
    "json": lambda lines: '{"segments":[\n' + '{"start":1},\n' * lines + "{}]}",
}
LINE = "x\n"


@pytest.mark.parametrize(
    ("kinds", "lines"),
    [(["txt"], 430_000), pytest.param(list(LONG), 1_000_000, marks=pytest.mark.soak)],
    ids=["some", "all, of a million lines"],
)
def test_endless_annotations_are_read_or_refused(tmp_path: Path, kinds: list[str], lines: int) -> None:
    """And the samples beside them are served. Each limit by itself is in `tests/segments`."""
    members = {}
    for number, kind in enumerate(kinds):
        for key in (kind, f"{kind}-beside"):
            members[f"{key}.flac"] = coded(noise(number), "flac")
        members[f"{kind}.{kind}"] = LONG[kind](lines).encode()
        members[f"{kind}-beside.json"] = json.dumps({"segments": [{"start": 0.5, "end": 1.5}]}).encode()
    read = read_all(write_tar(tmp_path / "x.tar", members), tmp_path / "kept")
    spectra = spectra_of(range(len(kinds)))
    for path, error, _ in read.outcomes:
        assert error is None, path
        like = likeness((tmp_path / "kept" / path.replace("/", "-")).read_bytes(), spectra)
        assert int(like.argmax()) == kinds.index(path.split("/")[0].removesuffix("-beside"))
        assert like.max() > HEARD
    of_srt = [f"srt/{number}.wav" for number in ("0000", "0001", "9998", "9999") if "srt" in kinds]
    assert {each.path for each in read.outcomes} == {*of_srt, *(f"{kind}-beside/0000.wav" for kind in kinds)}
    for kind in kinds:
        assert (f"no segments are read from its {kind}: " in read.report) == (kind != "srt")
    assert read.megabytes < MEGABYTES_MAX
