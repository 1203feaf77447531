"""`--audio-root`: the audio that lists name, in every command that reads a dataset, and in `touchfs.open`."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import soundfile
from command import TOUCHFS

import touchfs as library
from touchfs.core.errors import NotFoundError

RATE = 8000
PCM = np.random.default_rng(0).integers(-(2**15), 2**15, 2 * RATE, "<i2")


@pytest.fixture
def lines(here):
    (here / "audio").mkdir()
    soundfile.write(here / "audio" / "a.wav", PCM, RATE, "PCM_16")
    made = [{"key": "a", "audio_filepath": "a.wav", "offset": 0.25, "duration": 0.5, "text": "hi"}, {"key": "b"}]
    (here / "x.jsonl").write_text("".join(json.dumps(line) + "\n" for line in made))
    return "x.jsonl"


def test_commands(here, lines, text, touchfs):
    root = ("--audio-root", "audio")
    stored = (here / "audio" / "a.wav").read_bytes()
    assert text("ls", f"{lines}:shards/x", *root).split() == ["a.json", "a.wav", "b.json"]
    assert text("ls", f"{lines}:shards/x").split() == ["a.json", "b.json"]
    assert touchfs("cat", f"{lines}:shards/x/a.wav", *root).stdout == stored
    touchfs("cp", "-r", f"{lines}:segments/x/a", "copied", *root)
    assert sorted(path.name for path in (here / "copied").rglob("*.*")) == ["0000.json", "0000.txt", "0000.wav"]
    assert "(0.5 s, and" in text("info", lines, *root)
    assert text("iterate", lines, "--source", "segments", *root).split() == ["segments/x/a/0000.wav"]
    assert text("iterate", lines, *root).split() == ["shards/x/a.wav", "shards/x/b.json"]
    place = dict(line.split(":", 1) for line in text("stat", f"{lines}:segments/x/a/0000.wav", *root).splitlines())
    offset, size = int(place["user.touchfs.offset"]), int(place["user.touchfs.size"])
    assert stored[offset : offset + size] == PCM[2000:6000].tobytes()
    assert "indexed already" in text("index", lines, *root)
    text("convert", lines, "out", "--to", "tar", *root)
    assert touchfs("cat", "out:segments/000000/a/0000.wav").stdout[44:] == PCM[2000:6000].tobytes()


def test_a_directory_of_kaldi(here, lines, text, touchfs):
    (here / "train").mkdir()
    (here / "train" / "wav.scp").write_text("a a.wav\n")
    (here / "train" / "segments").write_text("a-0 a 0.25 0.75\n")
    assert text("ls", "train:segments/train/a", "--audio-root", "audio").split() == ["0000.json", "0000.wav"]
    refused = subprocess.run([TOUCHFS, "ls", "train"], capture_output=True, text=True, cwd=here)
    assert refused.returncode and "no shards here" in refused.stderr


def test_open(here, lines):
    opened = library.open(here / lines, audio_root=here / "audio")
    assert opened["a"].text == library.open(here / lines)["a"].text
    samples, rate = opened.segments()[0].audio("int16")
    assert rate == RATE and np.array_equal(samples, PCM[2000:6000])
    assert opened.segments()[0].text == "hi"
    samples, _ = opened["a"].audio("int16")
    assert np.array_equal(samples, PCM)
    with pytest.raises(NotFoundError):
        library.open(here / lines, audio_root=here / "none")


def test_hundreds_of_files_share_few_descriptors(here):
    (here / "audio").mkdir()
    wav = here / "first.wav"
    soundfile.write(wav, PCM[:100], RATE, "PCM_16")
    made = []
    for i in range(500):
        (here / "audio" / f"{i}.wav").write_bytes(wav.read_bytes())
        made.append(json.dumps({"key": f"k{i}", "audio_filepath": f"{i}.wav", "text": str(i)}) + "\n")
    (here / "x.jsonl").write_text("".join(made))
    script = """
import os, resource, touchfs
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
segments = touchfs.open("x.jsonl", audio_root="audio").segments()
print(len({bytes(each["wav"]) for each in segments}), len(segments), len(os.listdir("/proc/self/fd")) < 64)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=here)
    assert done.stdout.split() == ["1", "500", "True"], done.stderr
