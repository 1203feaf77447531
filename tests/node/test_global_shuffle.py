"""A global shuffle: its states and tokens, also those of tests/data/global_shuffle."""

from __future__ import annotations

import importlib.util
import json
import random
import shutil
from collections.abc import Callable
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest

from touchfs import SampleSet
from touchfs.core.errors import UsageError
from touchfs.node import (
    LazyFilter,
    LazyGlobalShuffle,
    LazyIndexedManifestIterator,
    LazyIteratorChain,
    LazyMapper,
    collect_state_dict,
    load_state,
    merge_states,
    save_state,
    share_of,
)

DATA = Path(__file__).parent.parent / "data"
GOLDEN = DATA / "global_shuffle"
KEPT = json.loads((GOLDEN / "passes.json").read_text())
CASES = [(name, case) for name, kept in KEPT.items() for case in kept]
PASSES = [(name, case) for name, case in CASES if case != "merged"]


@pytest.fixture(scope="module")
def golden() -> Any:
    found = importlib.util.spec_from_file_location("passes", GOLDEN / "passes.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def passes(golden: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[..., SampleSet]]:
    place = tmp_path_factory.mktemp("global_shuffle")
    for name in ("dataset", "shar"):
        shutil.copytree(DATA / "kept" / name, place / name)
    made: dict[str, Callable[..., SampleSet]] = golden.passes(place / "dataset", place / "shar")
    return made


def _ranks(case: str) -> dict[str, int]:
    return {"rank": 1, "world_size": 2} if case == "a rank" else {}


@pytest.mark.parametrize(("name", "case"), CASES)
def test_it_goes_on_from_a_state_that_was_kept(golden: Any, passes: Any, name: str, case: str) -> None:
    kept = KEPT[name][case]
    samples = passes[name](**_ranks(case))
    samples.load_state_dict(kept["state"])
    assert case == "merged" or json.loads(json.dumps(samples.state_dict())) == kept["state"]
    assert [golden.key_of(item) for item in islice(samples, len(kept["then"]))] == kept["then"]


@pytest.mark.parametrize(("name", "case"), PASSES)
def test_a_token_that_was_kept_rebuilds_its_item(golden: Any, passes: Any, name: str, case: str) -> None:
    samples = passes[name](**_ranks(case))
    for key, token in KEPT[name][case]["taken"]:
        assert golden.key_of(samples[token]) == key


@pytest.mark.parametrize("name", [name for name, kept in KEPT.items() if "merged" in kept])
def test_states_of_ranks_that_were_kept_are_merged(name: str) -> None:
    assert merge_states(KEPT[name]["merged"]["states"]) == KEPT[name]["merged"]["state"]


def leaf(count: int = 9, **options: Any) -> LazyIndexedManifestIterator:
    return LazyIndexedManifestIterator(range(count), **options)


def shuffled_leaf() -> LazyIndexedManifestIterator:
    return leaf(shuffle=True, seed=5)


def shuffle_of_leaf() -> LazyGlobalShuffle:
    return LazyGlobalShuffle(leaf(), 5)


def test_it_is_the_order_of_a_leaf_that_shuffles_and_each_takes_the_others_state(tmp_path: Path) -> None:
    shuffle, ordered = LazyGlobalShuffle(leaf(), 3), leaf(shuffle=True, seed=3)
    assert [list(shuffle), list(shuffle)] == [list(ordered), list(ordered)]
    assert len(shuffle) == 9
    assert next(iter(shuffle)) == next(iter(ordered))
    assert collect_state_dict(shuffle) == collect_state_dict(ordered)
    rest = sorted({*range(9)} - {next(iter(leaf(shuffle=True, seed=5)))})
    for make, other in ((shuffled_leaf, LazyGlobalShuffle(leaf(), 5)), (shuffle_of_leaf, leaf(shuffle=True, seed=5))):
        node = make()
        next(iter(node))
        save_state(node, tmp_path / "state")
        load_state(other, tmp_path / "state")
        assert sorted(other) == rest


def test_it_is_the_order_of_a_chain_that_shuffles() -> None:
    mapped = LazyMapper(leaf(), str)
    shuffle, chained = LazyGlobalShuffle(mapped, 3), LazyIteratorChain(mapped, shuffle_iters=True, seed=3)
    assert list(shuffle.pairs())[4][0] == list(chained.pairs())[4][0]
    assert collect_state_dict(shuffle) == collect_state_dict(chained)
    assert shuffle[(0, 5)] == "5"


def test_ranks_and_their_workers_share_it() -> None:
    parts = [
        list(share_of(LazyGlobalShuffle(leaf(), 3, rank=rank, world_size=2), worker, 2))
        for rank in range(2)
        for worker in range(2)
    ]
    assert sorted(chain(*parts)) == list(range(9))
    assert {len(part) for part in parts} == {2, 3}


def test_a_generator_gives_one_seed() -> None:
    shuffle = LazyGlobalShuffle(leaf(), rng=random.Random(5))
    assert list(shuffle) == list(LazyGlobalShuffle(leaf(), random.Random(5)))
    with pytest.raises(UsageError, match="ranks of one shuffle need one seed"):
        LazyGlobalShuffle(leaf(), rng=random.Random(5), world_size=2)
    with pytest.raises(UsageError, match="each rank has a different one"):
        LazyGlobalShuffle(leaf(), None, world_size=2)


def test_sources_that_cannot_be_shuffled_are_refused() -> None:
    for source in (LazyFilter(leaf(), bool), [1, 2, 3], iter([1])):
        with pytest.raises(UsageError, match="needs indexed sources of known length"):
            LazyGlobalShuffle(source)
    for source in (leaf(rank=0, world_size=2), LazyGlobalShuffle(leaf(), rank=1, world_size=2)):
        with pytest.raises(UsageError, match="not partitioned: give rank and world_size to the shuffle"):
            LazyGlobalShuffle(source)


def test_it_skips_what_its_leaf_skips(tmp_path: Path) -> None:
    """A leaf that skips samples whose JSON cannot be parsed goes on doing so in another order."""
    path = tmp_path / "x.jsonl"
    path.write_text('{"id": "a"}\n{"id": \n{"id": "c"}\n')
    skipped: list[int] = []
    skipping = LazyIndexedManifestIterator(
        path, skip_decode_errors=True, decode_error_callback=lambda error, ordinal, path: skipped.append(ordinal)
    )
    assert sorted(sample.key for sample in LazyGlobalShuffle(skipping, 1)) == ["a", "c"]
    assert skipped == [1]
