"""Directories of other tools, opened, streamed, converted and read from a store: the same samples everywhere."""

import json
import subprocess
from pathlib import Path

import datasets
import pytest
from command import TOUCHFS, in_one_process
from s3_server import asked_of_s3, s3_server

import touchfs
from touchfs.core.errors import UsageError
from touchfs.indexing import open_dataset
from touchfs.registry.find import find_shards
from touchfs.stream.open import open_streams

datasets.disable_progress_bars()
IDS = [f"r{i}" for i in range(6)]


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A dataset saved by its tool, which later put caches beside it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = str(tmp_path / "saved")
    datasets.Dataset.from_dict({"id": IDS, "n": list(range(6))}).save_to_disk(path, num_shards=2)
    loaded = datasets.load_from_disk(path)
    loaded.map(lambda row: {"m": row["n"]}).filter(lambda row: row["n"] > 1)
    loaded.shuffle(seed=1)
    return path


def keys(source: str) -> list[str]:
    return [made().key for stream in open_streams(source) for _, made in stream.samples([])]


def test_the_same_samples_everywhere(saved: str, tmp_path: Path) -> None:
    assert [sample.key for sample in touchfs.open(saved)] == keys(saved) == IDS
    for command in (["info", saved], ["convert", saved, tmp_path / "out", "--to", "parquet"]):
        done = subprocess.run([TOUCHFS, *in_one_process(*command)], capture_output=True, text=True, check=True)
        assert ("3 files left out: cache-" in done.stdout) == (command[0] == "info")
    assert [sample.key for sample in touchfs.open(tmp_path / "out")] == IDS


def test_a_cache_of_load_dataset(saved: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id,n\na,1\nb,2\n")
    loaded = datasets.load_dataset("csv", data_files=str(tmp_path / "x.csv"), split="train", cache_dir=tmp_path / "hf")
    loaded.map(lambda row: {"m": row["n"]})
    assert keys(str(Path(loaded.cache_files[0]["filename"]).parent)) == ["a", "b"]
    splits = datasets.DatasetDict({"train": loaded, "test": loaded})
    splits.save_to_disk(tmp_path / "splits")
    assert keys(str(tmp_path / "splits")) == ["a", "b"] * 2


def test_a_state_of_more_samples_is_refused(saved: str) -> None:
    listing = Path(saved) / "state.json"
    text = listing.read_text()
    listing.write_text("{}")  # as a version that did not read it
    before = touchfs.open(saved).data
    next(iter(before))
    state = before.state_dict()
    listing.write_text(text)
    with pytest.raises(UsageError, match="dataset"):
        touchfs.open(saved).data.load_state_dict(state)


def test_in_a_store(saved: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server(monkeypatch) as client:
        client.put(saved, "data/deep/a/b/saved", recursive=True)
        with asked_of_s3() as asked:
            assert keys("s3://data/deep") == IDS
        assert len([each for each in asked if each.endswith("state.json")]) < 4
        dataset = open_dataset("s3://data/deep/a/b/s*", in_memory=True)
        assert dataset.samples == 6
        assert json.loads(json.dumps(dataset.facts()))["left_out"][0]["files"] == 3


def test_a_directory_is_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server(monkeypatch) as client:
        for name in ("a.jsonl", "train/b.jsonl", "train/c.jsonl", "dev/d.jsonl"):
            client.pipe(f"data/g/{name}", b'{"id": "x"}\n')
        with asked_of_s3() as asked:
            assert len(find_shards("s3://data/g")) == 4
        assert asked == ["head_object g", *["list_objects_v2"] * 4], "is it a directory, and what is in three of them"


def test_a_path_with_an_empty_part(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Clients cannot list it, so what is there is named, and can be read by its name."""
    with s3_server(monkeypatch) as client:
        client.call_s3("put_object", Bucket="data", Key="m/", Body=b"")  # as consoles mark a directory
        for name in ("m/a.jsonl", "m//b.jsonl", "m//d/c.jsonl"):
            client.pipe(f"data/{name}", json.dumps({"id": name}).encode())
        assert keys("s3://data/m") == ["m/a.jsonl"]
        assert "s3://data/m//: left out, as a part of its path is empty" in caplog.text
        assert "name its files, as s3://data/m//b.jsonl, s3://data/m//d/c.jsonl" in caplog.text
        for url in ("s3://data/m//b.jsonl", "s3://data/m//d/c.jsonl"):
            (sample,) = open_dataset(url, in_memory=True).shards
            assert (sample.report, sample.samples) == ("", 1)
            assert keys(url) == [url.removeprefix("s3://data/")]
