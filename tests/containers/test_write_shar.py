"""Shar directories of cuts that are JSON objects: what is in the files, what is refused, what is left after errors.

That they are Lhotse's own bytes, and that it reads them, is tested in interop/test_shar_writer.py.
"""

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from touchfs.core.errors import FormatError, MissingExtraError, SourceError, UsageError
from touchfs.format.idx import offsets
from touchfs.write import Audio, SharWriter

RATE = 8000
PCM = np.arange(-400, 400, dtype="<i2")
RECORDING = {
    "id": "r",
    "sources": [{"type": "file", "channels": [0], "source": "/somewhere/r.FLAC"}],
    "sampling_rate": RATE,
    "num_samples": 80_000,
    "duration": 10.0,
    "channel_ids": [0],
    "transforms": [{"name": "Speed", "kwargs": {"factor": 1.0}}],
}
CUT = {"id": "c", "start": 3.5, "duration": 0.1, "channel": 0, "supervisions": [], "recording": RECORDING}
PLACEHOLDER = {
    "id": "r",
    "sources": [{"type": "shar", "channels": [0], "source": ""}],
    "sampling_rate": RATE,
    "num_samples": 800,
    "duration": 0.1,
    "channel_ids": [0],
}


def writer_of(path: Path, fields: dict[str, str], **options: Any) -> SharWriter:
    return SharWriter(path, fields, **{"compress_jsonl": False, **options})


def encoded(kind: str, subtype: str | None = None, channels: int = 1) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.stack([PCM] * channels, 1), RATE, format=kind, subtype=subtype)
    return file.getvalue()


