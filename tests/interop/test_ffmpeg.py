"""The installed ffmpeg is the oracle: the command that TouchNet's make_data runs, and what we make of the same file.

With the same libav as PyAV's the bytes are the same. With another, decoders of lossy formats and float arithmetic
compiled otherwise may differ by 1, in equally many samples.
"""

import json
import re
import subprocess
from itertools import chain, cycle
from pathlib import Path

import av
import numpy as np
import pytest
from recordings import bytes_by_command

from touchfs.bulk.pack.touchnet import pack_touch
from touchfs.media.audio import Arithmetic, decode

SOUND = "aevalsrc=0.4*sin(2*PI*(200+300*t)*t)+0.2*random(0)|0.3*sin(2*PI*(900-50*t)*t)-0.1*random(1):s=44100:d=2.3"
PICTURE = ("-f", "lavfi", "-i", "testsrc=d=2:r=10:s=64x64")

# How each is made from 2.3 seconds of 44.1 kHz stereo
FILES = {
    "44k-stereo.wav": (),
    "8k-mono.wav": ("-ac", "1", "-ar", "8000"),
    "16k-stereo.wav": ("-ar", "16000"),
    "48k-mono.wav": ("-ac", "1", "-ar", "48000"),
    "24-bit.wav": ("-c:a", "pcm_s24le"),
    "32-bit.wav": ("-c:a", "pcm_s32le", "-ar", "16000", "-ac", "1"),
    "float.wav": ("-c:a", "pcm_f32le"),
    "double.wav": ("-c:a", "pcm_f64le", "-ar", "48000"),
    "8-bit.wav": ("-c:a", "pcm_u8", "-ar", "22050"),
    "mu-law.wav": ("-c:a", "pcm_mulaw", "-ar", "8000", "-ac", "1"),
    "5.1.wav": ("-ac", "6"),
    "44k.flac": (),
    "16k-mono.flac": ("-ac", "1", "-ar", "16000"),
    "24-bit.flac": ("-sample_fmt", "s32", "-ar", "96000"),
    "44k.mp3": (),
    "16k.mp3": ("-ac", "1", "-ar", "16000"),
    "8k.mp3": ("-ac", "1", "-ar", "8000"),
    "vbr-no-header.mp3": ("-q:a", "4", "-write_xing", "0"),
    "stereo.opus": (),
    "mono.opus": ("-ac", "1", "-ar", "16000"),
    "opus.ogg": ("-c:a", "libopus"),
    "vorbis.ogg": ("-c:a", "libvorbis"),
    "opus.webm": ("-c:a", "libopus"),
    "aac.m4a": (),
    "aac-16k.m4a": ("-ac", "1", "-ar", "16000"),
    "alac.m4a": ("-c:a", "alac"),
    "adts.aac": (),
    "a.wma": (),
    "a.aiff": (),
    "video.mp4": ("-map", "1:v", "-c:v", "mpeg4", "-bf", "2", "-c:a", "aac"),
    "video.ts": ("-map", "1:v", "-c:v", "mpeg2video", "-c:a", "mp2"),
}


def ffmpeg(*arguments: str | Path) -> bytes:
    return subprocess.run(["ffmpeg", "-v", "error", "-nostdin", *arguments], check=True, capture_output=True).stdout


def libraries() -> dict[str, tuple[int, ...]]:
    told = subprocess.run(["ffmpeg", "-version"], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^(lib\w+) +(\d+)\. *(\d+)\. *(\d+)", told, re.MULTILINE)
    return {name: tuple(map(int, version)) for name, *version in found}


THEIRS = libraries()
SAME = all(THEIRS[name] == av.library_versions[name] for name in ("libavcodec", "libavformat", "libswresample"))
ARITHMETIC: Arithmetic = "s16" if THEIRS["libswresample"] < (4, 12) else "float"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("audio")
    ffmpeg("-f", "lavfi", "-i", SOUND, "-c:a", "pcm_s16le", made / "source.wav")
    # One process makes all: each takes a tenth of a second to start.
    outputs = [("-map", "0:a", *options, made / name) for name, options in FILES.items()]
    outputs += [("-map", "0:a", "-af", f"atrim=end_sample={samples}", made / f"{samples}.wav") for samples in SHORT]
    ffmpeg("-i", made / "source.wav", *PICTURE, *chain(*outputs))
    return made


def make_data(*rows: tuple[Path, int]) -> list[bytes]:
    """What make_data makes of files at rates: one process of all, as each takes a tenth of a second to start."""
    options = ("-f", "s16le", "-ac", "1", "-acodec", "pcm_s16le", "-ar")
    return bytes_by_command([(path, (*options, str(rate))) for path, rate in rows], ("-threads", "0", "-ss", "0.0"))


def check_alike(ours: bytes | bytearray, theirs: bytes) -> None:
    if SAME:
        assert ours == theirs
        return
    assert len(ours) == len(theirs)
    difference = np.abs(np.frombuffer(ours, "<i2").astype(int) - np.frombuffer(theirs, "<i2"))
    assert difference.max(initial=0) <= 1


RATES = dict(zip(FILES, cycle((16000, 8000)), strict=False))
SHORT = {1: 8000, 2: 48000, 17: 8000, 40: 48000, 1000: 8000}


@pytest.fixture(scope="module")
def theirs(folder: Path) -> dict[str, bytes]:
    rates = RATES | {f"{samples}.wav": rate for samples, rate in SHORT.items()}
    return dict(zip(rates, make_data(*((folder / name, rate) for name, rate in rates.items())), strict=True))


@pytest.mark.parametrize("name", FILES)
def test_decoded_like_make_data(folder: Path, theirs: dict[str, bytes], name: str) -> None:
    rate = RATES[name]
    assert len(theirs[name]) > 2 * 2 * rate
    check_alike(decode(str(folder / name), rate, ARITHMETIC), theirs[name])


@pytest.mark.parametrize("samples", SHORT)
def test_very_short_ones(folder: Path, theirs: dict[str, bytes], samples: int) -> None:
    name = f"{samples}.wav"
    check_alike(decode(str(folder / name), SHORT[samples], ARITHMETIC), theirs[name])


def test_a_stream_that_changes_its_kind(folder: Path) -> None:
    parts = []
    for name, arguments in (("a.aac", ("-ac", "1", "-ar", "16000")), ("b.aac", ("-ac", "2", "-ar", "32000"))):
        ffmpeg("-i", folder / "source.wav", *arguments, folder / name)
        parts.append((folder / name).read_bytes())
    path = folder / "a+b.aac"
    path.write_bytes(b"".join(parts))
    (theirs,) = make_data((path, 16000))
    assert len(theirs) > 4 * 2 * 16000
    assert len(decode(str(path), 16000, ARITHMETIC)) == len(theirs)


def test_packed_like_make_data(folder: Path, tmp_path: Path) -> None:
    names = ["44k-stereo.wav", "44k.mp3", "stereo.opus", "16k-mono.flac"]
    (tmp_path / "l.jsonl").write_text("".join(json.dumps({"wav": str(folder / name)}) + "\n" for name in names))
    pack_touch(tmp_path / "l.jsonl", tmp_path / "out", arithmetic=ARITHMETIC)
    check_alike(
        (tmp_path / "out/000000000/audio.bin").read_bytes(),
        b"".join(make_data(*((folder / name, 16000) for name in names))),
    )
