"""The same seed gives the same order of cuts as in Lhotse, over the same files, for every epoch and rank.

Lhotse counts epochs into the seed in its chain only: its shuffled Shar and manifest come in one order for ever. Ours
count everywhere, so our epoch e of those is Lhotse's with seed + e.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from lhotse import CutSet, Recording
from lhotse.cut import MonoCut
from lhotse.cut.set import LazyCutMixer as LhotseMixer
from lhotse.dataset.dataloading import make_worker_init_fn
from lhotse.lazy import LazyIndexedManifestIterator as LhotseManifest
from lhotse.lazy import LazyIteratorChain as LhotseChain
from lhotse.shar import SharWriter as LhotseSharWriter
from lhotse.shar.readers.indexed import LazyIndexedSharIterator as LhotseShar
from torch.utils.data import DataLoader, IterableDataset

from touchfs import SampleSet
from touchfs.node import (
    LazyIndexedManifestIterator,
    LazyIndexedSharIterator,
    LazyIteratorChain,
    collect_state_dict,
    restore_state_dict,
)
from touchfs.peers.write import write_index
from touchfs.torch import NodeIterableDataset
from touchfs.write import SharWriter

SIZES = {"a": [7, 1, 12, 5], "b": [3, 9]}
# Such also as go beyond 32 bits with the epochs.
SEEDS = [42, 12345678901]
SEEDS_AND_VARIANTS = [*SEEDS, *(pytest.param(seed, marks=pytest.mark.variant) for seed in (0, 2**32 - 1))]
EPOCHS = 3
PARTS = [(0, 1), (0, 2), (1, 2), (0, 3), (2, 3), (0, 7), (5, 7)]
# An odd number of bits and an even one, a power of four, fewer cuts than ranks.
COUNTS = [1, 2, 3, 16, 17, 40]


def cut(name: str, number: int) -> MonoCut:
    return MonoCut(f"{name}-{number:03d}", 0, 0.01, 0, custom={"lang": f"lang-{number % 3}"})


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shar `a` of our writer and `b` of Lhotse's, of several shards each, and `N.jsonl` of N cuts; all indexed."""
    directory = tmp_path_factory.mktemp("data")
    for name, kind in (("a", SharWriter), ("b", LhotseSharWriter)):
        (directory / name).mkdir()
        numbers = iter(range(sum(SIZES[name])))
        for shard, size in enumerate(SIZES[name]):
            fields = {"embedding": "numpy", "lang": "jsonl"}
            path = str(directory / name)
            with kind(path, fields, shard_size=size, shard_offset=shard, compress_jsonl=False) as writer:
                for i in islice(numbers, size):
                    writer.write(cut(name, i).attach_tensor("embedding", np.full(4, i, "f4")))
    for count in COUNTS:
        path = str(directory / f"{count}.jsonl")
        CutSet.from_cuts(cut("line", i) for i in range(count)).to_file(path)
        write_index(path, f"{path}.idx", None)
    return directory


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], dict[str, int]]:
    """Makes Lhotse one rank of several. It takes that from the environment, and only where it is told that it may."""

    def be(rank: int, world_size: int) -> dict[str, int]:
        for name, value in (("RANK", rank), ("WORLD_SIZE", world_size), ("LHOTSE_USE_WORKER_PARTITION", 1)):
            monkeypatch.setenv(name, str(value))
        return {"rank": rank, "world_size": world_size}

    return be


def ids(items: Iterable[Any]) -> list[str]:
    return [item.id if hasattr(item, "id") else item.key for item in items]


def epochs(cuts: Any, count: int = EPOCHS) -> list[list[str]]:
    return [ids(cuts) for _ in range(count)]


# -- Shar


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("seed", SEEDS_AND_VARIANTS)
def test_a_shuffled_shar(directory: Path, part: Any, name: str, seed: int) -> None:
    in_dir = directory / name
    for rank, world_size in PARTS:
        ranks = part(rank, world_size)
        theirs = [ids(LhotseShar(in_dir=in_dir, shuffle=True, seed=seed + epoch)) for epoch in range(EPOCHS)]
        assert epochs(LazyIndexedSharIterator(in_dir=in_dir, shuffle=True, seed=seed, **ranks)) == theirs
        if world_size == 1:
            assert sorted(theirs[0]) == [f"{name}-{i:03d}" for i in range(sum(SIZES[name]))]
            assert theirs[0] != sorted(theirs[0])
            assert theirs[0] != theirs[1] != theirs[2]


