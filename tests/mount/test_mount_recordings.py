"""Tools that know nothing of touchfs read a tar of coded recordings through the kernel: whole members and segments."""

from __future__ import annotations

import json
import os
import random
import subprocess
import tarfile
import wave
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import soundfile
from mounts import Mount
from recordings import decode_by_command, make
from tars import add
from variants import with_variants

Decoded = Callable[[str], np.ndarray]
SPANS = [(0.5, 1.5), (2.0, 4.25), (6.25, 9.0)]


class Coding(NamedTuple):
    """How a recording is made, and how many bits a segment of it has."""

    rate: int
    channels: int
    bits: int
    options: tuple[str, ...]


CODINGS = {
    "a.wav": Coding(48000, 2, 16, ("-c:a", "pcm_s16le")),
    "b.flac": Coding(16000, 1, 16, ("-sample_fmt", "s16")),
    "c.flac": Coding(44100, 2, 24, ("-sample_fmt", "s32", "-bits_per_raw_sample", "24")),
    "d.mp3": Coding(48000, 2, 16, ("-b:a", "96k")),
    "e.ogg": Coding(16000, 1, 16, ("-c:a", "libvorbis")),
    "f.opus": Coding(48000, 1, 16, ("-c:a", "libopus")),
    "g.m4a": Coding(44100, 1, 16, ("-c:a", "aac", "-aac_pns", "0")),
}
LOSSLESS = ("a.wav", "b.flac", "c.flac")
SEGMENTS = [(name, number) for name in CODINGS for number in range(len(SPANS))]
# Each span once: `tests/media` cuts all codings.
IN_SHORT = [("d.mp3", 0), ("b.flac", 1), ("f.opus", 2)]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("recordings")
    return {name: make(place, name, each.rate, each.channels, *each.options) for name, each in CODINGS.items()}


