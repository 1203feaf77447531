"""Audio that lists name is converted with its segments: the same samples in shards of all kinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lhotse
import numpy as np
import pytest
import soundfile
from shown import dataset_files

from touchfs.bulk.convert.job import convert
from touchfs.bulk.convert.shar import SharTarget
from touchfs.bulk.convert.tar import TarTarget
from touchfs.bulk.convert.target import Target
from touchfs.bulk.convert.touchnet import TouchTarget
from touchfs.core.errors import FormatError
from touchfs.indexing import open_dataset
from touchfs.limits import Limits
from touchfs.shard.options import Options

RATE = 8000
PCM = np.random.default_rng(0).integers(-(2**15), 2**15, 2 * RATE, "<i2")
TARGETS: list[Target] = [TarTarget(), SharTarget(), TouchTarget()]


def nemo(place: Path) -> None:
    lines = [
        {"key": "piece", "audio_filepath": "a.wav", "offset": 0.25, "duration": 0.5, "text": "one"},
        {"key": "whole", "audio_filepath": "a.wav", "text": "all"},
        {"key": "words", "audio_filepath": "a.wav", "words": [{"start": 0.5, "end": 1, "word": "w"}]},
    ]
    (place / "x.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def cuts(place: Path) -> None:
    recording = lhotse.Recording.from_file(place / "audio" / "a.wav", recording_id="a")
    whole = recording.to_cut()
    piece = whole.truncate(offset=0.5, duration=1.0)
    whole.id, piece.id = "whole", "piece"
    piece.supervisions = [lhotse.SupervisionSegment("s", "a", 0.125, 0.5, text="hi", speaker="ann")]
    bare = piece.drop_supervisions()
    bare.id = "bare"
    lhotse.CutSet.from_cuts([whole, piece, bare]).to_jsonl(place / "x.jsonl")


def kaldi(place: Path) -> None:
    (place / "wav.scp").write_text("a a.wav\nb a.wav\n")
    (place / "segments").write_text("s-a-0 a 0.25 0.5\ns-a-1 a 0.5 1.5\n")
    (place / "text").write_text("s-a-0 one\ns-a-1 two\n")


def shown(source: Path, options: Options = Options()) -> dict[str, Any]:  # noqa: B008
    """The audio and the texts of all segments, without the names of shards."""
    files = dataset_files(open_dataset(str(source), options=options, in_memory=True), "segments", options.limits)
    return {name.partition("/")[2]: data for name, data in files.items() if not name.endswith(".json")}


@pytest.fixture
def options(tmp_path: Path) -> Options:
    (tmp_path / "audio").mkdir()
    soundfile.write(tmp_path / "audio" / "a.wav", PCM, RATE, "PCM_16")
    return Options(limits=Limits(audio_root=str(tmp_path / "audio")))


@pytest.mark.parametrize("target", TARGETS, ids=["tar", "shar", "touch"])
@pytest.mark.parametrize("make", [nemo, cuts, kaldi])
def test_segments_survive(tmp_path: Path, options: Options, make: Any, target: Target) -> None:
    make(tmp_path)
    source = tmp_path if make is kaldi else tmp_path / "x.jsonl"
    output = tmp_path.with_name(f"{tmp_path.name}-out")
    convert(str(source), str(output), target, options=options)
    expected, found = shown(source, options), shown(output)
    assert len(expected) >= 4
    assert found == expected


def test_audio_that_is_not_there(tmp_path: Path, options: Options) -> None:
    (tmp_path / "x.jsonl").write_text(
        '{"key": "a", "audio_filepath": "a.wav"}\n{"key": "b", "audio_filepath": "../a.wav"}\n'
    )
    source, output = str(tmp_path / "x.jsonl"), str(tmp_path / "out")
    with pytest.raises(FormatError, match=r"'b'.*leads out of .*--skip-bad"):
        convert(source, output, TarTarget(), options=options)
    report = convert(source, str(tmp_path / "other"), TarTarget(), options=options, skip_bad=True)
    assert (report.samples, report.skipped) == (1, 1)
