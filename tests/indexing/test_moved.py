"""After a move of the data their index is found again, if they are the same; and never that of other data."""

import json
import os
import shutil
from pathlib import Path

import pytest
from touchnet import write_speech

from touchfs.indexing import open_dataset
from touchfs.shard.options import Options

SAMPLES = [({"key": f"k{i}", "sample_rate": 8000, "txt": f"text {i}"}, bytes(200_000)) for i in range(4)]


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Shards of three kinds, indexed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = tmp_path / "data"
    write_speech(place / "speech", SAMPLES)
    (place / "lines.jsonl").write_text("".join(json.dumps({"id": f"l{i}"}) + "\n" for i in range(5)))
    shutil.make_archive(str(place / "files"), "tar", place / "speech")
    assert len(indexed(place)) == 3
    return place


def indexed(place: Path, **how) -> list[str]:
    """The names of the shards that are indexed at an opening: those of which the data were read."""
    made: list[str] = []

    def see(path: str) -> None:
        if os.stat(catalogs[path]).st_mtime_ns > before:
            made.append(os.path.basename(path))

    before = max((path.stat().st_mtime_ns for path in place.parent.glob("cache/**/*.arrow")), default=0)
    dataset = open_dataset(str(place), **how)
    catalogs = {shard.path: shard.catalog for shard in dataset.shards}
    for path in catalogs:
        see(path)
    for key in ("k2", "l3"):
        assert len(dataset.find(key)) == 1
    return sorted(made)


def test_the_index_of_data_that_were_moved_is_found_again(data):
    moved = data.rename(data.with_name("moved"))
    assert indexed(moved) == []
    dataset = open_dataset(str(moved))
    assert dataset.moved_from == str(data)
    assert dataset.facts()["moved_from"] == str(data)
    assert indexed(moved) == []
    again = moved.rename(data.with_name("again"))
    assert indexed(again) == []
    assert open_dataset(str(again)).moved_from == str(moved)


def test_one_shard_that_was_moved_into_another_dataset(data):
    other = data.with_name("other")
    other.mkdir()
    shutil.copytree(data / "speech", other / "speech")
    (data / "lines.jsonl").rename(other / "lines.jsonl")
    assert indexed(other) == ["speech"]


def test_other_data_at_the_old_path_do_not_disturb_those_that_were_moved(data):
    moved = data.rename(data.with_name("moved"))
    assert indexed(moved) == []
    shutil.copytree(moved, data)
    (data / "lines.jsonl").write_text("".join(json.dumps({"id": f"l{i}", "more": 1}) + "\n" for i in range(9)))
    assert len(indexed(data)) == 3
    assert indexed(moved) == []
    dataset = open_dataset(str(moved))
    assert [shard.samples for shard in dataset.shards if shard.name == "lines"] == [5]


@pytest.mark.parametrize("place", [0, -1])
def test_data_that_only_look_like_those_that_were_indexed_are_indexed(data, place):
    """Of the same size, time and inode, as after a change whose time was set back."""
    moved = data.rename(data.with_name("moved"))
    file = moved / "speech" / "audio.bin"
    before = file.stat()
    with open(file, "r+b") as changing:
        changing.seek(place % before.st_size if place else 0)
        changing.write(b"\1")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert indexed(moved) == ["speech"]


def test_an_index_with_other_options_is_not_taken(data):
    moved = data.rename(data.with_name("moved"))
    assert len(indexed(moved, options=Options(sample_rate=16000))) == 3


def test_a_report_names_the_path_so_what_is_damaged_is_indexed_again(data):
    with open(data / "lines.jsonl", "a", encoding="utf-8") as lines:
        lines.write("not JSON\n")
    assert indexed(data) == ["lines.jsonl"]
    moved = data.rename(data.with_name("moved"))
    assert indexed(moved) == ["lines.jsonl"]
    (report,) = (shard.report for shard in open_dataset(str(moved)).shards if shard.report)
    assert str(moved) in report
