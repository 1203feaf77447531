"""Shuffles are permutations, the same everywhere; ranks share an epoch without gaps or duplicates."""

from __future__ import annotations

from itertools import chain, islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from touchfs.core.errors import UsageError
from touchfs.node import LazyFilter, LazyIndexedManifestIterator, LazyIteratorChain, LazyMapper, Partition, state_at
from touchfs.node.graph.state import restore_state_dict
from touchfs.node.order.draws import draws
from touchfs.node.order.epoch import Permutation
from touchfs.node.order.feistel import Feistel, round_keys
from touchfs.node.order.partition import KINDS, TAILS
from touchfs.node.order.windowed import Window, Windowed

# From Lhotse 2.0.0a7: (size, seed, first ordinals).
GOLDEN = [
    (1, 42, [0]),
    (2, 12345678901, [0, 1]),
    (3, 42, [2, 1, 0]),
    (7, 42, [2, 1, 3, 0, 6, 4, 5]),
    (16, 42, [2, 1, 3, 10, 6, 12, 8, 5, 7, 9, 0, 13, 14, 11, 4, 15]),
    (17, 42, [15, 6, 7, 8, 10, 3, 14, 0, 16, 12, 13, 2, 9, 1, 5, 4, 11]),
    (100, 12345678901, [48, 56, 84, 38, 72, 31, 15, 34, 40, 44]),
    (1000, 0, [647, 640, 974, 183, 749, 807, 661, 387, 721, 735]),
    (10**6, 7, [618591, 194580, 778992, 896412, 447589, 63841, 705607]),
    (10**9, 7, [470435101, 577737563, 98205543, 83957743]),
    (10**12, 7, [229261376824, 879045109702, 753372658439, 547144250578]),
]
# touchfs's own.
GOLDEN_WINDOW = [84, 751, 777, 111, 21, 10, 356, 569]
GOLDEN_LANES = [863, 639, 555, 785, 576, 964, 554, 864]
GOLDEN_RANKS = [[6, 43, 78, 63, 44, 89], [32, 0, 61, 94, 8, 95], [1, 24, 55, 56, 83, 66]]


@pytest.mark.parametrize(("size", "seed", "first"), GOLDEN)
def test_the_order_is_lhotses(size: int, seed: int, first: list[int]) -> None:
    assert Feistel(size, round_keys(seed))(np.arange(len(first))).tolist() == first
    node = LazyIndexedManifestIterator(range(size), shuffle=True, seed=seed)
    assert list(islice(node, len(first))) == first


def test_the_keys_are_lhotses() -> None:
    assert round_keys(42)[:3] == (6909045637428952499, 8314211556539077902, 4279532810384561223)


def test_the_ranks_are_lhotses() -> None:
    for rank, first in enumerate(GOLDEN_RANKS):
        node = LazyIndexedManifestIterator(range(100), shuffle=True, seed=42, rank=rank, world_size=3)
        assert list(islice(node, len(first))) == first
        assert len(node) == len(list(node)) == (34, 33, 33)[rank]


@given(st.integers(0, 40_000), st.integers(-5, 2**70))
def test_a_shuffle_is_a_permutation_and_can_be_inverted(size: int, seed: int) -> None:
    shuffle, positions = Feistel(size, round_keys(seed)), np.arange(size)
    ordinals = shuffle(positions)
    assert np.array_equal(np.sort(ordinals), positions)
    assert np.array_equal(shuffle.inverse(ordinals), positions)


@given(st.integers(10**12, 2**62), st.integers(0, 2**32), st.integers(0, 10**12 - 1))
def test_huge_shuffles_can_be_inverted(size: int, seed: int, position: int) -> None:
    shuffle = Feistel(size, round_keys(seed))
    ordinals = shuffle(np.array([position]))
    assert 0 <= ordinals[0] < size
    assert shuffle.inverse(ordinals).tolist() == [position]


def test_every_epoch_has_a_new_order_and_it_is_that_of_the_next_seed() -> None:
    node = LazyIndexedManifestIterator(range(50), shuffle=True, seed=7)
    epochs = [list(node) for _ in range(3)]
    assert epochs == [list(LazyIndexedManifestIterator(range(50), shuffle=True, seed=7 + epoch)) for epoch in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]


