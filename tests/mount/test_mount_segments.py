"""Segments of tars through the kernel: of each format of annotations beside a recording, and of JSON."""

from __future__ import annotations

import json
import subprocess
import tarfile

import numpy as np
import pytest
from command import TOUCHFS
from tars import add, write_tar
from wav_files import wav_of

pytestmark = pytest.mark.usefixtures("has_libraries")

RATE = 8000
PCM = np.random.default_rng(0).integers(-(2**15), 2**15, 2 * RATE, "<i2")
TEXTGRID = """File type = "ooTextFile"
Object class = "TextGrid"

0 2 <exists> 1 "IntervalTier" "words" 0 2 3 0 0.5 "" 0.5 1.25 "hello" 1.25 2 ""
"""
EAF = """<ANNOTATION_DOCUMENT>
<TIME_ORDER><TIME_SLOT TIME_SLOT_ID="a" TIME_VALUE="500"/><TIME_SLOT TIME_SLOT_ID="b" TIME_VALUE="1250"/></TIME_ORDER>
<TIER TIER_ID="x"><ANNOTATION><ALIGNABLE_ANNOTATION ANNOTATION_ID="1" TIME_SLOT_REF1="a" TIME_SLOT_REF2="b">
<ANNOTATION_VALUE>hello</ANNOTATION_VALUE></ALIGNABLE_ANNOTATION></ANNOTATION></TIER></ANNOTATION_DOCUMENT>
"""
# Each has one segment, from 0.5 to 1.25 s.
ANNOTATIONS = {
    "json": json.dumps({"segments": [{"start": 0.5, "end": 1.25, "text": "hello"}]}),
    "srt": "1\n00:00:00,500 --> 00:00:01,250\nhello\n",
    "vtt": "WEBVTT\n\n00:00.500 --> 00:01.250\nhello\n",
    "TextGrid": TEXTGRID,
    "ctm": "rec 1 0.5 0.75 hello\n",
    "stm": "rec 1 ann 0.5 1.25 hello\n",
    "rttm": "SPEAKER rec 1 0.5 0.75 <NA> <NA> ann <NA> <NA>\n",
    "eaf": EAF,
    "txt": "0.500000\t1.250000\thello\n",
}


def test_each_annotation_format_of_a_tar_is_segments(mount, tmp_path):
    members = {f"{name}/a.wav": wav_of(PCM, RATE) for name in ANNOTATIONS}
    members |= {f"{name}/a.{name}": text.encode() for name, text in ANNOTATIONS.items()}
    members |= {"damaged/a.wav": wav_of(PCM, RATE), "damaged/a.srt": b"1\n00:00:00,500 --> late\nhello\n"}
    write_tar(tmp_path / "x.tar", members)
    mounted = mount(tmp_path / "x.tar")
    expected = wav_of(PCM[RATE // 2 : RATE * 5 // 4], RATE)
    shard = mounted.path / "segments" / "x"
    assert sorted(path.name for path in shard.iterdir()) == sorted([*ANNOTATIONS, "ERROR.txt"])
    for name in ANNOTATIONS:
        directories = [shard / name / "a", mounted.path / "merged" / "max=30" / "x" / name / "a"]
        for directory in directories:
            assert (directory / "0000.wav").read_bytes() == expected
            assert (directory / "0000.wav").stat().st_size == len(expected)
            texts = [path.read_text() for path in directory.glob("*.txt")]
            assert texts == ([] if name == "rttm" else ["hello"])
    [report] = [path.read_text() for path in shard.glob("ERROR.txt")]
    assert "sample 9 ('damaged/a'): no segments are read from its srt: line 2: " in report
    assert (mounted.path / "shards/x/damaged/a.wav").read_bytes() == wav_of(PCM, RATE)
    assert (mounted.info()["segments"], mounted.info()["samples_of_unknown_duration"]) == (len(ANNOTATIONS), 0)
    found = subprocess.run(["grep", "-rl", "hello", shard, "--include", "*.txt"], capture_output=True, check=True)
    assert len(found.stdout.splitlines()) == len(ANNOTATIONS) - 1


def test_rendered_segments(mount, tmp_path, monkeypatch):
    """As FLACs of another rate: whole by every tool, the same for all readers, and in iterators."""
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    (tmp_path / "a.wav").write_bytes(wav_of(PCM, RATE))
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for number in range(3):
            mp3 = tmp_path / f"{number}.mp3"
            subprocess.run(["ffmpeg", "-v", "error", "-i", tmp_path / "a.wav", mp3], check=True)
            tar.add(mp3, mp3.name)
            add(tar, f"{number}.json", ANNOTATIONS["json"].encode())
    mounted = mount(tmp_path / "x.tar", "--workers", 2)
    plan = "merged/max=0,rate=4000,format=flac"
    [files, again] = [[mounted.path / plan / "x" / str(number) / "0000.flac" for number in range(3)] for _ in range(2)]
    readers = [subprocess.Popen(["cat", *files], stdout=subprocess.PIPE) for _ in range(8)]
    [data] = {reader.communicate()[0] for reader in readers}
    assert len(list((tmp_path / "scratch").glob("*.value"))) <= 6, "three FLACs, and what three recordings are"
    assert [path.stat().st_size for path in files] == [len(path.read_bytes()) for path in again]
    assert data == b"".join(path.read_bytes() for path in files)
    (tmp_path / "shown").mkdir()
    subprocess.run(["cp", *files[:1], tmp_path / "shown"], check=True)
    decode = ["ffmpeg", "-v", "error", "-i", tmp_path / "shown" / "0000.flac", "-f", "s16le", "-"]
    assert len(subprocess.run(decode, check=True, capture_output=True).stdout) == 2 * 0.75 * 4000
    copied = subprocess.run([TOUCHFS, "cp", "-r", f"{tmp_path}/x.tar:{plan}/x", tmp_path / "copied"], check=True)
    assert copied.returncode == 0
    assert (tmp_path / "copied" / "0" / "0000.flac").read_bytes() == files[0].read_bytes()
    iterator = mounted.path / ".touchfs" / "iterators" / "train"
    iterator.mkdir()
    (iterator / "spec").write_text(json.dumps({"select": plan, "output": "relpath", "batch": 3}))
    assert (iterator / "next").read_text() == "".join(f"{plan}/x/{number}/0000.flac\n" for number in range(3))
    missing = mounted.path / "merged/max=30,channels=3/x/0/0000.wav"
    assert subprocess.run(["cat", missing], capture_output=True, check=False).returncode == 1
    assert "channels=3: the recording has 1" in (mounted.path / ".touchfs" / "errors").read_text()
