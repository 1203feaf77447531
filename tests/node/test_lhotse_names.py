"""Parameters by Lhotse's names have Lhotse's effect, or are refused by name."""

from __future__ import annotations

import json
import warnings
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from node import data
from node.graphs import Doubler, Thing, leaf, numbers, odd, several
from node.test_cut_mixer import Sound, Sounds, equal, mixer, noise, speech

from touchfs import SampleSet
from touchfs.core.errors import FormatError, UsageError
from touchfs.core.token import from_json, to_json
from touchfs.indexing import open_dataset
from touchfs.limits import Limits
from touchfs.node import (
    IteratorNode,
    LazyCutMixer,
    LazyFilter,
    LazyFlattener,
    LazyIndexedManifestIterator,
    LazyIndexedSharIterator,
    LazyInfiniteApproximateMultiplexer,
    LazyIteratorChain,
    LazyManifestIterator,
    LazyMapper,
    LazyRepeater,
    LazySharIterator,
    LazyShuffler,
    LazySlicer,
    collect_state_dict,
    get_graph_origin,
    restore_state_dict,
)
from touchfs.shard.options import Options
from touchfs.testing import check_restore


def test_the_source_is_called_iterator_too() -> None:
    pairs: list[tuple[IteratorNode, IteratorNode]] = [
        (LazyMapper(iterator=leaf(), fn=str), LazyMapper(leaf(), str)),
        (LazyFilter(iterator=leaf(), predicate=odd), LazyFilter(leaf(), odd)),
        (LazyFlattener(iterator=LazyMapper(leaf(), several)), LazyFlattener(LazyMapper(leaf(), several))),
        (LazyRepeater(iterator=leaf(), times=2), LazyRepeater(leaf(), 2)),
        (LazyShuffler(iterator=leaf(), buffer_size=3), LazyShuffler(leaf(), 3)),
        (LazySlicer(iterator=leaf(), k=1, n=2), LazySlicer(leaf(), 1, 2)),
        (LazyMapper(source=leaf(), fn=str), LazyMapper(leaf(), str)),
    ]
    for named, plain in pairs:
        assert list(named) == list(plain)
        assert to_json(collect_state_dict(named)) == to_json(collect_state_dict(plain))
    assert len(LazyIndexedManifestIterator(path=data.lines())) == 5
    with pytest.raises(TypeError, match="two names of one"):
        LazyMapper(source=leaf(), iterator=leaf(), fn=str)
    with pytest.raises(TypeError):
        LazyMapper(leaf(), iterator=leaf(), fn=str)


# -- ids of what is repeated


def ids(items: Any) -> list[str]:
    return [item.id for item in items]


def test_repeats_have_ids_of_their_own_if_asked_for() -> None:
    cuts = [Sound(f"cut{i}", [i]) for i in range(2)]
    kept, marked = (LazyRepeater(LazyIndexedManifestIterator(cuts), 2, preserve_id=keep) for keep in (True, False))
    assert ids(kept) == ids(LazyRepeater(LazyIndexedManifestIterator(cuts), 2)) == ["cut0", "cut1"] * 2
    items = list(marked)
    assert ids(items) == ["cut0_repeat0", "cut1_repeat0", "cut0_repeat1", "cut1_repeat1"]
    assert ids(cuts) == ["cut0", "cut1"]
    assert [marked[get_graph_origin(item)].id for item in items] == ids(items)
    assert ids(islice(marked, 3))[2] == "cut0_repeat1"
    assert ids(LazyRepeater(Doubler(LazyIndexedManifestIterator(cuts)).source, 1, False)) == ids(items)[:2]


def test_what_has_no_id_is_repeated_as_it_is() -> None:
    assert list(LazyRepeater(numbers(3), 2, preserve_id=False)) == list(LazyRepeater(numbers(3), 2))


def test_the_key_of_a_sample_is_its_id() -> None:
    samples = SampleSet.from_file(data.speech(), indexed=True)
    plain, marked = list(samples.repeat(2)), list(samples.repeat(2, preserve_id=False))
    count = len(samples)
    assert [sample.key for sample in marked] == [f"{s.key}_repeat{i // count}" for i, s in enumerate(plain)]
    assert [dict(sample) for sample in marked] == [dict(sample) for sample in plain]
    assert [sample.path("wav") for sample in marked] == [sample.path("wav") for sample in plain]


def test_repeats_with_ids_are_restored() -> None:
    check_restore(lambda: LazyRepeater(speech(3), 2, preserve_id=False), equal=equal)
    state = collect_state_dict(LazyRepeater(speech(3), 2, preserve_id=False))
    with pytest.raises(Exception, match="preserve_id"):
        restore_state_dict(LazyRepeater(speech(3), 2), state)


# -- mixers