def test_a_shuffled_shar_as_a_set(directory: Path, part: Any) -> None:
    for seed in SEEDS:
        ranks = part(1, 2)
        in_dir = directory / "a"
        theirs = ids(CutSet.from_shar(in_dir=in_dir, indexed=True, shuffle_shards=True, seed=seed))
        assert ids(SampleSet.from_shar(in_dir=in_dir, shuffle=True, seed=seed, **ranks)) == theirs
        assert len(theirs) == 12


def test_the_default_seeds_of_a_shar_are_the_same(directory: Path) -> None:
    in_dir = directory / "a"
    assert ids(LazyIndexedSharIterator(in_dir=in_dir, shuffle=True)) == ids(LhotseShar(in_dir=in_dir, shuffle=True))


def test_a_shar_in_order(directory: Path, part: Any) -> None:
    for rank, world_size in PARTS:
        ranks = part(rank, world_size)
        theirs = ids(CutSet.from_shar(in_dir=directory / "a", indexed=True))
        assert theirs == [f"a-{i:03d}" for i in range(rank, 25, world_size)]
        assert epochs(LazyIndexedSharIterator(in_dir=directory / "a", **ranks)) == [theirs] * EPOCHS


def test_a_shar_by_its_fields_in_any_order_of_shards(directory: Path) -> None:
    names = sorted((directory / "a").glob("cuts.*.jsonl"), reverse=True)
    fields = {"cuts": names, "lang": [name.parent / name.name.replace("cuts", "lang") for name in names]}
    theirs = LhotseShar(fields=fields, shuffle=True, seed=5)
    assert ids(LazyIndexedSharIterator(fields, shuffle=True, seed=5)) == ids(theirs)
    assert ids(LazyIndexedSharIterator(fields)) == ids(LhotseShar(fields=fields))


def test_the_fields_of_a_cut_come_with_it(directory: Path) -> None:
    theirs = LhotseShar(in_dir=directory / "a", shuffle=True, seed=3)
    ours = LazyIndexedSharIterator(in_dir=directory / "a", shuffle=True, seed=3)
    for sample, loaded in zip(ours, theirs, strict=True):
        assert sample.array("embedding.npy").tolist() == loaded.load_embedding().tolist()
        assert sample["lang.txt"].decode() == loaded.lang


# -- JSON lines


@pytest.mark.parametrize("count", COUNTS)
def test_a_shuffled_manifest(directory: Path, part: Any, count: int) -> None:
    path = str(directory / f"{count}.jsonl")
    for seed, (rank, world_size) in product(SEEDS, PARTS):
        ranks = part(rank, world_size)
        theirs = [ids(LhotseManifest(path, shuffle=True, seed=seed + epoch)) for epoch in range(EPOCHS)]
        assert epochs(LazyIndexedManifestIterator(path, shuffle=True, seed=seed, **ranks)) == theirs
        if count == 40 and world_size == 1:
            assert sorted(theirs[0]) == [f"line-{i:03d}" for i in range(40)]
            assert sorted(theirs[0]) != theirs[0] != theirs[1]


def test_the_default_seeds_of_a_manifest_are_the_same(directory: Path) -> None:
    path = str(directory / "40.jsonl")
    theirs = ids(LhotseManifest(path, shuffle=True))
    assert ids(LazyIndexedManifestIterator(path, shuffle=True)) == theirs
    assert ids(SampleSet.from_file(path, shuffle=True)) == theirs


# -- global shuffle


@pytest.mark.parametrize("seed", SEEDS_AND_VARIANTS)
def test_a_shuffled_chain(directory: Path, part: Any, seed: int) -> None:
    for rank, world_size in PARTS:
        ranks = part(rank, world_size)
        theirs = LhotseChain(*(LhotseShar(in_dir=directory / name) for name in SIZES), shuffle_iters=True, seed=seed)
        ours = LazyIteratorChain(
            *(LazyIndexedSharIterator(in_dir=directory / name) for name in SIZES),
            shuffle_iters=True,
            seed=seed,
            **ranks,
        )
        expected = epochs(theirs)
        assert epochs(ours) == expected
        if world_size == 1:
            assert expected[0] != expected[1] != expected[2]


@pytest.mark.parametrize("seed", SEEDS_AND_VARIANTS)
def test_a_shuffled_set(directory: Path, part: Any, seed: int) -> None:
    for rank, world_size in PARTS[:6]:
        ranks = part(rank, world_size)
        theirs = LhotseChain(CutSet.from_shar(in_dir=directory / "a", indexed=True), shuffle_iters=True, seed=seed)
        assert epochs(SampleSet.from_shar(in_dir=directory / "a").shuffle(seed, **ranks)) == epochs(theirs)


