"""Segments of tars through the kernel: of each format of annotations beside a recording, and of JSON."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import wave

import numpy as np

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


def wav(samples):
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 2, RATE, 0, "NONE", ""))
        writer.writeframes(samples.tobytes())
    return file.getvalue()


def test_each_annotation_format_of_a_tar_is_segments(mount, tmp_path):
    members = {f"{name}/a.wav": wav(PCM) for name in ANNOTATIONS}
    members |= {f"{name}/a.{name}": text.encode() for name, text in ANNOTATIONS.items()}
    members |= {"damaged/a.wav": wav(PCM), "damaged/a.srt": b"1\n00:00:00,500 --> late\nhello\n"}
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for name, data in members.items():
            made = tarfile.TarInfo(name)
            made.size = len(data)
            tar.addfile(made, io.BytesIO(data))
    mounted = mount(tmp_path / "x.tar")
    expected = wav(PCM[RATE // 2 : RATE * 5 // 4])
    shard = mounted.path / "segments" / "x"
    assert sorted(path.name for path in shard.iterdir()) == sorted(ANNOTATIONS)
    for name in ANNOTATIONS:
        directories = [shard / name / "a", mounted.path / "merged" / "max=30" / "x" / name / "a"]
        for directory in directories:
            assert (directory / "0000.wav").read_bytes() == expected
            assert (directory / "0000.wav").stat().st_size == len(expected)
            texts = [path.read_text() for path in directory.glob("*.txt")]
            assert texts == ([] if name == "rttm" else ["hello"])
    [report] = [path.read_text() for path in (mounted.path / "shards" / "x").glob("ERROR.txt")]
    assert "sample 9 ('damaged/a'): no segments are read from its srt: line 2: " in report
    assert (mounted.path / "shards/x/damaged/a.wav").read_bytes() == wav(PCM)
    assert (mounted.info()["segments"], mounted.info()["samples_of_unknown_duration"]) == (len(ANNOTATIONS), 0)
    found = subprocess.run(["grep", "-rl", "hello", shard, "--include", "*.txt"], capture_output=True, check=True)
    assert len(found.stdout.splitlines()) == len(ANNOTATIONS) - 1
