"""Batches within their limits, nothing lost and nothing twice, resumed at any place without looking at the past."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from node.graphs import Doubler, places

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.token import from_json, to_json
from touchfs.node import (
    BucketingSampler,
    DynamicSampler,
    IteratorNode,
    LazyFilter,
    LazyIndexedManifestIterator,
    LazyIteratorChain,
    LazyIteratorMultiplexer,
    LazyMapper,
    LazyRepeater,
    LazyShuffler,
    collect_state_dict,
    get_graph_origin,
    maybe_attach_graph_origin,
    merge_states,
    restore_state_dict,
    state_at,
)
from touchfs.testing import check_restore


@dataclass
class Cut:
    ordinal: int
    duration: float


class Cuts:
    """Of 0.5 to 12.2 seconds, made anew each time, and counted. Those of `gone` cannot be made."""

    def __init__(self, count: int, gone: set[int] | None = None) -> None:
        self.count = count
        self.gone = gone or set()
        self.made: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, ordinal: int) -> Cut:
        if ordinal in self.gone:
            raise OSError(f"{ordinal} is gone")
        self.made.append(ordinal)
        return Cut(ordinal, 0.5 + ordinal * 37 % 40 * 0.3)


def cuts(count: int = 11, **options: Any) -> LazyIndexedManifestIterator:
    return LazyIndexedManifestIterator(Cuts(count), **{"shuffle": True, "seed": 3, **options})


def short(cut: Cut) -> bool:
    return cut.duration < 9


def slower(cut: Cut) -> Cut:
    return Cut(cut.ordinal, cut.duration * 1.1)


def squared(cut: Cut) -> float:
    return cut.duration + cut.duration**2 / 30


Make = Callable[..., IteratorNode]
DYNAMIC = partial(DynamicSampler, max_duration=25)
BUCKETING = partial(BucketingSampler, max_duration=25, num_buckets=3, buffer_size=6)

SAMPLERS: dict[str, Make] = {
    "dynamic": DYNAMIC,
    "dynamic, shuffled": partial(DYNAMIC, shuffle=True, seed=1, buffer_size=4),
    "dynamic, full batches": partial(DYNAMIC, drop_last=True),
    "dynamic, counted": partial(DynamicSampler, max_items=3),
    "dynamic, of a function": partial(DYNAMIC, max_items=3, duration=squared),
    "bucketing": BUCKETING,
    "bucketing, shuffled": partial(BUCKETING, shuffle=True, seed=1),
    "bucketing, full batches": partial(BUCKETING, shuffle=True, drop_last=True),
    "bucketing, counted": partial(BucketingSampler, max_items=2, num_buckets=2, buffer_size=5),
    "bucketing, boundaries": partial(BUCKETING, boundaries=[4, 8.5], shuffle=True),
    "bucketing, room for all": partial(BUCKETING, buffer_size=500, shuffle=True),
    "bucketing, hardly any room": partial(BUCKETING, buffer_size=1, boundaries=[3, 6, 9]),
}

SOURCES: dict[str, Callable[[], IteratorNode]] = {
    "leaf": cuts,
    "leaf, empty": partial(cuts, 0),
    "leaf, in order": partial(cuts, 7, shuffle=False),
    "leaf, a rank": partial(cuts, 20, rank=1, world_size=2),
    "filter and mapper": lambda: LazyMapper(LazyFilter(cuts(13), short), slower),
    "chain": lambda: LazyIteratorChain(cuts(4), cuts(5), shuffle_iters=True),
    "mux": lambda: LazyIteratorMultiplexer(cuts(4), cuts(3)),
    "shuffler": lambda: LazyShuffler(cuts(9), 4),
    "repeater": lambda: LazyRepeater(cuts(4), 2),
    "foreign": lambda: LazyMapper(Doubler(cuts(8)), lambda pair: pair[0]),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_resumes_exactly(name: str) -> None:
    check_restore(lambda: SAMPLERS[name](cuts()))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", ["dynamic, shuffled", "bucketing, shuffled"])
def test_over_every_source_they_resume_exactly(name: str, source: str) -> None:
    check_restore(lambda: SAMPLERS[name](SOURCES[source]()))


def test_below_other_nodes_they_resume_exactly() -> None:
    check_restore(lambda: LazyRepeater(SAMPLERS["bucketing, shuffled"](cuts(6)), 2))
    check_restore(lambda: LazyMapper(LazyShuffler(DYNAMIC(cuts()), 2), len))
    check_restore(lambda: LazyIteratorMultiplexer(DYNAMIC(cuts(6)), BUCKETING(cuts(5))))
    check_restore(lambda: BUCKETING(LazyRepeater(cuts(7))), items=9)


@pytest.mark.variant
def test_in_a_new_process() -> None:
    check_restore(_for_a_process, fresh_process=True)


def _for_a_process() -> IteratorNode:
    return LazyIteratorChain(SAMPLERS["bucketing, shuffled"](cuts(7)), SAMPLERS["dynamic, shuffled"](cuts(6)))


@settings(max_examples=settings().max_examples // 2)
@given(
    st.integers(0, 30),
    st.none() | st.floats(1, 60),
    st.integers(1, 6),
    st.integers(1, 5),
    st.integers(1, 40),
    st.booleans(),
    st.integers(-5, 5),
    st.integers(0, 40),
)
def test_any_parameters(
    count: int,
    max_duration: float | None,
    max_items: int,
    num_buckets: int,
    buffer_size: int,
    shuffle: bool,
    seed: int,
    taken: int,
) -> None:
    def make(kind: int) -> IteratorNode:
        both = {"max_duration": max_duration, "max_items": max_items, "buffer_size": buffer_size}
        if kind:
            return BucketingSampler(cuts(count), **both, num_buckets=num_buckets, shuffle=shuffle, seed=seed)
        return DynamicSampler(cuts(count), **both, shuffle=shuffle, seed=seed)

    for kind in range(2):
        node = make(kind)
        # Not past the end, where the next epoch begins.
        first = list(islice(node, min(taken, len(list(make(kind))))))
        restored = make(kind)
        restore_state_dict(restored, from_json(to_json(collect_state_dict(node))))
        batches = first + list(restored)
        assert sorted(cut.ordinal for batch in batches for cut in batch) == list(range(count))
        for batch in batches:
            assert 0 < len(batch) <= max_items
            if max_duration is not None and len(batch) > 1:
                assert len(batch) * max(cut.duration for cut in batch) <= max_duration


# -- batches


def of(durations: list[float]) -> LazyIndexedManifestIterator:
    return LazyIndexedManifestIterator([Cut(i, duration) for i, duration in enumerate(durations)])


def lengths(node: IteratorNode) -> list[list[float]]:
    return [[cut.duration for cut in batch] for batch in node]


def test_when_a_batch_is_full() -> None:
    dynamic = partial(DynamicSampler, max_duration=10)
    assert lengths(dynamic(of([2] * 12))) == [[2] * 5, [2] * 5, [2] * 2]
    assert lengths(dynamic(of([2] * 12), drop_last=True)) == [[2] * 5, [2] * 5]
    assert lengths(dynamic(of([2] * 12), max_items=4)) == [[2] * 4] * 3
    # One more as long as the longest would not fit.
    assert lengths(dynamic(of([4, 1, 1, 1]))) == [[4, 1], [1, 1]]
    # The next one does not fit, and is not lost.
    assert lengths(dynamic(of([1, 1, 9, 1]))) == [[1, 1], [9], [1]]
    assert lengths(dynamic(of([1, 1, 9]), drop_last=True)) == [[1, 1], [9]]
    # Longer than any batch may be.
    assert lengths(dynamic(of([50, 1, 60, 70]))) == [[50], [1], [60], [70]]
    assert lengths(dynamic(of([0, 0, 0]))) == [[0, 0, 0]]
    assert lengths(dynamic(of([]))) == []
    assert lengths(DynamicSampler(of([1, 2, 3]), max_items=2)) == [[1, 2], [3]]


def test_buckets_are_of_similar_durations() -> None:
    node = BucketingSampler(cuts(400), max_duration=30, num_buckets=5, buffer_size=200, shuffle=True)
    plain = DynamicSampler(cuts(400), max_duration=30)

    def padding(batches: list[list[Cut]]) -> float:
        whole = sum(len(batch) * max(cut.duration for cut in batch) for batch in batches)
        return 1 - sum(cut.duration for batch in batches for cut in batch) / whole

    assert padding(list(node)) < 0.15 < 0.25 < padding(list(plain))


def test_samples_leave_a_bucket_as_they_came_or_shuffled() -> None:
    durations = [1.0, 7.0] * 20
    in_order = list(BucketingSampler(of(durations), max_items=4, boundaries=[5], buffer_size=8))
    assert {cut.duration for batch in in_order for cut in batch[:1]} == {1.0, 7.0}
    for duration in (1.0, 7.0):
        ordinals = [cut.ordinal for batch in in_order for cut in batch if cut.duration == duration]
        assert ordinals == sorted(ordinals)
    assert all(len({cut.duration for cut in batch}) == 1 for batch in in_order)
    shuffled = partial(BucketingSampler, max_items=4, boundaries=[5], buffer_size=40, shuffle=True)
    node = shuffled(of(durations))
    first, second = list(node), list(node)
    assert first != second
    assert list(shuffled(of(durations))) == first
    assert list(shuffled(of(durations), seed=1)) != first


def test_a_buffer_that_is_too_small_cuts_no_batch_short() -> None:
    sizes = [len(batch) for batch in BucketingSampler(of([1.0, 3.0, 5.0, 7.0] * 16), max_items=8, buffer_size=2)]
    assert sum(sizes) == 64
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[:7] == [8] * 7


def test_ranks_in_step_take_the_same_buckets() -> None:
    def taken(rank: int) -> list[int]:
        source = cuts(2000, rank=rank, world_size=2)
        node = BucketingSampler(source, max_items=4, boundaries=[3.5, 6.5, 9.5], buffer_size=400, shuffle=True)
        return [int((batch[0].duration - 0.5) // 3) for batch in islice(node, 150)]

    first, second = taken(0), taken(1)
    assert first == second
    assert all(25 < count < 50 for count in Counter(first).values())


def test_an_epochs_batches_are_its_own() -> None:
    for name in ("dynamic, shuffled", "bucketing, shuffled"):
        node = SAMPLERS[name](cuts(20, shuffle=False))
        assert list(node) != list(node)


def test_tokens_rebuild_batches() -> None:
    node = BUCKETING(cuts())
    for _ in range(2):
        for token, make in node.pairs():
            batch = make()
            assert token == tuple(cut.ordinal for cut in batch)
            assert node[from_json(to_json(token))] == batch
    for wrong in (0, "a", ()):
        with pytest.raises(TypeError, match=r"shaped like \(source_token"):
            node[wrong]
    with pytest.raises(UsageError, match="only a state"):
        state_at(node, (0,))
    assert get_graph_origin(next(iter(node))) is not None


# -- resuming makes nothing again


@pytest.mark.parametrize("name", ["dynamic, shuffled", "bucketing", "bucketing, shuffled"])
@pytest.mark.parametrize("taken", [0, 1, 20, 60])
def test_a_replay_would_fail(name: str, taken: int) -> None:
    """What was in batches before is gone. What waits can be made, and is made with its batch and not before."""
    sampler = partial(SAMPLERS[name], buffer_size=50)
    data = Cuts(400)
    node = sampler(LazyIndexedManifestIterator(data, shuffle=True))
    first = list(islice(node, taken))
    state = to_json(collect_state_dict(node))
    rest = list(node) if not taken else None
    gone = Cuts(400, {cut.ordinal for batch in first for cut in batch})
    restored = sampler(LazyIndexedManifestIterator(gone, shuffle=True))
    restore_state_dict(restored, from_json(state))
    assert gone.made == []
    iterator = iter(restored)
    waiting = set(from_json(state)["state"].get("waiting", []))
    batches = []
    for batch in iterator:
        batches.append(batch)
        if taken and len(batches) == 1:
            made = Counter(gone.made)
            assert set(made.values()) == {1}
            # Of those that waited, the batch's alone were made.
            assert {ordinal for ordinal in made if ordinal in waiting} <= {cut.ordinal for cut in batch}
    assert rest is None or batches == rest
    seen = [cut.ordinal for batch in first + batches for cut in batch]
    assert sorted(seen) == list(range(400))
    assert len(gone.made) == len(set(gone.made))


def test_without_durations_nothing_is_made_before_its_batch() -> None:
    data = Cuts(100)
    pairs = list(DynamicSampler(LazyIndexedManifestIterator(data), max_items=10, shuffle=True).pairs())
    assert len(pairs) == 10
    assert data.made == []


def test_a_sample_is_made_once() -> None:
    data = Cuts(100)
    list(BUCKETING(LazyIndexedManifestIterator(data, shuffle=True), buffer_size=20))
    assert sorted(data.made) == list(range(100))


def test_the_state_is_small() -> None:
    node = BucketingSampler(cuts(1_000_000), max_duration=60, buffer_size=10_000, shuffle=True)
    next(iter(node))
    assert len(to_json(collect_state_dict(node))) < 20 * 10_000
    ordered = DynamicSampler(cuts(1_000_000), max_duration=60)
    next(iter(ordered))
    assert len(to_json(collect_state_dict(ordered))) < 800


def test_what_waits_when_a_sample_cannot_be_made_is_in_the_state() -> None:
    for name in ("dynamic", "bucketing", "bucketing, shuffled"):
        node = SAMPLERS[name](LazyIndexedManifestIterator(Cuts(30, {8, 9}), shuffle=False))
        seen: list[Cut] = []
        for _ in range(3):
            try:
                for batch in node:
                    seen += batch
                break
            except OSError:
                node.load_state_dict(node.state_dict())
        assert sorted(cut.ordinal for cut in seen) == [i for i in range(30) if i not in (8, 9)]


# -- what is refused


def test_indexed_and_streaming_sources_are_not_mixed() -> None:
    class Streams(IteratorNode):
        is_checkpointable = True

        def __iter__(self) -> Iterator[Cut]:
            yield Cut(0, 1.0)

    for other in ([Cut(0, 1.0)], Streams(), LazyMapper(Streams(), slower)):
        for sampler in (DYNAMIC, BUCKETING):
            mixed = LazyIteratorMultiplexer(cuts(), LazyFilter(LazyIteratorChain(other), short))
            with pytest.raises(UsageError, match="could not be restored"):
                sampler(mixed)
            streaming = sampler(LazyIteratorChain(other, other))
            assert lengths(streaming)[0][0] > 0
            with pytest.raises(UsageError, match="not checkpointable"):
                streaming.state_dict()


class Halves(IteratorNode):
    """Yields two for each, and passes no tokens on."""

    is_checkpointable = True

    def __init__(self, source: Any) -> None:
        self.source = source

    def __iter__(self) -> Iterator[Cut]:
        for cut in self.source:
            for half in range(2):
                yield Cut(cut.ordinal * 2 + half, cut.duration / 2)

    def state_dict(self) -> dict[str, Any]:
        return {"source": self.source.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.source.load_state_dict(state["source"])


class ClaimingHalves(Halves):
    is_indexed = True
    has_constant_time_access = True


class TokensOfTheWhole(ClaimingHalves):
    def __iter__(self) -> Iterator[Cut]:
        for cut in self.source:
            for half in range(2):
                yield maybe_attach_graph_origin(Cut(cut.ordinal * 2 + half, cut.duration / 2), get_graph_origin(cut))

    def __getitem__(self, token: Any) -> Cut:
        cut = self.source[token]
        return Cut(cut.ordinal * 2, cut.duration / 2)


@pytest.mark.parametrize("sampler", [DYNAMIC, BUCKETING, SAMPLERS["dynamic, shuffled"]])
def test_a_node_that_yields_more_than_it_was_given_needs_tokens_of_its_own(sampler: Make) -> None:
    with pytest.raises(UsageError, match="without a token"):
        next(iter(sampler(ClaimingHalves(cuts()))))
    with pytest.raises(UsageError, match="not checkpointable"):
        sampler(Halves(cuts())).state_dict()
    with pytest.raises(UsageError, match="two different items the token"):
        list(sampler(TokensOfTheWhole(cuts(4))))


def test_wrong_parameters_are_refused() -> None:
    for make in (
        lambda: DynamicSampler(cuts()),
        lambda: DynamicSampler(cuts(), max_duration=0),
        lambda: DynamicSampler(cuts(), max_duration=float("nan")),
        lambda: DynamicSampler(cuts(), max_items=-1),
        lambda: DYNAMIC(cuts(), shuffle=True, buffer_size=0),
        lambda: BUCKETING(cuts(), buffer_size=0),
        lambda: BUCKETING(cuts(), num_buckets=0),
        lambda: BUCKETING(cuts(), boundaries=[3, 2]),
        lambda: BUCKETING(cuts(), boundaries=[float("inf")]),
    ):
        with pytest.raises(UsageError):
            make()


def test_durations_that_are_none_are_refused() -> None:
    with pytest.raises(UsageError, match="Cut objects have no 'seconds'"):
        next(iter(DYNAMIC(cuts(), duration="seconds")))
    for duration in (-1.0, float("nan"), float("inf"), "1", None, True):
        with pytest.raises(UsageError, match="a finite number of 0 or more"):
            next(iter(BUCKETING(LazyIndexedManifestIterator([Cut(0, duration)]))))
    dicts = LazyIndexedManifestIterator([{"seconds": 3}, {"seconds": 4}])
    assert list(DYNAMIC(dicts, duration=lambda sample: sample["seconds"])) == [[{"seconds": 3}, {"seconds": 4}]]


def test_states_of_others_are_refused() -> None:
    node = BUCKETING(cuts())
    next(iter(node))
    state = collect_state_dict(node)
    for other, why in (
        (BUCKETING(cuts(12)), "length"),
        (BUCKETING(cuts(seed=4)), "seed"),
        (BUCKETING(cuts(), max_duration=26), "max_duration"),
        (BUCKETING(cuts(), num_buckets=4), "num_buckets"),
        (BUCKETING(cuts(), duration=attrgetter("duration")), "duration"),
        (DYNAMIC(cuts()), "graph"),
    ):
        with pytest.raises(UsageError, match=why):
            restore_state_dict(other, state)
    with pytest.raises(UsageError, match="cannot resume with another number of ranks"):
        merge_states([state])
    with pytest.raises(UsageError, match="no state"):
        node.load_state_dict(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["waiting", "durations", "drained", "boundaries", "drawn", "picked", "source"])
def test_a_state_that_lacks_something_is_refused(field: str) -> None:
    node = BUCKETING(cuts())
    next(iter(node))
    state = collect_state_dict(node)
    del state["state"][field]
    with pytest.raises(FormatError, match=field):
        restore_state_dict(BUCKETING(cuts()), state)


@settings(max_examples=3 * settings().max_examples)
@given(
    st.sampled_from(sorted(SAMPLERS)),
    st.randoms(use_true_random=False),
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.lists(st.integers())
    | st.just({})
    | st.just(1.5)
    | st.just(10**400),
)
def test_damaged_states_are_refused_or_go_on(name: str, random: Any, value: Any) -> None:
    node = SAMPLERS[name](cuts())
    list(islice(node, 2))
    state = copy.deepcopy(collect_state_dict(node))
    where, key = random.choice(list(places(state)))
    where[key] = value
    restored = SAMPLERS[name](cuts())
    try:
        restore_state_dict(restored, state)
        list(islice(restored, 50))
    except (FormatError, UsageError, IndexError, TypeError):
        return
