"""Each parameter of Lhotse's constructors has Lhotse's effect, or is refused by its name."""

from __future__ import annotations

import inspect
import random
import warnings
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import lhotse.lazy
import pytest
from lhotse import CutSet
from lhotse.cut import MonoCut
from lhotse.cut.set import LazyCutMixer as LhotseMixer
from lhotse.shar.readers.indexed import LazyIndexedSharIterator as LhotseIndexedShar
from lhotse.shar.readers.lazy import LazySharIterator as LhotseShar

from touchfs import SampleSet, node
from touchfs.containers.shar.write.writer import SharWriter
from touchfs.core.errors import UsageError


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`cuts.jsonl`, of which a line is damaged, and a Shar of five shards."""
    directory: Path = tmp_path_factory.mktemp("data")
    cuts = [MonoCut(f"cut-{i:02d}", 0, 0.01, 0) for i in range(15)]
    CutSet.from_cuts(cuts).to_file(str(directory / "cuts.jsonl"))
    lines = (directory / "cuts.jsonl").read_bytes().splitlines(keepends=True)
    (directory / "damaged.jsonl").write_bytes(b"".join([*lines[:4], b'{"id": \n', *lines[4:]]))
    with SharWriter(directory / "shar", {}, shard_size=3, compress_jsonl=False) as writer:
        for cut in cuts:
            writer.write(cut)
    return directory


def cuts(directory: Path) -> Any:
    return node.LazyIndexedManifestIterator(str(directory / "cuts.jsonl"), decode=lhotse_cut)


def lhotse_cut(told: dict[str, Any]) -> Any:
    return MonoCut.from_dict(told)


def ids(items: Any) -> list[str]:
    return [item.id if hasattr(item, "id") else item.key for item in items]


# Lhotse's class, what else ours needs, and for each parameter that is not there yet a value with an effect.
CONSTRUCTORS: dict[str, tuple[Any, Callable[[Path], tuple[list[Any], dict[str, Any]]]]] = {
    **{
        name: (getattr(lhotse.lazy, name), lambda directory, more=more: ([], {"iterator": cuts(directory), **more}))
        for name, more in {
            "LazyFilter": {"predicate": bool},
            "LazyFlattener": {},
            "LazyMapper": {"fn": str},
            "LazyRepeater": {},
            "LazyShuffler": {},
            "LazySlicer": {"k": 0, "n": 2},
        }.items()
    },
    **{
        name: (getattr(lhotse.lazy, name), lambda directory: ([cuts(directory), cuts(directory)], {}))
        for name in ("LazyIteratorChain", "LazyIteratorMultiplexer", "LazyInfiniteApproximateMultiplexer")
    },
    **{
        name: (getattr(lhotse.lazy, name), lambda directory: ([], {"path": str(directory / "cuts.jsonl")}))
        for name in ("LazyIndexedManifestIterator", "LazyJsonlIterator", "LazyManifestIterator")
    },
    "LazySharIterator": (LhotseShar, lambda directory: ([], {"in_dir": directory / "shar"})),
    "LazyIndexedSharIterator": (LhotseIndexedShar, lambda directory: ([], {"in_dir": directory / "shar"})),
    "LazyCutMixer": (LhotseMixer, lambda directory: ([], {"cuts": cuts(directory), "mix_in_cuts": cuts(directory)})),
}
VALUES: dict[str, Any] = {
    "apply_fn": bool,
    "buffer_size": 5,
    "cut_map_fns": [str],
    "decode": dict,
    "decode_error_callback": print,
    "duration": 1.0,
    "index_path": "x",
    "indexes_root": "x",
    "max_open_streams": 2,
    "mix_prob": 0.5,
    "preserve_id": False,
    "rng": random.Random(1),
    "seed": 7,
    "slice_length": 2,
    "snr": 3,
    "tag": "noise",
    "times": 2,
    "weights": [1, 2],
}
PARAMETERS = [
    (name, parameter)
    for name, (theirs, _) in CONSTRUCTORS.items()
    for parameter, about in list(inspect.signature(theirs.__init__).parameters.items())[1:]
    if about.kind is not about.VAR_POSITIONAL
]


@pytest.mark.parametrize(("name", "parameter"), PARAMETERS)
def test_each_parameter_is_taken_or_refused_by_name(directory: Path, name: str, parameter: str) -> None:
    positional, keywords = CONSTRUCTORS[name][1](directory)
    if parameter in keywords or parameter == "fields":
        value = keywords.get(parameter)
    elif name == "LazyCutMixer" and parameter == "preserve_id":
        value = "left"
    else:
        value = VALUES.get(parameter, True)
    try:
        getattr(node, name)(*positional, **{**keywords, parameter: value})
    except UsageError as error:
        assert parameter in str(error)


@pytest.mark.parametrize("keep", [True, False])
def test_ids_of_repeated_cuts(directory: Path, keep: bool) -> None:
    theirs = CutSet.from_file(directory / "cuts.jsonl", indexed=True).repeat(2, preserve_id=keep)
    ours = SampleSet(cuts(directory)).repeat(2, preserve_id=keep)
    assert ids(ours) == ids(theirs)
    samples = SampleSet.from_file(directory / "cuts.jsonl", indexed=True).repeat(2, preserve_id=keep)
    assert ids(samples) == ids(theirs)


def test_records_that_are_skipped(directory: Path) -> None:
    path = str(directory / "damaged.jsonl")
    heard: dict[str, list[tuple[str, int, str]]] = {"theirs": [], "ours": []}

    def hear(who: str) -> Any:
        return lambda error, ordinal, path: heard[who].append((type(error).__name__, ordinal, str(path)))

    options: dict[str, Any] = {"decode": lambda told: MonoCut.from_dict(told), "skip_decode_errors": True}
    theirs = lhotse.lazy.LazyIndexedManifestIterator(path, decode_error_callback=hear("theirs"), **options)
    ours = node.LazyIndexedManifestIterator(path, decode_error_callback=hear("ours"), **options)
    assert list(ours) == list(theirs) and len(ids(ours)) == 15
    assert heard["ours"][:1] == heard["theirs"]
    for kind in (lhotse.lazy.LazyIndexedManifestIterator, node.LazyIndexedManifestIterator):
        with pytest.raises(ValueError), warnings.catch_warnings():
            list(kind(path, decode=options["decode"]))


@pytest.mark.parametrize("stateful", [True, False])
def test_orders_of_shards_in_later_epochs(directory: Path, stateful: bool) -> None:
    """The orders are our own where there is no index. Whether they are the same each time is not."""
    options = {"in_dir": directory / "shar", "shuffle_shards": True, "seed": 3, "stateful_shuffle": stateful}
    theirs = CutSet.from_shar(**options, indexed=False)
    ours = SampleSet.from_shar(**options, indexed=False)
    for cuts_ in (theirs, ours):
        assert (len({tuple(ids(cuts_)) for _ in range(4)}) == 1) is not stateful


def test_an_rng_is_asked_once(directory: Path) -> None:
    """Lhotse's buffer comes in another order. Where the generator is afterwards depends on no iteration."""
    rng = random.Random(5)
    shuffled = SampleSet(cuts(directory)).shuffle(rng=rng, buffer_size=4)
    after = rng.getstate()
    assert sorted(ids(islice(shuffled, 15))) == sorted(ids(cuts(directory)))
    assert rng.getstate() == after != random.Random(5).getstate()
