"""Independent readers of audio and video accept what is mounted, and agree on what it is."""

import io
import json
import struct
import subprocess
import wave
from pathlib import Path

import numpy as np
import pytest
import soundfile
from mounts import SPEECH, Mount, samples_of

from touchfs.write import SharWriter

pytestmark = pytest.mark.usefixtures("has_libraries")

SOUNDS = ["shards/000000000/talks/monday.wav", "segments/000000000/talks/monday/0001.wav", "shards/mixed/clip.wav"]
LINES = map(json.loads, (SPEECH / "speech.jsonl").read_text(encoding="utf-8").splitlines())
RECORDED = {line["key"]: SPEECH / line["wav"] for line in LINES}


@pytest.mark.parametrize("name", SOUNDS)
def test_every_reader_sees_the_same_sound(mounted, name):
    path = mounted.path / name
    with wave.open(str(path)) as file:
        rate, count = file.getframerate(), file.getnframes()
        assert (file.getnchannels(), file.getsampwidth()) == (1, 2)
        data = file.readframes(count)
    assert rate == (8000 if "mixed" in name else 16000)
    samples, told = soundfile.read(path, dtype="int16")
    assert (samples.tobytes(), told) == (data, rate)
    assert int(run("soxi", "-s", path)) == count
    assert int(run("soxi", "-r", path)) == rate
    raw = subprocess.run(["sox", path, "-t", "raw", "-"], check=True, capture_output=True)
    assert (raw.stdout, raw.stderr) == (data, b"")
    raw = subprocess.run(["ffmpeg", "-v", "error", "-i", path, "-f", "s16le", "-"], check=True, capture_output=True)
    assert (raw.stdout, raw.stderr) == (data, b"")
    (stream,) = json.loads(run("ffprobe", "-v", "error", "-show_streams", "-of", "json", path))["streams"]
    assert (stream["codec_name"], stream["sample_rate"], stream["channels"]) == ("pcm_s16le", str(rate), 1)
    assert stream["duration_ts"] == count


def test_recordings_are_what_was_packed(mounted):
    found = {}
    for path in mounted.files():
        if path.suffix == ".wav" and "shards" in path.parts and "mixed" not in path.parts:
            key = "/".join(path.relative_to(mounted.path / "shards").with_suffix("").parts[1:])
            found[key] = path.read_bytes()
    assert found == {key: path.read_bytes() for key, path in RECORDED.items()}


def test_a_sound_of_no_samples_is_one(mounted):
    samples, rate = soundfile.read(mounted.path / "shards/mixed/empty.wav")
    assert (len(samples), rate) == (0, 8000)


def test_video(mounted):
    path = mounted.path / "shards/mixed/clip.mp4"
    (stream,) = json.loads(run("ffprobe", "-v", "error", "-show_streams", "-of", "json", path))["streams"]
    assert (stream["codec_name"], stream["width"], stream["nb_frames"]) == ("mpeg4", 64, "5")


def test_token_arrays(mounted, zoo):
    for path, tokens in zip(
        sorted((mounted.path / "shards/wide").iterdir()), samples_of(zoo / "wide", "texttoken"), strict=True
    ):
        array = np.load(path)
        assert (array.dtype, array.tobytes()) == (np.dtype("<i4"), tokens)


def run(*command: "str | Path") -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.soak
def test_a_segment_of_a_long_flac_is_read_in_little_memory(tmp_path):
    """Two hours, of which a mount decodes what is read: the first bytes, and some at the end."""
    rate, seconds = 16000, 7200
    flac = io.BytesIO()
    with soundfile.SoundFile(flac, "w", rate, 1, subtype="PCM_16", format="FLAC") as file:
        for number in range(seconds // 60):
            file.write(np.full(60 * rate, number, "<i2"))
    spoken = {"id": "s", "recording_id": "cut", "start": 0, "duration": seconds, "channel": 0}
    cut = {"id": "cut", "start": 0, "duration": seconds, "channel": 0, "supervisions": [spoken], "type": "MonoCut"}
    with SharWriter(tmp_path / "shar", {"recording": "flac"}, compress_jsonl=False) as writer:
        writer.write(cut, {"recording": flac.getvalue()})
    mount = Mount(tmp_path / "mnt", tmp_path / "shar")
    try:
        with open(mount.path / "segments/cuts.000000/cut/0000.wav", "rb") as file:
            assert file.read(4) == b"RIFF"
            for number in (0, 119, 60):
                file.seek(44 + number * 120 * rate)
                assert file.read(4) == struct.pack("<hh", number, number)
        assert all(peak_of(pid) < 150 for pid in mount.processes())
    finally:
        mount.end()


def peak_of(pid: int) -> int:
    """Megabytes."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) // 1024
