"""`manifests/` through the kernel: the tools themselves read the lists, and the files that these name."""

from __future__ import annotations

import gc
import json
import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import soundfile
from mounts import Mount, touchfs
from tars import write_samples
from wav_files import wav_of

RATE = 8000
LISTS = [
    *(
        "catalog.arrow",
        "extents.parquet",
        "filelist.txt",
        "hf/metadata.csv",
        "left_out.txt",
        "nemo_manifest.jsonl",
        "wenet/data.list",
    ),
    *(f"kaldi/{name}" for name in ("reco2dur", "segments", "spk2utt", "text", "utt2dur", "utt2spk", "wav.scp")),
    *(f"lhotse/{name}.jsonl" for name in ("cuts", "recordings", "supervisions")),
]
SEGMENTS = [
    {"start": 0.25, "end": 0.5, "text": "Good\nmorning.", "speaker": "Ann Lee"},
    {"start": 0.625, "end": 1.001, "text": "早上好。"},
]
KEYS = ["talks/monday", "a b", "💬", "é="]


def samples_of(key: str, channels: int = 1) -> np.ndarray:
    random = np.random.default_rng(len(key) + ord(key[0]))
    return random.integers(-(2**15), 2**15, (2 * RATE, channels), "<i2")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    """Recordings with and without segments, in two tars."""
    place = tmp_path_factory.mktemp("manifests") / "set"
    for number, keys in enumerate((KEYS[:2], KEYS[2:])):
        text = {"txt": b"one\ttwo"} if number else {"json": json.dumps({"segments": SEGMENTS}).encode()}
        write_samples(place / f"{number}.tar", {key: {"wav": wav_of(samples_of(key), RATE), **text} for key in keys})
    return place


@pytest.fixture(scope="module")
def mounted(dataset, tmp_path_factory) -> Iterator[Mount]:
    """For tests that only read."""
    mounted = Mount(tmp_path_factory.mktemp("mounted") / "mnt", dataset)
    yield mounted
    mounted.end()


def test_a_listing_makes_no_lists(mount, dataset, tmp_path):
    mounted = mount(dataset, "--scratch-dir", tmp_path / "scratch")
    found = subprocess.run(["find", mounted.path, "-type", "f"], capture_output=True, check=True, text=True).stdout
    assert {f"{mounted.path}/manifests/{name}" for name in LISTS} <= set(found.splitlines())
    assert not (tmp_path / "scratch").exists()
    assert (mounted.path / "manifests" / "filelist.txt").stat().st_size > 0
    assert (tmp_path / "scratch").exists()


def test_sizes_are_those_of_the_contents(mounted, tmp_path):
    place = mounted.path / "manifests"
    found = subprocess.run(
        ["find", place, "-type", "f", "-printf", "%P %s\n"], capture_output=True, check=True, text=True
    )
    sizes = {line.split()[0]: int(line.split()[1]) for line in found.stdout.splitlines()}
    assert sorted(sizes) == sorted(LISTS)
    for name, size in sizes.items():
        assert len((place / name).read_bytes()) == size
    assert subprocess.run(["cp", "-r", place, tmp_path / "copy"], check=False).returncode == 0
    for name in LISTS:
        assert (tmp_path / "copy" / name).read_bytes() == (place / name).read_bytes()


@pytest.mark.filterwarnings("ignore")
def test_lhotse_reads_kaldis_lists_and_its_own(mounted):
    import lhotse  # as other peers, only here: each process of the tests imports all files of tests
    from lhotse.kaldi import load_kaldi_data_dir

    recordings, supervisions, _ = load_kaldi_data_dir(mounted.path / "manifests" / "kaldi", RATE)
    ids = dict(zip(["talks/monday", "a=20b", "💬", "é=3D"], KEYS, strict=True))
    assert {recording.id for recording in recordings} == ids.keys()
    own = lhotse.load_manifest(mounted.path / "manifests" / "lhotse" / "recordings.jsonl")
    spoken = lhotse.load_manifest(mounted.path / "manifests" / "lhotse" / "supervisions.jsonl")
    cuts = lhotse.load_manifest(mounted.path / "manifests" / "lhotse" / "cuts.jsonl")
    lhotse.validate_recordings_and_supervisions(recordings, supervisions)
    lhotse.validate_recordings_and_supervisions(own, spoken)
    lhotse.validate(cuts)
    assert len(list(spoken)) == len(list(supervisions)) == 6
    assert sorted(each.text for each in spoken) == sorted(each.text for each in supervisions)
    for each in cuts:
        audio = samples_of(ids[each.id])[:, 0] / 2**15
        np.testing.assert_array_equal(each.load_audio()[0], audio.astype(np.float32))
        np.testing.assert_array_equal(recordings[each.id].load_audio()[0], audio.astype(np.float32))
        for one in each.trim_to_supervisions(keep_overlapping=False):
            first = round((one.start) * RATE)
            np.testing.assert_array_equal(
                one.load_audio()[0], audio[first : first + one.num_samples].astype(np.float32)
            )


