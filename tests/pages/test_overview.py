"""The overview of a dataset: what is not indexed is not counted, and the page says so."""

import json

import pytest

from touchfs.explore.terminal import Terminal
from touchfs.indexing import list_dataset
from touchfs.pages import overview
from touchfs.pages.overview import Overview


@pytest.fixture
def source(tmp_path):
    """Three shards of JSON lines."""
    for name in "abc":
        lines = [json.dumps({"id": f"{name}{number}", "text": "one two", "lang": name}) for number in range(4)]
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / f"data/{name}.jsonl").write_text("\n".join(lines) + "\n")
    return str(tmp_path / "data")


def lines_of(dataset, most_texts=100):
    return [*Terminal(80).lines(Overview(dataset).page("data", most_texts))]


def test_a_large_dataset_is_not_indexed_for_a_look(source, monkeypatch):
    monkeypatch.setattr(overview, "INDEXED_BYTES", 1)
    dataset = list_dataset(source)
    lines = lines_of(dataset)
    assert dataset.indexed_count == 1 and lines[1].startswith("4 samples")
    told = " ".join(lines[:5])
    assert "1 of 3 shards are indexed, and counted here: `touchfs index " in told and "indexes the others" in told
    dataset.shard(2)
    assert lines_of(dataset)[1].startswith("8 samples")


def test_a_small_one_is(source):
    dataset = list_dataset(source)
    lines = lines_of(dataset)
    assert dataset.indexed_count == 3 and lines[1].startswith("12 samples")
    assert not any("indexed" in line or "random" in line for line in lines)
    assert any(line.startswith("Text  median 7 characters") for line in lines)


def test_the_basis_of_texts_is_named(source):
    assert "texts of 5 random samples" in lines_of(list_dataset(source), 5)
