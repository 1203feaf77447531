"""What a directory is: which of its files are its data, and what is said of the others."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from touchfs.core.errors import FormatError, NotFoundError
from touchfs.core.location import Location
from touchfs.indexing import open_dataset
from touchfs.registry.find import DEPTH_MAX, find

STATE = json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_fingerprint": "0"})
INFO = json.dumps({"splits": {"train": {"name": "train", "dataset_name": "talks"}, "test": {"name": "test"}}})
SUFFIXES = (
    *(".TAR", ".Tar.GZ", ".tgz", ".tbz2", ".txz", ".tzst", ".TGZ", ".JSONL", ".ndjson", ".ndjson.gz", ".NDJSON.zst"),
    *(".PARQUET", ".pq", ".parq", ".feather", ".ipc", ".ARROW"),
)
TWINS = "describes the samples of the tar beside it: name it to read its rows"
MATCHED = ("x-1.tar", "x-2.tar", "y.tar", ".x-0.tar", "x-note", "d/e/x-3.tar", "d/f/x-4.tar")
SAVED = {"state.json": STATE, "dataset_info.json": "{}", "data-00000-of-00001.arrow": "", "cache-0a.arrow": ""}


def make(root: Path, files: Mapping[str, str]) -> str:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


def found(source: str) -> list[str]:
    directory = source if os.path.isdir(source) else os.path.dirname(source)
    return [os.path.relpath(shard.path, directory) for shard in find(Location.of(source)).shards]


def left_out(source: str) -> dict[str, list[str]]:
    return {reason: sorted(paths) for reason, _, paths in find(Location.of(source)).left_out.reasons()}


@pytest.mark.parametrize("name", [f"a{suffix}" for suffix in SUFFIXES])
def test_names_of_shards(tmp_path: Path, name: str) -> None:
    make(tmp_path, {name: ""})
    assert found(str(tmp_path)) == [name]
    assert [shard.path for shard in find(Location.of(tmp_path / name)).shards] == [str(tmp_path / name)]
    dataset = open_dataset(str(tmp_path), in_memory=True)
    assert [shard.name for shard in dataset.shards] == ["a"]


@pytest.mark.parametrize(
    ("files", "data", "others"),
    [
        (SAVED, ["data-00000-of-00001.arrow"], {"not in state.json": ["cache-0a.arrow"]}),
        (SAVED | {"dataset_info.json": "[]"}, ["data-00000-of-00001.arrow"], {"not in state.json": ["cache-0a.arrow"]}),
        (
            {"dataset_info.json": INFO}
            | dict.fromkeys(
                ["talks-train-00000-of-00002.arrow", "any-test.arrow", "mapped-train.arrow", "cache-1.arrow"], ""
            ),
            ["any-test.arrow", "talks-train-00000-of-00002.arrow"],
            {"no file of a split of dataset_info.json": ["cache-1.arrow", "mapped-train.arrow"]},
        ),
        (
            {"dataset_dict.json": '{"splits": ["train", "test"]}', "old/x.arrow": ""}
            | {f"{split}/{name}": text for split in ("train", "test") for name, text in SAVED.items()},
            ["test/data-00000-of-00001.arrow", "train/data-00000-of-00001.arrow"],
            {"not in state.json": ["test/cache-0a.arrow", "train/cache-0a.arrow"], "not in dataset_dict.json": ["old"]},
        ),
        (
            {"state.json": "of a trainer", "a.arrow": ""},
            ["a.arrow"],
            {"JSON; JSON lines are called .jsonl": ["state.json"]},
        ),
        ({"dataset_info.json": '{"splits": []}', "a.arrow": ""}, ["a.arrow"], None),
        (
            dict.fromkeys(["0.tar", "0.parquet", "0_stats.json", "1.TGZ", "1.pq", "2.parquet"], ""),
            ["0.tar", "1.TGZ", "2.parquet"],
            {
                TWINS: [
                    "0.parquet",
                    "0_stats.json",
                    "1.pq",
                ]
            },
        ),
        (dict.fromkeys(["a/b/c/d.tar", "a/b.tar", "a/.hidden/e.tar"], ""), ["a/b.tar", "a/b/c/d.tar"], {}),
        (
            {"refs/main": "two\n", "blobs/abc": "", "snapshots/one/x.tar": "", "snapshots/two/data/x.tar": ""},
            ["snapshots/two/data/x.tar"],
            {"not the revision of refs/main": ["snapshots/one"]},
        ),
        (
            {"models/refs/main": "", "models/blobs/abc": "", "models/snapshots/r/x.tar": ""},
            ["models/snapshots/r/x.tar"],
            {},
        ),
        (
            dict.fromkeys(["a.tar", "a.tar.idx", "a.tar.wds.idx", "skipped.jsonl", "segments", "text", "utt2spk"], ""),
            ["a.tar"],
            {},
        ),
        ({"a.tar": "", "README.md": "", "x": ""}, ["a.tar"], {"a Markdown text": ["README.md"], "not a shard": ["x"]}),
    ],
)
def test_the_data_of_a_directory(
    tmp_path: Path, files: Mapping[str, str], data: list[str], others: dict[str, list[str]] | None
) -> None:
    source = make(tmp_path, files)
    assert found(source) == data
    assert others is None or left_out(source) == others
    assert found(make(tmp_path / "below" / "more", files)) == data


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (SAVED | {"state.json": "{"}, "state.json: is damaged"),
        (SAVED | {"state.json": '{"_data_files": [{"filename": "../x.arrow"}]}'}, "names '../x.arrow'"),
        (SAVED | {"state.json": '{"_data_files": [{"filename": 7}]}'}, "names '7'"),
        (SAVED | {"state.json": '{"_data_files": 7}'}, "has no list"),
        (SAVED | {"state.json": '{"_data_files": [], "_indices_data_files": [{}]}'}, "by indices"),
        ({"dataset_dict.json": '{"splits": ["/etc"]}'}, "names '/etc'"),
        ({".hoodie/hoodie.properties": "", "a.parquet": ""}, "is a Hudi table"),
        ({"metadata/v1.metadata.json": "", "data/a.parquet": ""}, "is an Iceberg table"),
        ({"blobs/a": "", "snapshots/a/x.tar": "", "snapshots/b/x.tar": ""}, "name one, as snapshots/a"),
    ],
)
def test_lists_that_are_refused(tmp_path: Path, files: Mapping[str, str], told: str) -> None:
    """Of the source itself, that is an error. Below it, that directory is left out, and the reason is the same."""
    with pytest.raises(FormatError, match=told.replace("(", r"\(")):
        find(Location.of(make(tmp_path / "it", files)))
    make(tmp_path, {"other.tar": ""})
    assert found(str(tmp_path)) == ["other.tar"]
    assert told.partition(": ")[2] or told in str(find(Location.of(tmp_path)).left_out)


def test_no_directory_is_entered_twice(tmp_path: Path) -> None:
    make(tmp_path, {"a/x.tar": "", "/".join("d" * (DEPTH_MAX + 2)) + "/deep.tar": ""})
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "again").symlink_to("a")
    (tmp_path / "round").symlink_to(".")
    (tmp_path / "gone.tar").symlink_to("nowhere")
    assert found(str(tmp_path)) == ["a/x.tar", "again/x.tar"]
    reasons = left_out(str(tmp_path))
    assert reasons.pop("a link that leads nowhere, or not a file") == ["gone.tar"]
    assert reasons.pop("another link to a directory that is here") == ["a/loop", "again/loop", "round"]
    assert [paths[0].count("/") for paths in reasons.values()] == [DEPTH_MAX]


def test_patterns(tmp_path: Path) -> None:
    make(tmp_path, dict.fromkeys(MATCHED, ""))
    for pattern, expected in {
        "x-*.tar": ["x-1.tar", "x-2.tar"],
        "[xy]*.t?r": ["x-1.tar", "x-2.tar", "y.tar"],
        "d/*/x-*": ["d/e/x-3.tar", "d/f/x-4.tar"],
        "**/x-*.tar": ["d/e/x-3.tar", "d/f/x-4.tar", "x-1.tar", "x-2.tar"],
        "d*": ["d/e/x-3.tar", "d/f/x-4.tar"],
        "d/**": ["d/e/x-3.tar", "d/f/x-4.tar"],
        "d/**/*": ["d/e/x-3.tar", "d/f/x-4.tar"],
        "{x-*,y}.tar": ["x-1.tar", "x-2.tar", "y.tar"],
    }.items():
        shards = find(Location.of(tmp_path / pattern)).shards
        assert [os.path.relpath(shard.path, tmp_path) for shard in shards] == expected, pattern
    assert str(find(Location.of(tmp_path / "x-*")).left_out) == "1 file left out: x-note (not a shard)"
    with pytest.raises(NotFoundError, match="nothing here matches"):
        find(Location.of(tmp_path / "z*.tar"))
    make(tmp_path, {"lit*eral.tar": "", "literal.tar": ""})
    only = tmp_path / "lit*eral.tar"
    assert [shard.path for shard in find(Location.of(only)).shards] == [str(only)]