def rows(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


def test_a_cut_and_its_files(tmp_path: Path) -> None:
    cut = {**CUT, "custom": {"text": "a ü", "kept": [1]}}
    with writer_of(tmp_path, {"recording": "wav", "vector": "numpy", "text": "jsonl"}) as writer:
        writer.write(cut, {"recording": PCM, "vector": np.eye(2, dtype="f4")})
        writer.write({"id": "d", "duration": 1}, {"text": "b", "vector": None})
    assert cut["custom"] == {"text": "a ü", "kept": [1]}  # it is the caller's
    vector = {"storage_type": "shar", "storage_path": "", "storage_key": "", "shape": [2, 2]}
    first, second = rows(tmp_path / "cuts.000000.jsonl")
    assert first == {
        **CUT,
        "start": 0,
        "recording": PLACEHOLDER,
        "custom": {"text": "a ü", "kept": [1], "vector": vector},
        "type": "MonoCut",
    }
    assert second == {"id": "d", "start": 0, "duration": 1, "channel": 0, "supervisions": [], "type": "MonoCut"}
    found = members(tmp_path / "recording.000000.tar")
    assert list(found) == ["c.wav", "c.json", "d.nodata", "d.nometa"]
    assert json.loads(found["c.json"]) == PLACEHOLDER
    samples, rate = soundfile.read(io.BytesIO(found["c.wav"]), dtype="int16")
    assert (samples.tolist(), rate) == (PCM.tolist(), RATE)
    found = members(tmp_path / "vector.000000.tar")
    assert np.load(io.BytesIO(found["c.npy"])).tolist() == [[1, 0], [0, 1]]
    assert (json.loads(found["c.json"]), found["d.nodata"], found["d.nometa"]) == (vector, b"", b"")
    assert rows(tmp_path / "text.000000.jsonl") == [{"cut_id": "c", "text": "a ü"}, {"cut_id": "d", "text": "b"}]
    assert sorted(os.listdir(tmp_path)) == sorted(
        f"{name}{index}"
        for name in ["cuts.000000.jsonl", "recording.000000.tar", "text.000000.jsonl", "vector.000000.tar"]
        for index in ("", ".idx")
    )
    data = (tmp_path / "cuts.000000.jsonl").read_bytes()
    index = offsets.parse((tmp_path / "cuts.000000.jsonl.idx").read_bytes(), len(data))
    assert index.tolist() == [0, data.index(b"\n") + 1, len(data)]


@pytest.mark.parametrize("samples", [PCM, PCM / 2**15, (PCM / 2**15).astype("f4")], ids=lambda samples: samples.dtype)
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_a_wav_is_that_of_soundfile(tmp_path: Path, samples: np.ndarray, channels: int) -> None:
    random = np.random.default_rng(channels)
    scale = 2**13 if samples.dtype.kind == "i" else 0.6
    samples = np.stack([samples, *(random.normal(0, scale, (channels - 1, 800)).astype(samples.dtype))])
    if samples.dtype.kind == "f":
        samples[0, :6] = [1, -1, 1e30, -np.inf, -1e-12, 1.5 / 2**15]
    with writer_of(tmp_path, {"recording": "wav"}) as writer:
        writer.write({"id": "a"}, {"recording": Audio(samples, RATE)})
    expected = io.BytesIO()
    soundfile.write(expected, samples.T, RATE, format="wav")
    assert members(tmp_path / "recording.000000.tar")["a.wav"] == expected.getvalue()
    (row,) = rows(tmp_path / "cuts.000000.jsonl")
    assert (row["duration"], row["channel"]) == (0.1, 0 if channels == 1 else list(range(channels)))
    assert row["type"] == ("MonoCut" if channels == 1 else "MultiCut")


@pytest.mark.parametrize("kind", ["wav", "flac", "mp3", "opus", "original"])
def test_encoded_bytes_are_stored_as_they_are(tmp_path: Path, kind: str) -> None:
    data = encoded(*{"opus": ("ogg", "opus"), "original": ("aiff",)}.get(kind, (kind,)), channels=2)
    with writer_of(tmp_path, {"recording": kind, "noise": kind}) as writer:
        writer.write({"id": "a"}, {"recording": data, "noise": memoryview(data)})
    assert members(tmp_path / "recording.000000.tar")[f"a.{kind}"] == data
    assert members(tmp_path / "noise.000000.tar")[f"a.{kind}"] == data
    (row,) = rows(tmp_path / "cuts.000000.jsonl")
    assert (row["duration"], row["channel"], row["recording"]["sampling_rate"]) == (0.1, [0, 1], RATE)
    assert row["custom"]["noise"]["num_samples"] == 800


def test_encoded_arrays_are_stored_as_they_are(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.save(file, np.zeros((3, 4)))
    manifest = {"storage_type": "x", "storage_path": "", "storage_key": "", "shape": [2]}
    frames = {"array": {**manifest, "shape": [5, 2]}, "temporal_dim": 0, "frame_shift": 0.01, "start": 7}
    cut = {"id": "a", "duration": 1.0, "custom": {"packed": manifest, "frames": frames}}
    fields = {"vector": "numpy", "packed": "lilcom", "frames": "numpy"}
    with writer_of(tmp_path, fields) as writer:
        writer.write(cut, {"vector": file.getvalue(), "packed": b"L\0lilcom", "frames": np.zeros((5, 2))})
    assert members(tmp_path / "vector.000000.tar")["a.npy"] == file.getvalue()
    assert members(tmp_path / "packed.000000.tar")["a.llc"] == b"L\0lilcom"
    (row,) = rows(tmp_path / "cuts.000000.jsonl")
    assert row["custom"]["vector"]["shape"] == [3, 4]
    assert row["custom"]["packed"] == {**manifest, "storage_type": "shar"}
    assert row["custom"]["frames"] == {
        **frames,
        "start": 0,
        "array": {**manifest, "shape": [5, 2], "storage_type": "shar"},
    }


def test_original_samples_are_encoded_as_their_source(tmp_path: Path) -> None:
    with writer_of(tmp_path, {"recording": "original", "noise": "original"}) as writer:
        writer.write(CUT, {"recording": PCM, "noise": Audio(PCM, RATE, "wav")})
    assert members(tmp_path / "recording.000000.tar")["c.original"][:4] == b"fLaC"
    assert members(tmp_path / "noise.000000.tar")["c.original"][:4] == b"RIFF"


def test_what_belongs_to_a_cut_and_is_not_aligned_is_as_long_as_it_is(tmp_path: Path) -> None:
    cut = {**CUT, "recording": None, "custom": {"noise": {**RECORDING, "num_samples": 300, "duration": 0.0375}}}
    cut["custom"] |= {"noise_unaligned": True, "noise_channel_selector": [0]}
    with writer_of(tmp_path, {"noise": "wav"}) as writer:
        writer.write(cut, {"noise": PCM[:300]})
    (row,) = rows(tmp_path / "cuts.000000.jsonl")
    assert row["custom"]["noise"] == {**PLACEHOLDER, "num_samples": 300, "duration": 0.0375}
    assert row["custom"].keys() == {"noise", "noise_unaligned"}


REFUSED = {
    "no id": ({}, {}, "needs an id"),
    "an id that is a number": ({"id": 1}, {}, "needs an id"),
    "half a character": ({"id": "\ud800", "duration": 1}, {}, "cannot be written as JSON"),
    "a key without a place": ({"id": "../c", "duration": 1}, {}, "cannot store"),
    "another type": ({"id": "c", "type": "MixedCut"}, {}, "MixedCut cannot be stored"),
    "no object": ({"id": "c", "custom": [1]}, {}, "custom"),
    "no duration": ({"id": "c"}, {}, "duration"),
    "data without its place": ({"id": "c", "custom": {"vector": 5}}, {"vector": PCM}, "plain values"),
    "a manifest without data": (CUT, {}, "no data came with it"),
    "a manifest as a value": ({"id": "c", "duration": 1}, {"text": RECORDING}, "manifest of data"),
    "not JSON": ({"id": "c", "duration": 1}, {"text": b"x"}, "field text: cannot be written as JSON"),
    "no rate": ({"id": "c"}, {"recording": PCM}, "sampling rate"),
    "another rate": (CUT, {"recording": Audio(PCM, 16000)}, "800 samples at 16000 Hz"),
    "too few samples": (CUT, {"recording": PCM[1:]}, "1 channels of 799 samples"),
    "a whole file for a part": (CUT, {"recording": encoded("wav")[:-2]}, "cut short|799 samples"),
    "too many channels": (CUT, {"recording": np.stack([PCM, PCM])}, "2 channels"),
    "another format": ({"id": "c"}, {"recording": encoded("flac")}, "not wav"),
    "no recording": ({"id": "c"}, {"recording": "c.wav"}, "neither samples nor bytes but str"),
    "other samples": ({"id": "c"}, {"recording": Audio(PCM.astype("i8"), RATE)}, "not int64"),
    "not a number": ({"id": "c"}, {"recording": Audio(np.full(9, np.nan), RATE)}, "not a number"),
    "a manifest of something else": (
        {**CUT, "recording": {"id": "r"}},
        {"recording": PCM},
        "no manifest of a recording",
    ),
    "a damaged manifest": ({**CUT, "duration": "x"}, {"recording": PCM}, "an invalid manifest"),
    "objects": ({"id": "c", "duration": 1}, {"vector": np.array([None])}, "npy"),
    "no array": ({"id": "c", "duration": 1}, {"vector": [1, 2]}, "neither an array nor bytes but list"),
    "other bytes": ({"id": "c", "duration": 1}, {"vector": b"PK"}, "not numpy"),
    "a damaged array": ({"id": "c", "duration": 1}, {"vector": b"\x93NUMPY\1\0"}, "damaged"),
    "features without a manifest": ({"id": "c", "duration": 1}, {"features": np.eye(2)}, "needs a manifest"),
    "integers": ({"id": "c", "duration": 1}, {"packed": np.arange(3)}, "lilcom is for floats"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_leaves_no_trace(tmp_path: Path, name: str) -> None:
    cut, payloads, problem = REFUSED[name]
    fields = {"recording": "wav", "features": "numpy", "vector": "numpy", "packed": "lilcom", "text": "jsonl"}
    with writer_of(tmp_path, fields) as writer:
        writer.write({"id": "a", "duration": 1})
        with pytest.raises(FormatError, match=problem):
            writer.write(cut, payloads)
        writer.write({"id": "b", "duration": 1})
    assert [row["id"] for row in rows(tmp_path / "cuts.000000.jsonl")] == ["a", "b"]
    assert [row["cut_id"] for row in rows(tmp_path / "text.000000.jsonl")] == ["a", "b"]
    for field in ("recording", "features", "vector", "packed"):
        assert list(members(tmp_path / f"{field}.000000.tar")) == ["a.nodata", "a.nometa", "b.nodata", "b.nometa"]


def test_an_error_tells_the_cut_and_the_field(tmp_path: Path) -> None:
    with writer_of(tmp_path, {"recording": "wav"}) as writer:
        with pytest.raises(FormatError, match=r"^field recording: has 1 channels.* \(sample 'c'\)$"):
            writer.write(CUT, {"recording": PCM[1:]})
        with pytest.raises(FormatError, match="not str"):
            writer.write("c")
        with pytest.raises(UsageError, match="no field text: there are recording"):
            writer.write(CUT, {"recording": PCM, "text": ""})


@pytest.mark.parametrize(
    ("fields", "options", "problem"),
    [
        ({"recording": "ogg"}, {}, "choose from wav"),
        ({"recording": "numpy"}, {}, "choose from wav"),
        ({"features": "wav"}, {}, "choose from numpy"),
        ({"cuts": "jsonl"}, {}, "cannot be named"),
        ({"a.b": "jsonl"}, {}, "cannot be named"),
        ({"../a": "jsonl"}, {}, "cannot be named"),
        ({}, {"shard_suffix": "x"}, "give shard_size or shard_suffix"),
        ({}, {"shard_size": -1}, "no shards"),
        ({}, {"shard_offset": -1}, "no shards"),
    ],
)
def test_a_writer_that_cannot_be(tmp_path: Path, fields: dict[str, str], options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        writer_of(tmp_path, fields, **options)


@pytest.mark.parametrize("directory", ["s3://bucket/shar", "pipe:cat"])
def test_only_directories_are_written(directory: str) -> None:
    with pytest.raises(UsageError, match="only a local directory"):
        SharWriter(directory, {}, compress_jsonl=False)


def write(path: Path, count: int, **options: Any) -> SharWriter:
    with writer_of(path, {"text": "jsonl", "vector": "numpy"}, **options) as writer:
        for i in range(count):
            writer.write({"id": str(i), "duration": 1.0}, {"text": str(i), "vector": np.array([i])})
    return writer


def test_shards(tmp_path: Path) -> None:
    writer = write(tmp_path / "new" / "shar", 5, shard_size=2, shard_offset=9)
    assert [len(rows(Path(path))) for path in writer.output_paths["cuts"]] == [2, 2, 1]
    assert writer.output_paths["vector"][-1] == str(tmp_path / "new" / "shar" / "vector.000011.tar")
    assert list(members(Path(writer.output_paths["vector"][-1]))) == ["4.npy", "4.json"]


def test_compressed_lines_are_the_same_each_time(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="compress_jsonl=False"):
        write(tmp_path / "a", 3, compress_jsonl=True)
    write(tmp_path / "b", 3, compress_jsonl=True, create_index=False)
    names = ["cuts.000000.jsonl.gz", "text.000000.jsonl.gz", "vector.000000.tar"]
    assert sorted(os.listdir(tmp_path / "b")) == names
    assert sorted(os.listdir(tmp_path / "a")) == [*names, "vector.000000.tar.idx"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    text = gzip.decompress((tmp_path / "a" / "text.000000.jsonl.gz").read_bytes())
    assert [json.loads(line)["cut_id"] for line in text.splitlines()] == ["0", "1", "2"]


def test_without_with(tmp_path: Path) -> None:
    writer = writer_of(tmp_path, {}, shard_size=None, shard_suffix=".dev", create_index=False)
    writer.write({"id": "a", "duration": 1})
    assert not (tmp_path / "cuts.dev.jsonl").exists()
    writer.close()
    assert os.listdir(tmp_path) == ["cuts.dev.jsonl"]
    writer.close()


def test_nothing_written_nothing_made(tmp_path: Path) -> None:
    with writer_of(tmp_path / "shar", {"text": "jsonl"}):
        pass
    assert not (tmp_path / "shar").exists()


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "shar").touch()
    with pytest.raises(SourceError, match="shar: cannot be made"):
        write(tmp_path / "shar", 1)


def test_fields_alone(tmp_path: Path) -> None:
    write(tmp_path, 2, include_cuts=False, create_index=False)
    assert sorted(os.listdir(tmp_path)) == ["text.000000.jsonl", "vector.000000.tar"]


def test_a_full_shard_appears_at_once_and_an_error_drops_the_next(tmp_path: Path) -> None:
    shown = []
    with pytest.raises(ZeroDivisionError), writer_of(tmp_path, {"text": "jsonl"}, shard_size=2) as writer:
        for i in range(3):
            writer.write({"id": str(i), "duration": 1})
            shown.append(sorted(name for name in os.listdir(tmp_path) if not name.startswith(".")))
        raise ZeroDivisionError
    first = [f"{name}.000000.jsonl{index}" for name in ("cuts", "text") for index in ("", ".idx")]
    assert shown == [[], first, first]
    assert sorted(os.listdir(tmp_path)) == first


def test_written_again_it_is_replaced(tmp_path: Path) -> None:
    write(tmp_path, 5)
    write(tmp_path, 3, create_index=False)
    assert sorted(os.listdir(tmp_path)) == ["cuts.000000.jsonl", "text.000000.jsonl", "vector.000000.tar"]
    assert len(rows(tmp_path / "cuts.000000.jsonl")) == 3


def test_a_killed_writer_leaves_whole_shards(tmp_path: Path) -> None:
    script = """
import sys
from touchfs.write import SharWriter
with SharWriter(sys.argv[1], {"text": "jsonl", "vector": "numpy"}, shard_size=2, compress_jsonl=False) as writer:
    for i in range(5):
        writer.write({"id": str(i), "duration": 1}, {"text": i})
    print("ready", flush=True)
    sys.stdin.read()
"""
    arguments = [sys.executable, "-c", script, tmp_path]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGKILL)
    names = {name for name in os.listdir(tmp_path) if not name.startswith(".touchfs-tmp-")}
    files = ("cuts.{}.jsonl", "text.{}.jsonl", "vector.{}.tar")
    expected = {file.format(number) for file in files for number in ("000000", "000001")}
    assert names == expected | {f"{name}.idx" for name in expected}
    assert [row["id"] for row in rows(tmp_path / "cuts.000001.jsonl")] == ["2", "3"]


def test_without_soundfile_a_wav_can_be_written_and_more_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = encoded("wav")
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with writer_of(tmp_path, {"recording": "wav", "noise": "flac"}) as writer:
        writer.write({"id": "a"}, {"recording": Audio(PCM, RATE)})
        writer.write({"id": "b"}, {"recording": data})
        with pytest.raises(MissingExtraError, match=r"flac is written with soundfile .*touchfs-shards\[media\]"):
            writer.write({"id": "c", "duration": 1}, {"noise": Audio(PCM, RATE)})
    assert list(members(tmp_path / "recording.000000.tar")) == ["a.wav", "a.json", "b.wav", "b.json"]


def test_without_lilcom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lilcom", None)
    with (
        writer_of(tmp_path, {"vector": "lilcom"}) as writer,
        pytest.raises(MissingExtraError, match="pip install lilcom"),
    ):
        writer.write({"id": "c", "duration": 1}, {"vector": np.zeros(3)})