def test_what_is_below_a_shuffled_chain_shuffles_no_more(directory: Path) -> None:
    """Lhotse takes chains in chains apart, and asks shuffled sources by position."""
    theirs = LhotseChain(
        LhotseShar(in_dir=directory / "b", shuffle=True, seed=9),
        LhotseChain(LhotseShar(in_dir=directory / "a"), LhotseShar(in_dir=directory / "b"), shuffle_iters=True, seed=8),
        shuffle_iters=True,
        seed=7,
    )
    a, b = (LazyIndexedSharIterator(in_dir=directory / name, shuffle=name == "b", seed=9) for name in "ab")
    ours = LazyIteratorChain(b, LazyIteratorChain(a, b, shuffle_iters=True, seed=8), shuffle_iters=True, seed=7)
    assert epochs(ours) == epochs(theirs)


def test_a_chain_in_order(directory: Path) -> None:
    theirs = LhotseChain(*(LhotseShar(in_dir=directory / name) for name in SIZES))
    ours = LazyIteratorChain(*(LazyIndexedSharIterator(in_dir=directory / name) for name in SIZES))
    assert epochs(ours) == epochs(theirs)


# -- workers of a loader, and going on


class Cuts(IterableDataset[str]):
    def __init__(self, cuts: Any) -> None:
        self.cuts = cuts

    def __iter__(self) -> Iterator[str]:
        return iter(ids(self.cuts))


@pytest.mark.parametrize("rank", [0, 1])
def test_workers(directory: Path, rank: int) -> None:
    """A worker is a rank of its own: rank * workers + worker."""
    theirs = Cuts(LhotseChain(LhotseShar(in_dir=directory / "a"), shuffle_iters=True, seed=6))
    ours = SampleSet.from_shar(in_dir=directory / "a").shuffle(6, rank=rank, world_size=2).map(key_of)
    expected = list(
        DataLoader(theirs, batch_size=None, num_workers=2, worker_init_fn=make_worker_init_fn(rank, 2, seed=0))
    )
    assert list(DataLoader(NodeIterableDataset(ours), batch_size=None, num_workers=2)) == expected
    assert len(expected) == 13 - rank


def key_of(sample: Any) -> str:
    return str(sample.key)


def test_going_on_in_the_middle(directory: Path) -> None:
    """Both go on, each from its own state."""

    def make() -> tuple[Any, Any]:
        theirs = LhotseChain(*(LhotseShar(in_dir=directory / name) for name in SIZES), shuffle_iters=True, seed=4)
        ours = LazyIteratorChain(
            *(LazyIndexedSharIterator(in_dir=directory / name) for name in SIZES), shuffle_iters=True, seed=4
        )
        return theirs, ours

    theirs, ours = make()
    whole = epochs(theirs)
    for taken in (1, 20, 36):
        (theirs, ours), (theirs_again, ours_again) = make(), make()
        for node in (theirs, ours):
            assert ids(node) == whole[0]
            assert ids(islice(node, taken)) == whole[1][:taken]
        theirs_again.load_state_dict(theirs.state_dict())
        restore_state_dict(ours_again, collect_state_dict(ours))
        assert ids(theirs_again) == ids(ours_again) == whole[1][taken:]
        assert ids(theirs_again) == ids(ours_again) == whole[2]


def test_noise_is_drawn_alike(tmp_path: Path) -> None:
    """So what is mixed of two Shars is the same audio."""
    random = np.random.default_rng(0)
    for name, lengths, stored in (("speech", [16000, 7777, 2400, 900], "wav"), ("noise", [800, 40000, 2001], "flac")):
        with SharWriter(tmp_path / name, {"recording": stored}, shard_size=3, compress_jsonl=False) as writer:
            for i, length in enumerate(lengths):
                path = tmp_path / f"{name}-{i}.wav"
                soundfile.write(path, random.normal(0, 0.1, length), 16000)
                writer.write(Recording.from_file(path).to_cut().with_id(f"{name}-{i}"))
    options: dict[str, Any] = {"snr": (5, 15), "mix_prob": 0.7, "random_mix_offset": True, "preserve_id": "left"}
    theirs = LhotseMixer(
        *(CutSet.from_shar(in_dir=tmp_path / name, indexed=True) for name in ("speech", "noise")), **options
    )
    ours = SampleSet.from_shar(in_dir=tmp_path / "speech").mix(
        SampleSet.from_shar(in_dir=tmp_path / "noise"), **options
    )
    for _ in range(EPOCHS):
        for sound, mixed in zip(ours, theirs, strict=True):
            assert sound.id == mixed.id
            np.testing.assert_allclose(np.atleast_2d(sound.audio), mixed.load_audio(), rtol=1e-5, atol=1e-6)
