"""The splits of datasets: those that Hugging Face's `datasets` finds, by Python and by commands."""

import json
import subprocess
from pathlib import Path

import datasets
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import TOUCHFS
from mount.mounts import touchfs as run
from s3_server import s3_server
from touchnet import write_speech

import touchfs
from touchfs.core.errors import ArgumentTypeError, TouchfsError, UsageError
from touchfs.core.location import Location
from touchfs.registry.find import find
from touchfs.shard.options import Options
from touchfs.store.place import state_path
from touchfs.stream.open import open_streams

datasets.disable_progress_bars()
# Files of a directory. Each has two rows, with its path in them.
BY_NAME = (
    ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "data/dev.big-00000-of-00001.parquet"],
    ["train/a.parquet", "train/deep/b.parquet", "test/a.parquet", "validation.parquet"],
    ["train-000.parquet", "my_train 1.parquet", "eval.x.parquet", "val1.parquet", "trainer.parquet"],
    ["x/my-dev-2/0.parquet", "x/testing/0.parquet", "x/other/0.parquet"],
    ["training.parquet", "Test.parquet", "evaluation-0.parquet"],
)
ORDER = [Path(place).stem for place in sorted(BY_NAME[0])]


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def write(root: Path, places: list[str]) -> str:
    for place in places:
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": [f"{Path(place).stem}.{i}" for i in range(2)]}), root / place)
    return str(root)


def ids(source: str, split: str | None = None) -> list[str]:
    return [sample.json()["id"] for sample in touchfs.open(source, split=split)]


@pytest.fixture
def source(tmp_path: Path) -> str:
    return write(tmp_path / "source", BY_NAME[0])


@pytest.mark.parametrize("places", BY_NAME, ids=lambda places: places[0])
def test_names_mean_what_they_mean_to_datasets(tmp_path: Path, places: list[str]) -> None:
    source = write(tmp_path / "source", places)
    expected = datasets.load_dataset("parquet", data_dir=source, cache_dir=tmp_path / "hf")
    found = find(Location.of(source))
    splits = {shard.split for shard in found.shards} - {""}
    assert {split: sorted(ids(source, split)) for split in splits} == {
        split: sorted(rows["id"]) for split, rows in expected.items()
    }


def test_lists_say_splits(tmp_path: Path) -> None:
    parts = {name: datasets.Dataset.from_dict({"id": [f"{name}.{i}"] * 3}) for i, name in enumerate(("b", "test", "a"))}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "saved")
    (tmp_path / "x.csv").write_text("id\nx.0\n")
    files = {"train": str(tmp_path / "x.csv"), "other": [str(tmp_path / "x.csv")] * 2}
    built = datasets.load_dataset("csv", data_files=files, cache_dir=tmp_path / "hf")
    cached = str(Path(built["train"].cache_files[0]["filename"]).parent)
    loaded = datasets.load_from_disk(str(tmp_path / "saved"))
    for source, expected in ((str(tmp_path / "saved"), loaded), (cached, built)):
        assert {split: ids(source, split) for split in expected} == {
            split: list(expected[split]["id"]) for split in expected
        }
    assert touchfs.open(cached).data.samples.dataset.facts()["splits"] == {"train": 1, "other": 2}
    hub = write(tmp_path / "hub" / "snapshots" / "5c3e", BY_NAME[0])
    (tmp_path / "hub" / "blobs").mkdir()
    assert ids(str(tmp_path / "hub"), "train") == ids(hub, "train") != []


@pytest.mark.parametrize(
    ("name", "split"),
    [("{train,test}-{0..1}.parquet", "test"), ("t*.parquet", "test"), ("data.list", "test"), ("", "test")],
)
def test_names_with_braces_patterns_and_lists(tmp_path: Path, name: str, split: str) -> None:
    places = [f"{part}-{i}.parquet" for part in ("train", "test") for i in range(2)]
    root = Path(write(tmp_path / "source", places))
    (root / "data.list").write_text("".join(f"{place} metainfo\n" for place in places))
    assert sorted(ids(str(root / name), split)) == [f"{split}-{i}.{row}" for i in range(2) for row in range(2)]


