"""Files of many samples, read in one call, are those that each sample gives."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest
from node import data

import touchfs
from touchfs.core.errors import ChangedError, NotFoundError
from touchfs.dataset.samples import DatasetSamples
from touchfs.dataset.segments import MergedSamples, SegmentSamples
from touchfs.indexing import open_dataset
from touchfs.view.plan import parse_plan
from touchfs.write import TarWriter

SHARDS, SAMPLES = 3, 60


@pytest.fixture(scope="module")
def tars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples with two to four files of all sizes, some with `.b`, all with `.a` and `.long.ä`."""
    directory, dice = tmp_path_factory.mktemp("tars"), random.Random(5)
    for shard in range(SHARDS):
        with TarWriter(directory / f"{shard}.tar") as tar:
            for number in range(SAMPLES):
                files = {"a": dice.randbytes(dice.choice([0, 10, 3000, 20_000])), "long.ä": b"%d" % number}
                if number % 3:
                    files["b"] = dice.randbytes(100)
                if number % 7 == 0:
                    files["xa"] = b"another"
                tar.add(f"{'deep/' * (number % 2)}{number}", dict(dice.sample(list(files.items()), len(files))))
    return directory


def choices(count: int) -> list[list[int]]:
    dice = random.Random(9)
    shuffled = dice.sample(range(count), count)
    return [[], [3], [-1, 0, -1], list(range(20, 40)), shuffled, dice.choices(range(-count, count), k=2 * count)]


def test_they_are_those_of_each_sample(tars: Path) -> None:
    ds = touchfs.open(tars)
    sets = [ds, ds.shuffle(3), ds[5:150:3], ds[::-1], ds.where("ordinal > 7"), ds.where("ordinal > 7").shuffle(1)[9:]]
    for each in sets:
        for extension in ("a", "long.ä"):
            for positions in choices(len(each)):
                wanted = [each[position][extension] for position in positions]
                assert each.read(extension, positions) == wanted
                assert each.read(extension, np.array(positions, np.int32)) == wanted
        assert each.read("a", range(2, 50, 3)) == [each[position]["a"] for position in range(2, 50, 3)]


def test_a_sample_without_the_file_is_named(tars: Path) -> None:
    ds = touchfs.open(tars)
    have = [position for position in range(len(ds)) if "b" in ds[position]]
    assert ds.read("b", have) == [ds[position]["b"] for position in have]
    for positions in ([0], range(len(ds))):
        with pytest.raises(NotFoundError, match=r"no file \.b: there are .*\.long\.ä"):
            ds.read("b", positions)
    for strange in ("", "no", "a" * 1000, "\udcff", "\ud800"):
        for positions in ([0], range(len(ds))):
            with pytest.raises(NotFoundError):
                ds.read(strange, positions)


def test_positions_are_integers_in_range(tars: Path) -> None:
    ds = touchfs.open(tars)
    count = len(ds)
    for wrong in ([count], [0, -count - 1], range(count + 1)):
        with pytest.raises(IndexError, match=f"of {count}"):
            ds.read("a", wrong)
    for no_position in ([1.5], ["1"], [[1]], 1, [True]):
        with pytest.raises(TypeError, match="integers"):
            ds.read("a", no_position)
    with pytest.raises(TypeError, match="before map"):
        ds.map(len).read("a", [0])


@pytest.mark.parametrize("view", ["shards", "segments", "merged"])
def test_every_view(view: str) -> None:
    dataset = open_dataset(str(data.speech()))
    plan = parse_plan("max=0.05")
    samples = {"shards": DatasetSamples, "segments": SegmentSamples}.get(view, lambda d: MergedSamples(d, plan))(
        dataset
    )
    positions = [*range(len(samples))] * 10
    for extension in ("wav", "txt"):
        assert samples.read(extension, positions) == [samples[position][extension] for position in positions]


def test_changed_data_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "some.tar"
    with TarWriter(path) as tar:
        for number in range(50):
            tar.add(f"{number}", {"txt": b"%d" % number})
    ds = touchfs.open(path)
    content = path.read_bytes()
    os.unlink(path)
    path.write_bytes(content)
    with pytest.raises(ChangedError):
        ds.read("txt", range(50))


def test_a_set_reads_the_files_of_its_tokens(tars: Path) -> None:
    leaf = touchfs.SampleSet.from_file(tars, indexed=True, shuffle=True, seed=4)
    tokens = [5, 170, 5, 0] * 8
    wanted = [leaf[token]["a"] for token in tokens]
    assert leaf.read("a", tokens) == wanted
    assert leaf.filter(bool).read("a", tokens) == wanted
    assert leaf.shuffle(7).read("a", tokens) == wanted
    with pytest.raises(NotFoundError):
        leaf.read("b", range(40))
