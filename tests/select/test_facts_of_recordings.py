"""Rate, channels and coding of samples in filter expressions, for shards of all kinds."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from tars import write_tar

import touchfs
from touchfs.containers.shar.write.writer import SharWriter
from touchfs.containers.touchnet.writer import TouchNetWriter
from touchfs.core.errors import DecodeLimitError, MissingExtraError, SourceError, TouchfsError, UsageError
from touchfs.dataset.recordings.recording_formats import recording_formats
from touchfs.indexing import open_dataset
from touchfs.sample_set import SampleSet
from touchfs.select import facts

SOUND = np.zeros(24000, "<i2")


def encoded(rate: int, channels: int = 1, form: str = "WAV") -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.repeat(SOUND[:, None], channels, 1), rate, format=form)
    return file.getvalue()


def keys(path: Path, where: str) -> list[str]:
    return [sample.key for sample in touchfs.open(str(path)).where(where)]


def touchnet(path: Path) -> Path:
    with TouchNetWriter(path, {"audio": np.dtype("<i2"), "metainfo": np.dtype("u1")}) as writer:
        for key, rate in (("a", 8000), ("b", 16000)):
            writer.add({"audio": SOUND.tobytes(), "metainfo": json.dumps({"key": key, "sample_rate": rate}).encode()})
    return path


def tar(path: Path) -> Path:
    return write_tar(path / "x.tar", {"a.wav": encoded(8000), "b.wav": encoded(16000)})


def shar(path: Path) -> Path:
    with SharWriter(path, {"recording": "wav"}, compress_jsonl=False) as writer:
        writer.write({"id": "a"}, {"recording": encoded(8000)})
        writer.write({"id": "b"}, {"recording": encoded(16000)})
    return path


@pytest.mark.parametrize("make", [touchnet, tar, shar])
def test_of_every_kind(tmp_path: Path, make: object) -> None:
    assert callable(make)
    path = make(tmp_path / "data")
    assert keys(path, "rate == 8000") == ["a"]
    assert keys(path, "duration > 2 and rate == 8000") == ["a"]
    assert keys(path, "duration > 2 and rate == 16000") == []
    assert keys(path, "channels == 1") == ["a", "b"]
    assert keys(path, "coding == 'wav'") == ["a", "b"]
    assert keys(path, "coding != 'wav'") == []


def test_channels_and_codings(tmp_path: Path) -> None:
    files = {"a.flac": encoded(8000, 2, "FLAC"), "b.wav": encoded(8000), "c.left.mp3": b"ID3", "d.txt": b"none"}
    path = write_tar(tmp_path / "x.tar", files)
    assert keys(path, "channels == 2") == ["a"]
    assert keys(path, "coding in ['flac', 'mp3']") == ["a", "c"]
    assert keys(path, "not rate exists") == ["c", "d"]
    assert keys(path, "not coding exists") == ["d"]
    assert [sample.rate for sample in touchfs.open(str(path))] == [8000, 8000, None, None]


def test_of_segments(tmp_path: Path) -> None:
    segments = json.dumps({"segments": [{"start": 0, "end": 1}, {"start": 1, "end": 1.5}]}).encode()
    path = write_tar(tmp_path / "x.tar", {"a.wav": encoded(8000, 2), "a.json": segments, "b.wav": encoded(16000)})
    found = touchfs.open(str(path)).segments().where("rate == 8000 and channels == 2 and duration < 1")
    assert [(segment.key, segment.number) for segment in found] == [("a", 1)]
    (merged,) = touchfs.open(str(path)).merged("max=30").where("rate == 8000")
    assert (merged.rate, merged.channels, merged.coding) == (8000, 2, "wav")


def test_segments_and_characters_are_counted(tmp_path: Path) -> None:
    segments = json.dumps({"segments": [{"start": 0, "end": 1, "text": "x"}, {"start": 1, "end": 1.5}]}).encode()
    files = {"a.wav": encoded(8000), "a.json": segments, "b.txt": "früh".encode(), "c.json": b'{"text": "abc"}'}
    path = write_tar(tmp_path / "x.tar", {**files, "d.json": b'{"segments": 7}', "e.bin": b""})
    assert keys(path, "segments == 2") == ["a"]
    assert keys(path, "segments == 0") == ["b", "c", "e"]
    assert keys(path, "segments == 7") == ["d"]
    assert keys(path, "characters == 4 or characters == 3") == ["b", "c"]
    assert keys(path, "not characters exists") == ["a", "d", "e"]


def test_the_json_counts_first_as_it_always_did(tmp_path: Path) -> None:
    files = {
        "a.wav": encoded(8000),
        "a.json": b'{"rate": 5, "channels": "left", "coding": null, "duration": 99}',
        "b.wav": encoded(8000),
        "b.json": b"{}",
    }
    path = write_tar(tmp_path / "x.tar", files)
    assert keys(path, "rate == 5 and channels == 'left' and coding == null") == ["a"]
    assert keys(path, "rate == 8000") == ["b"]
    assert keys(path, "duration == 3") == ["a", "b"]


def test_a_duration_in_json_counts_where_no_recording_has_one(tmp_path: Path) -> None:
    lines = tmp_path / "x.jsonl"
    lines.write_text('{"id": "a", "duration": 1.5}\n{"id": "b", "duration": 3}\n{"id": "c"}\n')
    assert keys(lines, "duration > 2") == ["b"]
    assert keys(lines, "not duration > 2") == ["a", "c"]


def test_where_nothing_has_a_recording(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar", {"a.txt": b"a"})
    with pytest.raises(UsageError, match="no sample has the field rate"):
        keys(path, "rate == 8000")


def test_the_recording_of_a_sample_is_one_for_all(tmp_path: Path) -> None:
    """For its array, its duration, its segments and a mix, whatever the order of the files in the tar."""
    segments = b'{"segments": [{"start": 0}]}'
    files = {"a.ogg": encoded(16000, 1, "OGG"), "a.Left.FLAC": encoded(8000, 2, "FLAC"), "a.json": segments}
    (sample,) = samples = touchfs.open(str(write_tar(tmp_path / "x.tar", files)))
    audio, rate = sample.audio()
    assert (audio.shape, rate, sample.rate, sample.coding, sample.duration) == ((24000, 2), 8000, 8000, "flac", 3)
    (segment,) = samples.segments()
    assert (segment.rate, segment.duration) == (8000, 3)
    (mixed,) = SampleSet([sample]).mix([sample], mix_prob=0)
    assert (mixed.sampling_rate, mixed.audio.shape) == (8000, (2, 24000))


def test_of_segments_of_recordings_of_unknown_length(tmp_path: Path) -> None:
    """They are measured; a sample with such a recording is not, and one that is damaged has no rate."""
    segments = b'{"segments": [{"start": 0}]}'
    files = {"a.mp3": encoded(16000, 2, "MP3"), "a.json": segments, "b.mp3": b"no MP3", "b.json": segments}
    samples = touchfs.open(str(write_tar(tmp_path / "x.tar", files)))
    assert [(each.rate, each.channels, each.coding) for each in samples] == [(None, None, "mp3")] * 2
    assert [(each.rate, each.channels) for each in samples.segments()] == [(16000, 2), (None, None)]
    assert [each.key for each in samples.segments().where("rate == 16000 and channels == 2")] == ["a"]
    with pytest.raises(UsageError, match="no sample has the field rate"):
        samples.where("rate == 16000")
    dataset = open_dataset(str(tmp_path / "x.tar"), full=True)
    assert recording_formats(dataset).rates == {16000: 1, None: 1}
    assert keys(tmp_path / "x.tar", "rate == 16000 and duration == 1.5") == ["a"]


MP3S = {"a.mp3": encoded(16000, 1, "MP3"), "b.mp3": encoded(8000, 1, "MP3"), "c.mp3": b"no MP3", "d.txt": b"none"}


def parquet(path: Path) -> Path:
    data = [{"bytes": each, "path": None} for each in MP3S.values()]
    pq.write_table(pa.table({"key": list("abcd"), "audio": [*data[:3], None]}), path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


@pytest.mark.parametrize("make", [lambda path: write_tar(path.with_suffix(".tar"), MP3S), parquet])
def test_a_few_unknown_lengths_are_found(tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Any) -> None:
    """One that is damaged has none. The selection is the one after all are indexed."""
    path = make(tmp_path / "x")
    assert keys(path, "duration > 2") == ["b"]
    assert caplog.messages == ["where: 1 sample has no known duration: `touchfs index --full`"]
    before = touchfs.open(str(path)).where("duration < 2").data.samples.fingerprint
    open_dataset(str(path), full=True)
    assert touchfs.open(str(path)).where("duration < 2").data.samples.fingerprint == before


@pytest.mark.parametrize(("name", "bound"), [("_READ_MOST", 2), ("_READ_BYTES", 100)])
def test_more_or_longer_ones_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, name: str, bound: int
) -> None:
    monkeypatch.setattr(facts, name, bound)
    assert keys(write_tar(tmp_path / "x.tar", {**MP3S, "e.wav": encoded(8000)}), "duration > 0") == ["e"]
    assert caplog.messages == ["where: 3 samples have no known duration: `touchfs index --full`"]


@pytest.mark.parametrize("error", [DecodeLimitError, MissingExtraError, SourceError])
@pytest.mark.parametrize(
    ("of", "where"),
    [
        (touchfs.open, "duration > 1"),
        *((lambda path: touchfs.open(path).segments(), f"{name} > 1") for name in ("duration", "rate", "size.wav")),
    ],
)
def test_none_is_left_out_because_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[TouchfsError], of: Any, where: str
) -> None:
    """Others would select others. The next time it may be found."""
    path = str(write_tar(tmp_path / "x.tar", {**MP3S, "a.json": b'{"segments": [{"start": 0}]}'}))

    def fail(*_: object) -> None:
        raise error("today")

    monkeypatch.setattr("touchfs.form.results.RETRY_SECONDS", -1.0)
    with monkeypatch.context() as patch:
        patch.setattr("touchfs.form.lengths._probe", fail)
        with pytest.raises(error, match="today"):
            of(path).where(where)
    assert of(path).where(where)[0].key == "a"


def test_audio_is_cut_rather_than_video(tmp_path: Path) -> None:
    files = {"a.mp4": b"a video", "a.mp3": encoded(16000, 1, "MP3"), "a.json": b'{"segments": [{"start": 0}]}'}
    (sample,) = samples = touchfs.open(str(write_tar(tmp_path / "x.tar", files)))
    assert sample.coding == "mp3"
    assert sample.audio()[1] == 16000
    assert [segment.rate for segment in samples.segments()] == [16000]