def test_an_unknown_split_is_a_line_that_names_the_others(source: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no split 'test': there are train, dev.big$"):
        touchfs.open(source, split="test")
    with pytest.raises(ArgumentTypeError):
        touchfs.open(source, split=3)  # type: ignore[arg-type]
    done = run("ls", "--split", "test", f"{source}:shards")
    assert done.returncode == 2
    assert done.stderr == f"touchfs: {source}: no split 'test': there are train, dev.big\n"
    other = write(tmp_path / "other", ["a.parquet"])
    assert "there are no splits" in run("info", "--split", "train", other).stderr


def test_without_a_split_samples_and_names_stay(source: str) -> None:
    samples = touchfs.open(source)
    assert [sample.shard for sample in samples] == [name for name in ORDER for _ in range(2)]
    assert samples[0].path("json") == f"shards/dev.big/{ORDER[0]}/{ORDER[0]}.0.json"
    assert touchfs.open(source, split="train")[0].path("json").startswith("shards/train-00000-of-00002/")


def test_a_state_of_another_split_is_refused(tmp_path: Path) -> None:
    same = datasets.Dataset.from_dict({"id": ["x", "y"]})
    datasets.DatasetDict({"train": same, "test": same}).save_to_disk(tmp_path / "saved")
    opened = {split: touchfs.open(tmp_path / "saved", split=split).data for split in (None, "train", "test")}
    next(iter(opened["train"]))
    state = opened["train"].state_dict()
    for other in (None, "test"):
        with pytest.raises(UsageError, match="dataset"):
            opened[other].load_state_dict(state)
    opened["train"].load_state_dict(state)


def test_commands_take_a_split(source: str, tmp_path: Path) -> None:
    train = [f"{name}.{i}" for name in ORDER[1:] for i in range(2)]
    streams = open_streams(source, Options(split="train"))
    assert [made().key for stream in streams for _, made in stream.samples([])] == train
    assert run("ls", f"{source}:shards").stdout.split() == ["dev.big/", "train/"]
    assert run("ls", f"{source}:shards/train").stdout.split() == [f"{name}/" for name in ORDER[1:]]
    assert run("ls", "--split", "train", f"{source}:shards").stdout.split() == [f"{name}/" for name in ORDER[1:]]
    assert "splits:         train (4), dev.big (2)\n" in run("info", source).stdout
    assert json.loads(run("info", "--json", "--split", "train", source).stdout)["samples"] == 4
    assert run("iterate", "--split", "train", source).stdout.count("\n") == 4
    for command, report in (("index", "2 shards"), ("verify", "2 shards"), ("verify --write", "4 checksums")):
        assert report in run(*command.split(), source, "--split", "train").stdout
    path = f"{source}:shards/{ORDER[0]}/{ORDER[0]}.0.json"
    assert json.loads(run("cat", path, "--split", "dev.big").stdout) == {"id": f"{ORDER[0]}.0"}
    for kind in ("parquet", "tar"):
        assert "4 " in run("convert", source, tmp_path / kind, "--to", kind, "--split", "train").stdout
        assert ids(str(tmp_path / kind)) == train
    files = fsspec.filesystem("touchfs", fo=source, split="train")
    assert files.ls("shards", detail=False) == [f"shards/{name}" for name in ORDER[1:]]


def test_metainfo_of_shards_that_are_directories(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write_speech(tmp_path / "source" / split, [({"key": split}, b"ab")])
    assert json.loads(run("meta", "get", "--split", "test", tmp_path / "source").stdout) == {"key": "test"}
    done = subprocess.run(
        [TOUCHFS, "meta", "put", "--jobs", "1", "--split", "train", tmp_path / "source"],
        input=b'{"key": "train", "n": 1}\n',
        check=True,
    )
    assert run("cat", f"{tmp_path / 'source'}:shards/train/train/train.json").stdout == '{"key": "train", "n": 1}', done


def test_each_split_has_its_iterators(source: str) -> None:
    for split, first in (("train", ORDER[1]), ("dev.big", ORDER[0])):
        assert run("iterator", "create", source, "it", "--split", split).returncode == 0
        assert f"/{first}/" in run("iterator", "next", source, "it", "--split", split).stdout
    assert run("iterator", "list", source).stdout == ""
    assert len({state_path(source, "", None, split) for split in (None, "train", "test")}) == 3


def test_links_lead_into_the_directories_of_splits(tmp_path: Path) -> None:
    features = datasets.Features({"id": datasets.Value("string"), "label": datasets.ClassLabel(names=["cat", "dog"])})
    for split, label in (("train", 0), ("test", 1)):
        table = datasets.Dataset.from_dict({"id": [split], "label": [label]}, features=features)
        table.to_parquet(tmp_path / "source" / f"{split}.parquet")
    for link in ("by-key/train.json", "by-label/cat/train/train.json"):
        done = run("cat", f"{tmp_path / 'source'}:{link}")
        assert done.stdout == '{"id": "train", "label": 0}\n', done.stderr


def test_an_index_for_others_is_of_all_splits(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "omit --split" in run("index", source, "--split", "train", "--output", tmp_path / "index").stderr
    assert run("index", source, "--output", tmp_path / "index").returncode == 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    monkeypatch.setenv("TOUCHFS_INDEX", str(tmp_path / "index"))
    assert "indexed already" in run("index", source, "--split", "train").stdout


def test_shards_without_a_list_are_named_beside_one(tmp_path: Path) -> None:
    parts = datasets.DatasetDict({"train": datasets.Dataset.from_dict({"id": ["a"]})})
    parts.save_to_disk(tmp_path / "source" / "saved")
    write(tmp_path / "source" / "plain", ["train-0.parquet", "dev-0.parquet"])
    assert ids(str(tmp_path / "source"), "train") == ["train-0.0", "train-0.1", "a"]
    assert ids(str(tmp_path / "source"), "validation") == ["dev-0.0", "dev-0.1"]


def test_a_spec_selects_the_directory_of_a_split(source: str) -> None:
    run("iterator", "create", source, "it", "--spec", '{"select": "samples/train", "batch": 9}')
    assert run("iterator", "next", source, "it").stdout.count("shards/train/") == 4


def test_a_shard_of_no_split_that_is_called_like_one(tmp_path: Path) -> None:
    source = write(tmp_path / "source", ["train/a.parquet", "test/a.parquet", "train.parquet"])
    assert run("ls", f"{source}:shards").stdout.split() == ["train/", "test/", "train~2/"]
    assert run("ls", f"{source}:shards/train~2").stdout.split() == ["a~2/"]
    assert run("ls", f"{source}:shards/train").stdout.split() == ["train.0.json", "train.1.json"]


def test_in_a_store(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server(monkeypatch) as client:
        client.put(source, "data/deep", recursive=True)
        assert ids("s3://data/deep", "train") == ids(source, "train")
        with pytest.raises(TouchfsError, match="there are train, dev"):
            touchfs.open("s3://data/deep", split="x")