@pytest.fixture(scope="module")
def of_recordings(recordings: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    place = tmp_path_factory.mktemp("mounted")
    segments = json.dumps({"segments": [{"start": start, "end": end} for start, end in SPANS]}).encode()
    with tarfile.open(place / "x.tar", "w") as tar:
        for name, path in recordings.items():
            tar.add(path, name)
            add(tar, f"{name[0]}.json", segments)
    mount = Mount(place / "mnt", place / "x.tar")
    yield mount
    mount.end()


@pytest.fixture(scope="module")
def decoded(recordings: dict[str, Path]) -> Decoded:
    """A recording as the command decodes it to 16 bits."""
    return cache(lambda name: decode_by_command(recordings[name], CODINGS[name].channels))


def path_of(mount: Mount, name: str, number: int) -> Path:
    return mount.path / "segments/x" / name[0] / f"{number:04d}.wav"


def expected(decoded: Decoded, name: str, number: int) -> np.ndarray:
    first, end = (round(seconds * CODINGS[name].rate) for seconds in SPANS[number])
    return decoded(name)[first:end]


def run(*command: str | Path) -> bytes:
    """What a tool writes. It complains of nothing."""
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stderr == b""
    return done.stdout


def near(name: str, samples: np.ndarray, wanted: np.ndarray) -> None:
    """The command has another version of libav than slices, which may round lossy codings otherwise."""
    assert samples.shape == wanted.shape
    assert np.abs(samples.astype(int) - wanted).max() <= (0 if name in LOSSLESS else 1)


@pytest.mark.parametrize(
    ("name", "number"),
    [pytest.param(*each, marks=[] if each in IN_SHORT else [pytest.mark.variant]) for each in SEGMENTS],
)
def test_every_reader_sees_the_sound_of_a_segment(of_recordings, decoded, name, number):
    path, coding = path_of(of_recordings, name, number), CODINGS[name]
    wanted = expected(decoded, name, number)
    samples = np.frombuffer(run("ffmpeg", "-v", "error", "-i", path, "-f", "s16le", "-"), "<i2")
    near(name, samples.reshape(-1, coding.channels), wanted)
    (stream,) = json.loads(run("ffprobe", "-v", "error", "-show_streams", "-of", "json", path))["streams"]
    assert (stream["codec_name"], stream["channels"]) == (f"pcm_s{coding.bits}le", coding.channels)
    assert (stream["sample_rate"], stream["duration_ts"]) == (str(coding.rate), len(wanted))
    assert [int(run("soxi", option, path)) for option in ("-s", "-r", "-c", "-b")] == [
        len(wanted),
        coding.rate,
        coding.channels,
        coding.bits,
    ]
    raw = run("sox", path, "-t", "raw", "-")
    with wave.open(str(path)) as file:
        assert file.getparams()[:4] == (coding.channels, coding.bits // 8, coding.rate, len(wanted))
        assert file.readframes(len(wanted)) == raw
    samples, rate = soundfile.read(path, dtype="int32", always_2d=True)
    near(name, samples >> 16, wanted)
    assert rate == coding.rate


@pytest.mark.parametrize("name", CODINGS)
def test_seeks_read_the_samples_at_their_place(of_recordings, name):
    """Of a segment that nobody has read, in any order, by the readers that seek."""
    coding, chooser = CODINGS[name], random.Random(name)
    path = path_of(of_recordings, name, 2)
    whole, _ = soundfile.read(path, dtype="int32", always_2d=True)
    with soundfile.SoundFile(path) as file, wave.open(str(path)) as other:
        for _ in range(30):
            first = chooser.randrange(len(whole))
            count = chooser.randrange(1, coding.rate // 2)
            file.seek(first)
            assert np.array_equal(file.read(count, dtype="int32", always_2d=True), whole[first : first + count])
            other.setpos(first)
            data = np.frombuffer(other.readframes(count), np.uint8).reshape(-1, coding.bits // 8)
            wide = np.zeros((len(data), 4), np.uint8)
            wide[:, 4 - coding.bits // 8 :] = data
            assert np.array_equal(wide.view("<i4").reshape(-1, coding.channels), whole[first : first + count])
    start = f"{1000 / coding.rate:.9f}"
    part = run("ffmpeg", "-v", "error", "-ss", start, "-i", path, "-f", "s32le", "-")
    assert part == whole[1000:].astype("<i4").tobytes()
    part = run("sox", path, "-b", "32", "-e", "signed", "-t", "raw", "-", "trim", "1000s", "500s")
    assert part == whole[1000:1500].astype("<i4").tobytes()


@pytest.mark.parametrize("name", with_variants(CODINGS, lambda name: name in ("b.flac", "d.mp3")))
def test_whole_recordings_are_those_that_were_stored(of_recordings, recordings, name):
    stored, shown = recordings[name], of_recordings.path / "shards/x" / name
    run("cmp", stored, shown)
    probed = ["ffprobe", "-v", "error", "-show_streams", "-show_packets", "-of", "json"]
    assert run(*probed, shown) == run(*probed, stored)
    decode = ["ffmpeg", "-v", "error", "-ss", "3.3", "-t", "2", "-i"]
    assert run(*decode, shown, "-f", "s16le", "-") == run(*decode, stored, "-f", "s16le", "-")


def test_copies_are_equal(of_recordings, tmp_path):
    run("cp", "-r", of_recordings.path / "segments/x", tmp_path / "x")
    for name, number in SEGMENTS:
        shown = path_of(of_recordings, name, number)
        copy = tmp_path / "x" / name[0] / shown.name
        run("cmp", shown, copy)
        assert shown.stat().st_size == copy.stat().st_size > 44
    assert sorted(os.listdir(tmp_path / "x")) == [name[0] for name in CODINGS]


def test_sox_joins_segments_of_several_codings(of_recordings, decoded, tmp_path):
    """Of one rate and number of channels."""
    paths = [path_of(of_recordings, name, 0) for name in ("a.wav", "d.mp3")]
    run("sox", *paths, tmp_path / "joined.wav")
    samples, _ = soundfile.read(tmp_path / "joined.wav", dtype="int16")
    wanted = np.concatenate([expected(decoded, name, 0) for name in ("a.wav", "d.mp3")])
    assert samples.shape == wanted.shape
    assert np.abs(samples.astype(int) - wanted).max() <= 1
