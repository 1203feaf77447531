"""Opening a dataset looks at each of its files once, however many parts of the opening have to know it."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from touchnet import write_speech

from touchfs.indexing import open_dataset
from touchfs.source.local_store import LocalStore

SAMPLES = [({"key": f"k{i}", "sample_rate": 8000}, bytes(2000)) for i in range(2)]
FILES = (
    "a.jsonl",
    "b.jsonl",
    *(f"speech/{modality}.{suffix}" for modality in ("audio", "metainfo") for suffix in ("bin", "idx")),
)


@pytest.fixture
def looks(monkeypatch):
    """The number of times that the store was asked about each path."""
    seen: Counter[str] = Counter()
    for name in ("stat", "list"):
        ask = getattr(LocalStore, name)

        def counted(store, path, name=name, ask=ask):
            seen[f"{name} {path}"] += 1
            return ask(store, path)

        monkeypatch.setattr(LocalStore, name, counted)
    return seen


@pytest.fixture
def data(tmp_path: Path) -> Path:
    place = tmp_path / "data"
    write_speech(place / "speech", SAMPLES)
    for name in ("a", "b"):
        (place / f"{name}.jsonl").write_text(json.dumps({"id": name}) + "\n")
    return place


@pytest.mark.parametrize("patience", [None, 10])
def test_an_indexed_dataset(data, looks, patience):
    open_dataset(str(data), in_memory=True)
    looks.clear()
    dataset = open_dataset(str(data), in_memory=True, patience_seconds=patience)
    assert dataset.samples == 4
    assert {name: looks[f"stat {data / name}"] for name in FILES} == dict.fromkeys(FILES, 1)
    assert looks[f"list {data}"] == looks[f"list {data / 'speech'}"] == 1


def test_a_shard_that_changed(data, looks):
    """One look finds that out, and one is that of the job which indexes it, perhaps much later."""
    open_dataset(str(data), in_memory=True)
    looks.clear()
    os.utime(data / "a.jsonl")
    assert open_dataset(str(data), in_memory=True).samples == 4
    assert (looks[f"stat {data / 'a.jsonl'}"], looks[f"stat {data / 'b.jsonl'}"]) == (2, 1)