def test_a_mixer_that_is_not_stateful_has_the_same_noise_in_each_epoch() -> None:
    def in_order() -> LazyIndexedManifestIterator:
        return LazyIndexedManifestIterator(Sounds("speech", 4))

    node, changing = mixer(in_order(), stateful=False), mixer(in_order())
    epochs = [list(node) for _ in range(3)]
    for epoch in epochs[1:]:
        assert all(map(equal, epoch, epochs[0]))
    assert all(map(equal, epochs[0], list(changing)))
    assert not all(map(equal, epochs[0], list(changing)))
    check_restore(lambda: mixer(speech(3), stateful=False), equal=equal)
    assert all(equal(node[get_graph_origin(item)], item) for item in epochs[2])
    with pytest.raises(Exception, match="stateful"):
        restore_state_dict(mixer(), collect_state_dict(mixer(stateful=False)))


def test_a_tag_is_refused_and_padding_changes_nothing() -> None:
    with pytest.raises(UsageError, match="LazyCutMixer takes no tag: it marks a track"):
        LazyCutMixer(speech(), noise(), tag="noise")  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="takes no tag"):
        SampleSet(speech()).mix(noise(), tag="noise")
    assert LazyCutMixer(speech(), noise(), tag=None).seed == 42  # type: ignore[call-arg]
    padded = mixer(duration=0.5, allow_padding=True)
    assert all(map(equal, padded, mixer(duration=0.5, allow_padding=False)))