@pytest.mark.parametrize("start", [0, 1, 255, 256, 257, 1000])
def test_draws_continue_anywhere(start: int) -> None:
    whole = list(islice(draws(1, 2, 0), 1500))
    assert list(islice(draws(1, 2, start), 500)) == whole[start : start + 500]
    assert all(0 <= number < 1 for number in whole)
    assert whole != list(islice(draws(1, 3, 0), 1500))


@given(
    st.integers(0, 60), st.integers(1, 9), st.sampled_from(KINDS), st.sampled_from(TAILS), st.none() | st.integers(0, 9)
)
def test_ranks_share_an_epoch(size: int, world_size: int, kind: str, tail: str, seed: int | None) -> None:
    nodes = [
        LazyIndexedManifestIterator(
            range(size),
            shuffle=seed is not None,
            seed=seed or 0,
            rank=rank,
            world_size=world_size,
            partition=kind,
            tail=tail,
        )
        for rank in range(world_size)
    ]
    parts = [list(node) for node in nodes]
    assert [len(part) for part in parts] == [len(node) for node in nodes]
    seen = list(chain(*parts))
    sizes = {len(part) for part in parts}
    if tail == "keep":
        assert sorted(seen) == list(range(size))
        assert max(sizes) - min(sizes) <= 1
    elif tail == "drop":
        assert len(set(seen)) == len(seen) == size - size % world_size
        assert len(sizes) == 1
    else:
        assert set(seen) == set(range(size))
        assert sizes == {-(-size // world_size)}


@given(st.integers(1, 60), st.integers(1, 9), st.sampled_from(KINDS), st.sampled_from(TAILS))
def test_a_ranks_positions_can_be_inverted(size: int, world_size: int, kind: str, tail: str) -> None:
    for rank in range(world_size):
        part = Partition(rank, world_size, kind, tail)
        for own, position in enumerate(part.positions(np.arange(part.count(size)), size).tolist()):
            found = part.own(position, size)
            # A padded one has come before, on this rank or another.
            assert found == own or tail == "pad"


def test_blocks_are_contiguous() -> None:
    nodes = [LazyIndexedManifestIterator(range(10), rank=r, world_size=3, partition="block") for r in range(3)]
    assert [list(node) for node in nodes] == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]


def test_workers_share_their_ranks_part() -> None:
    parts = [Partition(rank, 2).for_worker(worker, 3) for rank in range(2) for worker in range(3)]
    assert sorted(chain(*(part.positions(np.arange(part.count(20)), 20).tolist() for part in parts))) == list(range(20))
    with pytest.raises(UsageError, match="no worker 3 of 3"):
        Partition().for_worker(3, 3)


@pytest.mark.parametrize(
    "options",
    [{"rank": 2, "world_size": 2}, {"rank": -1}, {"world_size": 0}, {"partition": "striped"}, {"tail": "cut"}],
)
def test_wrong_partitions_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        LazyIndexedManifestIterator(range(3), **options)  # type: ignore[arg-type]


def test_a_global_shuffle_partitions_all_sources_together() -> None:
    def make(rank: int) -> LazyIteratorChain:
        sources = [LazyIndexedManifestIterator(range(start, start + 10)) for start in (0, 10, 20)]
        return LazyIteratorChain(*sources, shuffle_iters=True, seed=1, rank=rank, world_size=4)

    epochs = [sorted(chain(*(list(make(rank)) for rank in range(4))))]
    assert epochs[0] == list(range(30))
    with pytest.raises(UsageError, match="is not partitioned"):
        LazyIteratorChain(LazyIndexedManifestIterator(range(4), world_size=2), shuffle_iters=True)
    with pytest.raises(UsageError, match="known length"):
        LazyIteratorChain(LazyFilter(LazyIndexedManifestIterator(range(4)), bool), shuffle_iters=True)
    with pytest.raises(UsageError, match="shuffle_iters"):
        LazyIteratorChain(LazyIndexedManifestIterator(range(4)), world_size=2)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_an_item_token_positions_by_inverting_the_order(rank: int) -> None:
    def make() -> LazyMapper:
        leaf = LazyIndexedManifestIterator(range(20), shuffle=True, seed=3, rank=rank, world_size=3)
        return LazyMapper(LazyFilter(leaf, lambda number: number % 4), str)

    whole = make()
    epochs = [list(whole), list(whole)]
    for epoch in (0, 1):
        for position, item in enumerate(epochs[epoch]):
            node = make()
            restore_state_dict(node, state_at(node, int(item), epoch))
            assert list(node) == epochs[epoch][position:]
    for token in set(range(20)) - set(map(int, epochs[0])):
        with pytest.raises(UsageError, match=r"drops the item|is not one of rank"):
            state_at(make(), token)


def test_an_item_token_positions_a_chain() -> None:
    for shuffle in (False, True):
        make = lambda shuffle=shuffle: LazyIteratorChain(  # noqa: E731
            LazyIndexedManifestIterator(range(5)), LazyIndexedManifestIterator(range(5, 9)), shuffle_iters=shuffle
        )
        whole = list(make().pairs())
        for position, (token, _) in enumerate(whole):
            node = make()
            restore_state_dict(node, state_at(node, token))
            assert [token for token, _ in node.pairs()] == [token for token, _ in whole[position:]]


@st.composite
def windowed(draw: st.DrawFn) -> Windowed:
    lanes = draw(st.integers(1, 9))
    return Windowed(
        draw(st.integers(0, 3000)), Window(draw(st.integers(lanes, 900)), lanes), draw(st.integers(-5, 2**70))
    )


@given(windowed())
def test_a_windowed_shuffle_is_a_permutation_and_can_be_inverted(shuffle: Windowed) -> None:
    positions = np.arange(shuffle.size)
    ordinals = shuffle(positions)
    assert np.array_equal(np.sort(ordinals), positions)
    assert np.array_equal(shuffle.inverse(ordinals), positions)
    some = positions[::-3]
    assert np.array_equal(shuffle(some), ordinals[some])


@given(st.integers(10**12, 2**50), st.integers(0, 2**32), st.integers(0, 10**12 - 1), st.integers(1, 64))
def test_huge_windowed_shuffles_can_be_inverted(size: int, seed: int, position: int, lanes: int) -> None:
    shuffle = Windowed(size, Window(100_000, lanes), seed)
    ordinals = shuffle(np.array([position]))
    assert 0 <= ordinals[0] < size
    assert shuffle.inverse(ordinals).tolist() == [position]


@pytest.mark.parametrize(("window", "lanes"), [(100, 1), (6_000, 1), (6_000, 2), (9_000, 7), (40_000, 1)])
def test_many_positions_have_the_ordinals_of_each_of_them(window: int, lanes: int) -> None:
    """Large windows are permuted one after the other, and small ones together."""
    size = 20_011
    shuffles: list[Permutation] = [Windowed(size, Window(window, lanes), 7), Feistel(size, round_keys(7))]
    for shuffle in shuffles:
        together = shuffle(np.arange(size))
        assert np.bincount(together, minlength=size).tolist() == [1] * size
        assert shuffle.inverse(together).tolist() == list(range(size))
        for position in range(0, size, 371):
            assert shuffle(np.array([position])).tolist() == [together[position]]


def test_a_windowed_shuffle_reads_whole_chunks_in_each_window() -> None:
    """All 64 neighbours of a chunk come in one window, mixed with those of 15 others from all over the dataset."""
    ordinals = Windowed(102_400, Window(1024), 7)(np.arange(102_400)).reshape(100, 1024)
    for window in ordinals:
        chunks, counts = np.unique(window // 64, return_counts=True)
        assert len(chunks) == 16
        assert set(counts) == {64}
    assert np.abs(np.corrcoef(np.arange(102_400), ordinals.ravel())[0, 1]) < 0.1
    assert all(abs(np.corrcoef(np.arange(1024), window)[0, 1]) < 0.2 for window in ordinals)
    # Neighbours in the data are apart by a third of a window on average, as in any permutation of it.
    places = np.argsort(ordinals.ravel())
    apart = np.abs(np.diff(places.reshape(-1, 64), axis=1))
    assert 300 < apart.mean() < 380


def test_a_windowed_order_stays_what_it_is() -> None:
    """States hold positions in it."""
    assert Windowed(1000, Window(64), 7)(np.arange(8)).tolist() == GOLDEN_WINDOW
    assert Windowed(1000, Window(64, 2), -1)(np.arange(8)).tolist() == GOLDEN_LANES
