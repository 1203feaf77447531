"""`--audio-root`: the audio that lists name, in every command that reads a dataset, and in `touchfs.open`."""

from __future__ import annotations

import gzip
import json
import shlex
import subprocess
import sys

import numpy as np
import pytest
import soundfile

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
    unrooted = touchfs("ls", f"{lines}:shards/x")
    assert unrooted.stdout.split() == [b"a.json", b"b.json"]
    told = b"touchfs: the audio that x names is not shown: add --audio-root DIR, where DIR/a.wav is a file\n"
    assert (unrooted.returncode, unrooted.stderr) == (0, told)
    assert touchfs("cat", f"{lines}:shards/x/a.wav", *root).stdout == stored
    touchfs("cp", "-r", f"{lines}:segments/x/a", "copied", *root)
    assert sorted(path.name for path in (here / "copied").rglob("*.*")) == ["0000.json", "0000.txt", "0000.wav"]
    assert "(0.5 s, and" in text("info", lines, *root)
    assert text("iterate", lines, "--select", "segments", *root).split() == ["segments/x/a/0000.wav"]
    assert text("iterate", lines, *root).split() == ["shards/x/a.wav", "shards/x/b.json"]
    place = dict(line.split(":", 1) for line in text("stat", f"{lines}:segments/x/a/0000.wav", *root).splitlines())
    offset, size = int(place["user.touchfs.offset"]), int(place["user.touchfs.size"])
    assert stored[offset : offset + size] == PCM[2000:6000].tobytes()
    assert "indexed already" in text("index", lines, *root)
    text("convert", lines, "out", "--to", "tar", *root)
    assert touchfs("cat", "out:segments/000000/a/0000.wav").stdout[44:] == PCM[2000:6000].tobytes()


def test_compressed_lines_say_which_root_shows_their_audio(here, lines, touchfs):
    """As Lhotse writes them by default: its paths are relative to the directory where it was run."""
    made = {"id": "a", "start": 0, "duration": 1, "channel": 0, "type": "MonoCut", "recording": {"id": "r"}}
    made["recording"]["sources"] = [{"type": "file", "channels": [0], "source": "audio/a.wav"}]
    for name, data in {"cuts.jsonl.gz": json.dumps(made).encode() + b"\n", "cut.jsonl.gz": b"{}\n"}.items():
        (here / name).write_bytes(gzip.compress(data))
    told = f"touchfs: the audio that cuts names is not shown: add --audio-root {here}\n"
    assert touchfs("ls", "cuts.jsonl.gz").stderr.decode() == told
    assert b"cuts/cut-a.wav" not in touchfs("ls", "-R", "cuts.jsonl.gz:shards").stdout
    assert "a.wav" in touchfs("ls", "cuts.jsonl.gz:shards/cuts", "--audio-root", here).stdout.decode()
    assert touchfs("ls", "cut.jsonl.gz").stderr == b""


def test_a_directory_of_kaldi(here, lines, text, touchfs):
    (here / "train").mkdir()
    (here / "train" / "wav.scp").write_text("a a.wav\n")
    (here / "train" / "segments").write_text("a-0 a 0.25 0.75\n")
    assert text("ls", "train:segments/train/a", "--audio-root", "audio").split() == ["0000.json", "0000.wav"]


# The lists in a directory or file, the command that is tried first, and what it says.
UNROOTED = [
    ({"train/wav.scp": "a {here}/audio/a.wav\nb {here}/audio/b.wav\n"}, "train", "train: is a Kaldi data directory: "),
    ({"data/train/wav.scp": "a {here}/audio/a.wav\n"}, "data", "data/train is a Kaldi data directory: "),
    (
        {"train/wav.scp": "a {here}/audio/a.wav\nb sox b.mp3 -t wav - |\n"},
        "train/wav.scp",
        "is a Kaldi data directory: ",
    ),
    ({"x.jsonl": '{{"audio_filepath": "{here}/audio/a.wav"}}\n'}, "x.jsonl", "the audio that x names is not shown: "),
    ({"x.json": '{{"audio_filepath": "sub/a.wav", "text": "x"}}\n'}, "x.json", "the audio that x names is not shown: "),
    (
        {"x.jsonl": '{{"id": "a", "sources": [{{"type": "file", "source": "{here}/audio/a.wav"}}]}}\n'},
        "x.jsonl",
        "shown: ",
    ),
    ({"m/x.json": '{{"wav": "{here}/audio/a.wav", "txt": "x"}}\n'}, "m", "the audio that x names is not shown: "),
]