# -- manifests


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Eight lines, of which the third and the sixth are no JSON."""
    path = tmp_path / "lines.jsonl"
    lines = [json.dumps({"id": f"k{i}", "value": i}).encode() for i in range(8)]
    lines[2], lines[5] = b'{"id": "k2", ', b'{"id": "\xff"}'
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def test_items_are_what_decode_makes_of_the_json() -> None:
    node = LazyIndexedManifestIterator(data.lines(), decode=dict)
    assert list(node) == [{"id": f"k{i}", "value": i} for i in range(5)]
    assert [node[get_graph_origin(item)] for item in node] == list(node)
    values = LazyIndexedManifestIterator(data.lines(), True, 3, decode=lambda told: Thing(told["value"]))
    plain = LazyIndexedManifestIterator(data.lines(), True, 3)
    assert [thing.value for thing in values] == [sample.ordinal for sample in plain]
    assert [thing.value for thing in SampleSet(values).shuffle(5)] == [s.ordinal for s in SampleSet(plain).shuffle(5)]
    assert [told["value"] for told in SampleSet.from_file(data.lines(), indexed=True, decode=dict)] == [*range(5)]
    check_restore(lambda: LazyIndexedManifestIterator(data.lines(), True, decode=dict))
    state = collect_state_dict(values)
    restore_state_dict(plain, state)


def test_what_has_no_json_cannot_be_decoded() -> None:
    with pytest.raises(UsageError, match=r"decode takes the \.json"):
        LazyIndexedManifestIterator(range(3), decode=dict)


@pytest.mark.filterwarnings("error")
def test_what_cannot_be_decoded_is_left_out_if_asked_for(damaged: Path) -> None:
    told: list[tuple[str, int, str]] = []

    def note(error: Exception, ordinal: int, path: str) -> None:
        told.append((type(error).__name__, ordinal, path))

    def make(**options: Any) -> LazyIndexedManifestIterator:
        return LazyIndexedManifestIterator(damaged, skip_decode_errors=True, decode_error_callback=note, **options)

    good = [0, 1, 3, 4, 6, 7]
    assert [item["value"] for item in make(decode=dict)] == good
    assert told == [("JSONDecodeError", 2, str(damaged)), ("UnicodeDecodeError", 5, str(damaged))]
    assert [sample.ordinal for sample in make()] == good
    assert sorted(item["value"] for item in make(decode=dict, shuffle=True)) == good
    assert len(make()) == 8
    with pytest.raises(json.JSONDecodeError):
        make(decode=dict)[2]
    with pytest.raises(json.JSONDecodeError) as raised:
        list(LazyIndexedManifestIterator(damaged, decode=dict))
    assert f"in {damaged}: sample 2, key " in raised.value.__notes__[0]
    check_restore(lambda: make(decode=dict, shuffle=True))
    check_restore(lambda: LazyRepeater(make(decode=dict, shuffle=True), 2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        list(LazyIndexedManifestIterator(damaged, skip_decode_errors=True))
    assert ["sample 2 is left out: JSONDecode" in str(w.message) for w in caught] == [True, False]
    with pytest.raises(UsageError, match="skip_decode_errors=True"):
        LazyIndexedManifestIterator(damaged, decode_error_callback=note)


def test_json_over_the_limit_is_not_decoded() -> None:
    dataset = open_dataset(str(data.lines()), options=Options(limits=Limits(json=20)))
    with pytest.raises(FormatError, match="longer JSON is not parsed"):
        list(LazyIndexedManifestIterator(dataset, decode=dict))


def test_where_an_index_is_is_not_told() -> None:
    for make in (
        lambda: LazyIndexedManifestIterator(data.lines(), index_path="x.idx"),  # type: ignore[call-arg]
        lambda: SampleSet.from_file(data.lines(), index_path="x.idx"),
        lambda: SampleSet.from_file(data.lines(), indexed=True, index_path="x.idx"),
        lambda: SampleSet.from_shar(in_dir=data.shar_directory(), index_path="x"),
        lambda: SampleSet.from_shar(in_dir=data.shar_directory(), indexed=False, index_path="x"),
    ):
        with pytest.raises(UsageError, match="takes no index_path: touchfs has indexes of its own"):
            make()
    assert len(SampleSet.from_file(data.lines(), indexed=True, index_path=None)) == 5


# -- Shar


@pytest.mark.parametrize("indexed", [True, False])
def test_other_parameters_of_a_shar_are_refused_by_name(indexed: bool) -> None:
    for name in ("index_path", "indexes_root", "cut_map_fns", "slice_length"):
        with pytest.raises(UsageError, match=f"takes no {name}: "):
            SampleSet.from_shar(in_dir=data.shar_directory(), indexed=indexed, **{name: ["x"]})
    with pytest.raises(UsageError, match="takes no lazy: "):
        LazyIndexedSharIterator(in_dir=data.shar_directory(), lazy=True)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match=r"takes no stop_early: .* never stops"):
        LazyInfiniteApproximateMultiplexer(leaf(), stop_early=True)  # type: ignore[call-arg]


def keys(cuts: Any) -> list[str]:
    return [cut.key for cut in cuts]


@pytest.mark.parametrize("indexed", [True, False])
def test_a_shuffle_that_is_not_stateful_is_the_same_in_each_epoch(indexed: bool) -> None:
    def make(**options: Any) -> SampleSet:
        return SampleSet.from_shar(
            in_dir=data.shar_directory(), indexed=indexed, shuffle_shards=True, seed=5, **options
        )

    node, changing = make(stateful_shuffle=False), make(stateful_shuffle=True)
    epochs = [keys(node) for _ in range(4)]
    assert epochs == [keys(make())] * 4
    assert len({tuple(keys(changing)) for _ in range(6)}) > 1
    check_restore(lambda: make(stateful_shuffle=False).data)
    with pytest.raises(Exception, match="stateful_shuffle"):
        make().load_state_dict(from_json(to_json(node.state_dict())))


def test_with_an_index_shuffling_shards_shuffles_samples() -> None:
    theirs = SampleSet.from_shar(in_dir=data.shar_directory(), shuffle_shards=True, seed=3)
    assert keys(theirs) == keys(SampleSet.from_shar(in_dir=data.shar_directory(), shuffle=True, seed=3))


@pytest.mark.parametrize("kind", [LazySharIterator, LazyIndexedSharIterator])
def test_a_process_takes_its_ranks_share(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(**options: Any) -> Any:
        return kind(in_dir=data.shar_directory(), split_for_dataloading=True, **options)

    whole = keys(kind(in_dir=data.shar_directory()))
    assert keys(make()) == whole
    shares, states = [], []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        node = make()
        shares += keys(node)
        check_restore(make)
        items = iter(node)
        next(items)
        states.append((collect_state_dict(node), keys(items)))
    assert sorted(shares) == sorted(whole)
    restored = make()
    restore_state_dict(restored, states[1][0])
    assert keys(restored) == states[1][1]
    monkeypatch.setenv("RANK", "7")
    with pytest.raises(UsageError, match="RANK and WORLD_SIZE"):
        keys(make())


def test_what_is_split_is_split_once() -> None:
    for kind in (LazySharIterator, LazyIndexedSharIterator):
        with pytest.raises(UsageError, match="leave out split_for_dataloading"):
            kind(in_dir=data.shar_directory(), split_for_dataloading=True, rank=0, world_size=2)
    split = LazyIndexedSharIterator(in_dir=data.shar_directory(), split_for_dataloading=True)
    with pytest.raises(UsageError, match="not split"):
        LazyIteratorChain(split, split, shuffle_iters=True)
    with pytest.raises(UsageError, match="seed='randomized' is drawn"):
        LazySharIterator(
            in_dir=data.shar_directory(), split_for_dataloading=True, shuffle_shards=True, seed="randomized"
        )
    assert sorted(keys(SampleSet(split).shuffle(3))) == sorted(keys(split))
    assert isinstance(LazyManifestIterator(data.speech(), index_path=None), IteratorNode)  # type: ignore[call-arg]