def test_nemo_and_wenet_and_an_audio_folder_name_what_is_there(mounted):
    import pandas

    place = mounted.path / "manifests"
    lines = [json.loads(line) for line in (place / "nemo_manifest.jsonl").read_text().splitlines()]
    assert len(lines) == 6
    for line in lines:
        first, count = int(line["offset"] * RATE), int(line["duration"] * RATE)
        samples, rate = soundfile.read(line["audio_filepath"], count, first, dtype="int16")
        assert (rate, len(samples)) == (RATE, count)
    assert [json.loads(line)["wav"] for line in (place / "wenet" / "data.list").read_text().splitlines()] == [
        line["audio_filepath"] for line in lines
    ]
    rows = pandas.read_csv(place / "hf" / "metadata.csv")
    for (_, row), line in zip(rows.iterrows(), lines, strict=True):
        assert not row["file_name"].startswith(("/", "."))
        samples, _ = soundfile.read(place / "hf" / row["file_name"], dtype="int16")
        first = int(line["offset"] * RATE)
        whole, _ = soundfile.read(line["audio_filepath"], dtype="int16")
        np.testing.assert_array_equal(samples, whole[first : first + len(samples)])
        assert len(samples) == row["duration"] * RATE
    for path in (place / "filelist.txt").read_text().splitlines():
        assert os.path.isfile(path)


@pytest.fixture
def load_dataset(tmp_path, monkeypatch):
    """Hugging Face's `load_dataset` of an AudioFolder, without a network, and with a cache of its own."""
    import datasets

    for name in ("HF_DATASETS_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.setattr(datasets.config, name, True)
    yield partial(datasets.load_dataset, "audiofolder", cache_dir=str(tmp_path / "cache"), split="train")
    gc.collect()  # it leaves the list open, and the mount would be busy


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("streaming", [False, True])
def test_datasets_loads_an_audio_folder(mounted, load_dataset, streaming):
    """Rows, paths and bytes, with decoding off."""
    import datasets

    place = mounted.path / "manifests" / "hf"
    loaded = load_dataset(data_files=str(place / "metadata.csv"), streaming=streaming)
    rows = {row["audio"]["path"]: row for row in loaded.cast_column("audio", datasets.Audio(decode=False))}
    segments = {f"segments/0/{key}/{i:04d}.wav": (key, SEGMENTS[i]) for key in KEYS[:2] for i in range(2)}
    whole = {f"shards/1/{key}.wav": (key, {"start": 0, "end": 2, "text": "one two"}) for key in KEYS[2:]}
    assert rows.keys() == {str(place / path) for path in segments | whole}
    for path, (key, segment) in (segments | whole).items():
        row = rows[str(place / path)]
        assert row["transcription"] == " ".join(segment["text"].split())
        assert (row["speaker"], row["language"]) == (segment.get("speaker"), None)
        first, last = (round(segment[name] * RATE) for name in ("start", "end"))
        assert row["duration"] == (last - first) / RATE
        data = row["audio"]["bytes"] or Path(row["audio"]["path"]).read_bytes()
        assert data[44:] == samples_of(key)[first:last].tobytes()


def test_arrow_libraries_open_the_catalog(mounted):
    import pandas
    import pyarrow

    catalog = mounted.path / "manifests" / "catalog.arrow"
    with pyarrow.memory_map(os.fspath(catalog)) as file:
        table = pyarrow.ipc.open_file(file).read_all()
        table.validate(full=True)
        assert table.num_rows == 6
        assert all(os.path.isfile(path) for path in table["path"].to_pylist())
        frame = pandas.read_feather(catalog)
        assert frame["text"].tolist() == table["text"].to_pylist()
        assert frame[frame["speaker"] == "Ann Lee"]["duration"].tolist() == [0.25, 0.25]


def test_polars_and_duckdb_open_the_catalog(mounted):
    import duckdb
    import polars
    import pyarrow.dataset

    catalog = mounted.path / "manifests" / "catalog.arrow"
    frame = polars.scan_ipc(catalog).filter(polars.col("speaker") == "Ann Lee").select("duration").collect()
    assert frame["duration"].to_list() == [0.25, 0.25]
    utterances = pyarrow.dataset.dataset(catalog, format="arrow")  # noqa: F841  the query names it
    assert duckdb.sql("SELECT sum(length) FROM utterances WHERE text = 'one two'").fetchall() == [(4 * RATE,)]


def test_lists_of_a_changed_dataset_are_other_files(mount, dataset, tmp_path):
    place = tmp_path / "set"
    place.mkdir()
    (place / "0.tar").write_bytes((dataset / "0.tar").read_bytes())
    mounted = mount(place)
    file = mounted.path / "manifests" / "filelist.txt"
    assert file.read_text().count("\n") == 2
    (place / "1.tar").write_bytes((dataset / "1.tar").read_bytes())
    assert touchfs("reload", mounted.path).returncode == 0
    lines = file.read_text().splitlines()
    assert len(lines) == 4
    assert file.stat().st_size == sum(len(os.fsencode(line)) + 1 for line in lines)


def test_the_prefix_of_paths(mount, dataset):
    mounted = mount(dataset, "--path-prefix", "/elsewhere")
    assert (mounted.path / "manifests" / "filelist.txt").read_text().startswith("/elsewhere/shards/")