@pytest.mark.parametrize(("files", "dataset", "told"), UNROOTED, ids=[" ".join(each[0]) for each in UNROOTED])
def test_a_list_without_its_root_says_which_one_and_that_works(here, touchfs, text, files, dataset, told):
    (here / "audio").mkdir()
    for name in ("a", "b"):
        soundfile.write(here / "audio" / f"{name}.wav", PCM, RATE, "PCM_16")
    (here / "sub").symlink_to("audio")  # a relative path, as NeMo's are, may begin beside the list
    for name, lines in files.items():
        (here / name).parent.mkdir(exist_ok=True, parents=True)
        (here / name).write_text(lines.format(here=here))
    done = touchfs("info", dataset)
    line = (done.stdout + done.stderr).decode().splitlines()[-1]
    assert told in line
    option = line.rpartition(": add ")[2].split()
    assert option[0] == "--audio-root"
    touchfs("cp", "-r", f"{dataset}:shards", "out", *option)
    assert next(here.glob("out/**/*.wav")).read_bytes() == (here / "audio" / "a.wav").read_bytes()


def test_audio_of_another_machine(here, text, touchfs):
    """Its list names a directory that is not here."""
    (here / "audio" / "en=1").mkdir(parents=True)
    soundfile.write(here / "audio" / "en=1" / "a.wav", PCM, RATE, "PCM_16")
    (here / "train").mkdir()
    (here / "train" / "wav.scp").write_text("a /other/wavs/en=1/a.wav\n")
    told = touchfs("ls", "train").stderr.decode()
    assert "add --audio-root DIR=/other/wavs/en=1, and DIR has its files now" in told
    for root in ("audio=/other/wavs", "audio/en=1=/other/wavs/en=1/"):
        assert text("ls", "train:shards/train", "--audio-root", root) == "a.wav"
    assert library.open("train", audio_root="audio=/other/wavs")["a"].audio("int16")[1] == RATE
    refused = touchfs("ls", "train:shards/train", "--audio-root", "none=/other/wavs")
    assert refused.returncode == 2 and b"Directory 'none=/other/wavs' does not exist" in refused.stderr


WRONG = [
    ("sox a.mp3 -t wav - |", "'sox a.mp3 -t wav - |' is a command, and commands are never run: name a file"),
    (
        "/other/a.wav",
        "its audio '/other/a.wav': is not below the audio root: if it was moved there from OLD, "
        "add --audio-root {here}/audio=OLD",
    ),
    ("b.wav", "its audio 'b.wav': no such file or directory"),
    ("a.txt", "its audio 'a.txt': has not the extension of a recording"),
]


@pytest.mark.parametrize(("path", "reason"), WRONG)
def test_the_first_reason_is_in_the_error_itself(here, touchfs, text, path, reason):
    (here / "audio").mkdir()
    (here / "train").mkdir()
    (here / "train" / "wav.scp").write_text(f"a {path}\n")
    reason = reason.format(here=here)
    refused = touchfs("mount", "train", "m", "--audio-root", "audio")
    assert refused.returncode == 13 and refused.stderr.decode().count("\n") == 1
    assert f"shard train: 1 of 1 sample is damaged: sample 0 ('a'): {reason}" in refused.stderr.decode().rstrip()
    *_, line, advice = touchfs("info", "train", "--audio-root", "audio").stdout.decode().splitlines()
    assert reason in line
    report = text(*shlex.split(advice.split("`")[1])[1:])
    assert reason in report and report.startswith("1 of the 1 sample of")


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
    for i in range(150):
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
    assert done.stdout.split() == ["1", "150", "True"], done.stderr
