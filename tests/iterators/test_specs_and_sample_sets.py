"""A pass is the same one whether a spec or a `SampleSet` makes it: each takes the other's state, wherever it is."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import iterator_data
import pytest

from touchfs import SampleSet
from touchfs.core.token import to_json
from touchfs.dataset import Dataset
from touchfs.dataset.segments import MergedSamples, SegmentSamples
from touchfs.indexing import open_dataset
from touchfs.iterators.iterators import Iterators
from touchfs.node import LazyIndexedManifestIterator, LazyLengthBatcher, LazyMixture, collect_state_dict
from touchfs.store.store import StateStore
from touchfs.view.plan import parse_plan

DATA = Path(__file__).parent.parent / "data"
# What an earlier version wrote (tests/data/global_shuffle/passes.py): a token of each spec, and the lines around it.
KEPT = json.loads((DATA / "global_shuffle" / "specs.json").read_text())
PLAN = "max=0.02,gap=0.1"
RANK = {"rank": 1, "world_size": 3}
BATCHES = {**RANK, "partition": "batches", "global_batch": 6, "tail": "pad"}
WINDOW = {"window": 5, "lanes": 2}
BLOCK = {**RANK, "partition": "block", "tail": "pad"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("source") / "shards"
    iterator_data.make_shards(path)
    return path


@pytest.fixture(scope="module")
def dataset(source: Path) -> Dataset:
    return open_dataset(os.fspath(source), in_place=True)


@pytest.fixture
def iterators(tmp_path: Path, dataset: Dataset) -> Iterator[Iterators]:
    with closing(StateStore(os.fspath(tmp_path / "store.sqlite"))) as store:
        yield Iterators(store, dataset)


def whole(source: Path, **order: Any) -> SampleSet:
    return SampleSet.from_file(source, indexed=True, **order)


def segments(source: Path) -> SampleSet:
    return SampleSet(LazyIndexedManifestIterator(SegmentSamples(open_dataset(os.fspath(source)))))


def merged(source: Path) -> SampleSet:
    return SampleSet(LazyIndexedManifestIterator(MergedSamples(open_dataset(os.fspath(source)), parse_plan(PLAN))))


def by_length(samples: Any, seconds: float, **options: Any) -> SampleSet:
    return SampleSet(LazyLengthBatcher(samples, seconds, **options))


# The spec, and each way to say the same with methods.
PASSES: dict[str, tuple[dict[str, Any], list[Callable[[Path], SampleSet]]]] = {
    "plain": ({}, [whole]),
    "shuffled": ({"shuffle": 7}, [lambda s: whole(s).shuffle(7), lambda s: whole(s, shuffle=True, seed=7)]),
    "shuffled with seed 0": ({"shuffle": 0}, [lambda s: whole(s).shuffle(), lambda s: whole(s, shuffle=True)]),
    "shuffled again": ({"shuffle": 7}, [lambda s: whole(s, shuffle=True, seed=3).shuffle(7)]),
    "one rank": (RANK, [lambda s: whole(s, **RANK)]),
    "one rank, shuffled": (
        {"shuffle": 7, **RANK},
        [lambda s: whole(s).shuffle(7, **RANK), lambda s: whole(s, shuffle=True, seed=7, **RANK)],
    ),
    "a padded block": (BLOCK, [lambda s: whole(s, **BLOCK)]),
    "a padded block, shuffled": (
        {"shuffle": 7, **BLOCK},
        [lambda s: whole(s).shuffle(7, **BLOCK), lambda s: whole(s, shuffle=True, seed=7, **BLOCK)],
    ),
    "a rank without a tail": (
        {"shuffle": 7, **RANK, "tail": "drop"},
        [lambda s: whole(s).shuffle(7, **RANK, tail="drop")],
    ),
    "global batches": ({**BATCHES}, [lambda s: whole(s, **BATCHES)]),
    "global batches, shuffled in windows": (
        {"shuffle": 7, **BATCHES, **WINDOW},
        [
            lambda s: whole(s).shuffle(7, **BATCHES, **WINDOW),
            lambda s: whole(s, shuffle=True, seed=7, **BATCHES, **WINDOW),
        ],
    ),
    "repeated": ({"repeat": 3}, [lambda s: whole(s).repeat(3)]),
    "repeated, shuffled": ({"shuffle": 7, "repeat": 3}, [lambda s: whole(s).shuffle(7).repeat(3)]),
    "repeated without end": ({"shuffle": 7, "repeat": True, **RANK}, [lambda s: whole(s).shuffle(7, **RANK).repeat()]),
    "mux": (
        {"mux": [{"weight": 3}, {"select": "segments"}], "shuffle": 7},
        [lambda s: whole(s).shuffle(7).mux(segments(s).shuffle(7), weights=[3, 1], seed=7)],
    ),
    "mux of other seeds": (
        {"mux": [{"shuffle": 2}, {"shuffle": 3, "repeat": 2}, {}], "shuffle": 5, "repeat": 2, **RANK},
        [
            lambda s: (
                whole(s)
                .shuffle(2, **RANK)
                .mux(whole(s).shuffle(3, **RANK).repeat(2), whole(s).shuffle(5, **RANK), seed=5)
                .repeat(2)
            )
        ],
    ),
    "mux in order": (
        {"mux": [{}, {"select": "segments"}]},
        [lambda s: SampleSet.mux(whole(s), segments(s))],
    ),
    "an exact mixture": (
        {"mux": [{"shuffle": 2}, {"select": "segments"}], "weights": {"0": [3, 1], "9": [0.5, 0.5]}, **BATCHES},
        [lambda s: SampleSet(LazyMixture(whole(s).shuffle(2), segments(s), weights={0: [3, 1], 9: [1, 1]}, **BATCHES))],
    ),
    "a mixture by seconds": (
        {"mux": [{"shuffle": 2}, {"select": "segments"}], "weights": [3, 1], "by": "seconds", **BATCHES},
        [lambda s: SampleSet(LazyMixture(whole(s).shuffle(2), segments(s), weights=[3, 1], by="seconds", **BATCHES))],
    ),
    "an exact mixture that stops": (
        {"mux": [{}, {"select": "segments"}], "weights": [3, 1], "end": "stop", "shuffle": 5, "repeat": 2},
        [
            lambda s: SampleSet(
                LazyMixture(whole(s).shuffle(5), segments(s).shuffle(5), weights=[3, 1], seed=5, end="stop")
            ).repeat(2)
        ],
    ),
    "batches by length": (
        {"shuffle": 7, "window": 5, "max_duration": 0.4, **BATCHES},
        [lambda s: by_length(whole(s).shuffle(7, window=5), 0.4, rank=1, world_size=3, tail="pad", global_batch=6)],
    ),
    "packed segments, repeated": (
        {"select": "segments", "shuffle": 7, "repeat": 2, "max_duration": 0.02, "pack": True},
        [lambda s: by_length(segments(s).shuffle(7), 0.02, pack=True).repeat(2)],
    ),
    "a packed mixture": (
        {"mux": [{"shuffle": 2}, {"select": "segments"}], "weights": [3, 1], "max_duration": 0.4, "pack": True},
        [lambda s: by_length(LazyMixture(whole(s).shuffle(2), segments(s), weights=[3, 1]), 0.4, pack=True)],
    ),
    "segments": ({"select": "segments", "shuffle": 7}, [lambda s: segments(s).shuffle(7)]),
    "merged": ({"select": f"merged/{PLAN}", "shuffle": 7}, [lambda s: merged(s).shuffle(7)]),
}
CASES = [(name, which) for name, (_, sets) in PASSES.items() for which in range(len(sets))]
STEPS = 5


def taken(iterators: Iterators, iterator: int, count: int) -> list[str]:
    return "".join(iterators.read(iterator, "next") for _ in range(count)).split()


def items(samples: SampleSet) -> Iterator[str]:
    """As `next` tells them. An empty text ends an epoch; the one after it begins the next."""
    while True:
        for item in samples:
            batch = item if isinstance(item, list) else [item]
            yield "\n".join(sample.first_path().decode() for sample in batch)
        yield ""


@pytest.mark.parametrize(("name", "which"), CASES)
def test_a_spec_and_a_sample_set_take_each_others_states(
    iterators: Iterators, source: Path, name: str, which: int
) -> None:
    spec, sets = PASSES[name]
    iterator = iterators.create("train")
    iterators.write(iterator, "spec", spec)
    told = items(sets[which](source))
    # A place in epoch 0, one at its end, and one in an epoch behind it.
    for _ in range(4):
        assert taken(iterators, iterator, STEPS) == " ".join(islice(told, STEPS)).split()
        token = json.loads(iterators.read(iterator, "token"))
        samples = sets[which](source)
        samples.load_state_dict(token)
        assert {"kind": "state", **collect_state_dict(samples.data)} == token
        restored = items(samples)
        before = [next(restored) for _ in range(STEPS)]
        state = samples.state_dict()
        other = iterators.create("other")
        iterators.write(other, "spec", spec)
        iterators.write(other, "token", json.loads(to_json(state)))
        assert taken(iterators, other, STEPS) == " ".join(islice(restored, STEPS)).split()
        iterators.write(other, "token", token)
        assert taken(iterators, other, STEPS) == " ".join(before).split()
        iterators.remove("other")


def test_a_state_of_another_seed_or_rank_is_refused_both_ways(iterators: Iterators, source: Path) -> None:
    from touchfs.core.errors import UsageError

    iterator = iterators.create("train")
    iterators.write(iterator, "spec", {"shuffle": 7, **RANK})
    token = json.loads(iterators.read(iterator, "token"))
    for other, why in (
        (whole(source).shuffle(8, **RANK), "seed = 7, here it is 8"),
        (whole(source).shuffle(7, rank=0, world_size=3), "one rank's own"),
        (whole(source, **RANK), "seed = 7, here it is None"),
        (whole(source).map(str).shuffle(7, **RANK), "graph"),
    ):
        with pytest.raises(UsageError, match=why):
            other.load_state_dict(token)
        with pytest.raises(UsageError):
            iterators.write(iterator, "token", other.state_dict())


def test_shuffling_begins_at_the_start_of_a_set_that_was_restored(source: Path) -> None:
    samples = whole(source)
    next(iter(samples))
    samples.load_state_dict(samples.state_dict())
    assert list(samples.shuffle(7)) == list(whole(source).shuffle(7))
    assert len(list(samples)) == len(samples) - 1


@pytest.mark.parametrize("name", KEPT)
def test_a_spec_goes_on_from_a_token_that_was_kept(tmp_path: Path, name: str) -> None:
    kept = KEPT[name]
    shutil.copytree(DATA / "kept" / "dataset", tmp_path / "dataset")
    with closing(StateStore(os.fspath(tmp_path / "store.sqlite"))) as store:
        iterators = Iterators(store, open_dataset(os.fspath(tmp_path / "dataset")))
        iterator = iterators.create("train")
        iterators.write(iterator, "spec", kept["spec"])
        assert [iterators.read(iterator, "next") for _ in kept["taken"]] == kept["taken"]
        assert json.loads(iterators.read(iterator, "token")) == kept["token"]
        iterators.write(iterator, "reset", 1)
        iterators.write(iterator, "token", kept["token"])
        assert iterators.read(iterator, "next") == kept["then"]
