"""Segments of a tar and of JSON lines in Python: by position, in iterators, filtered, merged."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import soundfile
from tars import add

import touchfs

RATE = 8000
PCM = np.random.default_rng(0).integers(-(2**15), 2**15, (3, 2 * RATE), "<i2")
WORDS = [
    [{"start": 0.25, "end": 0.5, "word": "good"}, {"start": 0.5, "end": 1.0, "word": "morning"}],
    [],
    [{"start": 1.0, "end": 2.0, "word": "bye"}],
]


@pytest.fixture(params=["WAV", "FLAC"])
def tar(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as out:
        for i, words in enumerate(WORDS):
            recording = io.BytesIO()
            soundfile.write(recording, PCM[i], RATE, format=request.param)
            for extension, data in (
                (request.param.lower(), recording.getvalue()),
                ("json", json.dumps({"words": words}).encode()),
            ):
                add(out, f"{i}.{extension}", data)
    return str(path)


def test_segments_and_merged_segments(tar: str) -> None:
    samples = touchfs.open(tar)
    assert [segment.text for segment in samples.segments()] == ["good", "morning", "bye"]
    audio, rate = samples.segments()[2].audio()
    assert rate == RATE
    assert np.array_equal(audio.reshape(-1) * 2**15, PCM[2, RATE:])
    assert [segment.duration for segment in samples.segments()] == [0.25, 0.5, 1.0]
    assert [merged.text for merged in samples.merged("max=30")] == ["good morning", "bye"]
    assert [merged.duration for merged in samples.merged("max=30")] == [0.75, 1.0]
    assert [segment.text for segment in samples.segments().where("duration > 0.3")] == ["morning", "bye"]


def test_passes_over_segments(tar: str) -> None:
    selected = touchfs.open(tar).segments().shuffle(seed=3)
    assert sorted(segment.text for segment in selected) == ["bye", "good", "morning"]


def test_lines_with_segments_have_texts(tmp_path: Path) -> None:
    lines = [{"id": str(i), "words": words} for i, words in enumerate(WORDS)]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    segments = touchfs.open(str(tmp_path / "x.jsonl")).segments()
    assert [(segment.key, segment.text, sorted(segment)) for segment in segments] == [
        (key, text, ["json", "txt"]) for key, text in (("0", "good"), ("0", "morning"), ("2", "bye"))
    ]
    assert segments[0].json()["touchfs"]["problem"] == "the sample has no recording"
