"""Nodes over data: what they yield by index and streamed, and what resuming them reads."""

from __future__ import annotations

import gc
import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
from node import data
from node.test_order import GOLDEN

from touchfs.containers.shar.reader import SharShard
from touchfs.containers.touchnet.reader import TouchNetShard
from touchfs.core.errors import ChangedError, FormatError, NotFoundError, SourceError, UsageError
from touchfs.core.token import from_json, to_json
from touchfs.dataset.sample import MadeSample, Sample
from touchfs.dataset.samples import DatasetSamples, Samples
from touchfs.dataset.segments import SegmentSamples
from touchfs.indexing import open_dataset
from touchfs.node import (
    LazyFilter,
    LazyIndexedManifestIterator,
    LazyIndexedSharIterator,
    LazyIteratorChain,
    LazyJsonlIterator,
    LazyManifestIterator,
    LazyMapper,
    LazyRepeater,
    LazySharIterator,
    LazyShuffler,
    get_graph_origin,
    merge_states,
    state_at,
)
from touchfs.node.graph.state import collect_state_dict, restore_state_dict
from touchfs.sample_set import SampleSet
from touchfs.stream.lines import LineStream
from touchfs.stream.shard import ShardStream
from touchfs.testing import check_restore


def contents(samples: Iterable[Sample]) -> list[Any]:
    return [(sample.shard, sample.ordinal, sample.key, dict(sample)) for sample in samples]


# -- what they yield


@pytest.mark.parametrize("source", [data.lines, data.speech, data.shar_directory])
def test_streamed_samples_are_those_by_index(source: Any) -> None:
    assert contents(LazyManifestIterator(source())) == contents(LazyIndexedManifestIterator(source()))


def test_compressed_lines_and_those_of_a_command_are_the_same() -> None:
    by_index = contents(LazyIndexedManifestIterator(data.lines()))
    assert [sample[2] for sample in by_index] == ["k0", "k1", "k2", "k3", "k4"]
    streamed = contents(LazyManifestIterator(f"{data.lines()}.gz"))
    assert streamed == by_index
    piped = contents(LazyManifestIterator(f"pipe:zcat {data.lines()}.gz"))
    assert [sample[1:] for sample in piped] == [sample[1:] for sample in by_index]


def test_a_shar_is_the_same_by_index_streamed_compressed_and_spread() -> None:
    by_index = contents(LazyIndexedSharIterator(in_dir=data.shar_directory()))
    assert len(by_index) == 7
    assert contents(LazySharIterator(in_dir=data.shar_directory())) == by_index
    assert contents(LazySharIterator(in_dir=data.shar_directory(True))) == by_index
    fields = data.shar_fields(False, "lang")
    some = contents(LazyIndexedSharIterator(fields))
    assert [list(sample[3]) for sample in some] == [["json", "lang.txt"]] * 7
    assert contents(LazySharIterator(fields)) == some
    assert contents(LazySharIterator(data.shar_fields(True, "lang"))) == some


def test_fields_of_a_shar_from_other_directories(tmp_path: Path) -> None:
    fields = data.shar_fields(True, "lang", "recording")
    for path in fields["lang"]:
        shutil.copy(path, tmp_path / f"called-otherwise.{path.name}")
    spread = fields | {"lang": sorted(tmp_path.iterdir())}
    assert contents(LazySharIterator(spread)) == contents(LazySharIterator(fields))
    plain = data.shar_fields(False, "recording")
    with pytest.raises(UsageError, match=r"called-otherwise.* is compressed"):
        LazyIndexedSharIterator(plain | {"lang": spread["lang"]})
    shutil.copy(data.shar_fields(False, "lang")["lang"][0], tmp_path / "lang.000000.jsonl")
    with pytest.raises(UsageError, match="is not in the directory of"):
        LazyIndexedSharIterator({"cuts": plain["cuts"][:1], "lang": [tmp_path / "lang.000000.jsonl"]})
    with pytest.raises(UsageError, match="not a file of the field 'lang'"):
        LazyIndexedSharIterator({"cuts": plain["cuts"], "lang": plain["recording"]})


def piped(command: str, paths: Iterable[Path]) -> list[str]:
    return [f"pipe:{command} {path}" for path in paths]


def test_fields_of_a_shar_from_commands() -> None:
    """Lines and tars, told apart by what the commands write; all of them, or some."""
    plain, compressed = (data.shar_fields(each, "lang", "recording") for each in (False, True))
    expected = contents(LazySharIterator(plain))
    commands = {"cuts": "zcat", "lang": "gzip -dc", "recording": "cat"}
    fields = {name: piped(command, compressed[name]) for name, command in commands.items()}
    for some in (fields, {**plain, "recording": fields["recording"]}, {**fields, "cuts": compressed["cuts"]}):
        assert [sample[1:] for sample in contents(LazySharIterator(some))] == [sample[1:] for sample in expected]
        assert [sample[1:] for sample in contents(SampleSet.from_shar(some).data)] == [each[1:] for each in expected]
    cuts = list(LazySharIterator({"cuts": fields["cuts"]}))
    assert [list(sample) for sample in cuts] == [["json"]] * 7
    assert list(dict.fromkeys(sample.shard for sample in cuts)) == ["pipe:", "pipe:~2", "pipe:~3"]
    with pytest.raises(UsageError, match="what a command writes can only be read from its start on"):
        LazyIndexedSharIterator(fields)
    with pytest.raises(UsageError, match="what a command writes can only be read from its start on"):
        SampleSet.from_shar(fields, indexed=True)


def test_a_shar_from_commands_is_resumed_exactly() -> None:
    fields = {name: piped("cat", paths) for name, paths in data.shar_fields(False, "lang").items()}
    check_restore(lambda: LazySharIterator(fields, shuffle_shards=True, seed=1), items=4)  # of more than one shard


@pytest.mark.parametrize(("command", "status"), [("cat /dev/zero | head -c 999; false", 1), ("no-such-command", 127)])
def test_a_field_whose_command_fails(
    command: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", os.fspath(tmp_path))
    fields = {**data.shar_fields(), "recording": piped(f"{command} #", data.shar_fields()["cuts"])}
    iterator = iter(LazySharIterator(fields))
    with pytest.raises(SourceError, match=f"ended with status {status}"):
        next(iterator)
    del iterator
    gc.collect()
    assert not os.listdir(tmp_path), "nothing is left of what it wrote"


def test_what_is_streamed_can_be_read_after_its_shard() -> None:
    streamed = list(LazySharIterator(in_dir=data.shar_directory(True)))
    assert contents(streamed) == contents(LazyIndexedSharIterator(in_dir=data.shar_directory()))
    places = {os.path.dirname(path) for path in _open_paths() if "touchfs-shar-" in path}
    assert places
    del streamed
    assert not any(map(os.path.exists, places))


def _open_paths() -> list[str]:
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return [os.readlink(link) for link in links if os.path.lexists(link)]


def test_a_compressed_twin_does_not_touch_the_plain_file(tmp_path: Path) -> None:
    shutil.copytree(data.shar_directory(True), tmp_path / "shar")
    plain = data.shar_directory() / "cuts.000000.jsonl"
    shutil.copy(plain, tmp_path / "shar")
    assert len(list(LazySharIterator(in_dir=tmp_path / "shar"))) == 7
    assert (tmp_path / "shar" / plain.name).read_bytes() == plain.read_bytes()
    for path in data.shar_fields()["cuts"]:
        shutil.copy(path, tmp_path / "shar")
    with pytest.raises(UsageError, match=r"lang\.000000\.jsonl\.gz: cannot be indexed"):
        LazyIndexedSharIterator(in_dir=tmp_path / "shar")
    for path in data.shar_fields(False, "lang")["lang"]:
        shutil.copy(path, tmp_path / "shar")
    assert len(list(LazyIndexedSharIterator(in_dir=tmp_path / "shar"))) == 7


def test_a_wrong_shar_is_refused(tmp_path: Path) -> None:
    cuts = data.shar_fields()["cuts"]
    for kind in (LazySharIterator, LazyIndexedSharIterator):
        with pytest.raises(UsageError, match="give exactly one of in_dir and fields"):
            kind()
        with pytest.raises(UsageError, match="give exactly one of in_dir and fields"):
            kind({"cuts": cuts}, data.shar_directory())
        with pytest.raises(UsageError, match="fields must include the files of 'cuts'"):
            kind({"lang": cuts})
        with pytest.raises(UsageError, match="'lang' has 1 files, and 'cuts' has 3"):
            kind({"cuts": cuts, "lang": cuts[:1]})
        with pytest.raises(NotFoundError, match="no Lhotse Shar here"):
            kind(in_dir=data.speech())
    with pytest.raises(UsageError, match=r"is compressed, .* LazySharIterator"):
        LazyIndexedSharIterator(in_dir=data.shar_directory(True))


def test_a_jsonl_iterator_yields_objects(tmp_path: Path) -> None:
    for path in (data.lines(), f"{data.lines()}.gz", f"pipe:cat {data.lines()}"):
        node = LazyJsonlIterator(path)
        assert list(node) == list(node) == [{"id": f"k{i}", "value": i} for i in range(5)]
    (tmp_path / "bad.jsonl").write_bytes(b'{"a": 1}\n[1]\n')
    objects = iter(LazyJsonlIterator(tmp_path / "bad.jsonl"))
    assert next(objects) == {"a": 1}
    with pytest.raises(FormatError, match=r"bad\.jsonl: the line at byte 9 is not a JSON object"):
        next(objects)


# -- order and tokens


@pytest.mark.parametrize(("size", "seed", "first"), [case for case in GOLDEN if case[0] <= 1000])
def test_a_shuffled_dataset_is_in_lhotses_order(tmp_path: Path, size: int, seed: int, first: list[int]) -> None:
    (tmp_path / "a.jsonl").write_text("".join(f'{{"id": {i}}}\n' for i in range(size)))
    node = LazyIndexedManifestIterator(tmp_path / "a.jsonl", shuffle=True, seed=seed)
    assert [sample.ordinal for sample in islice(node, len(first))] == first
    assert node.config()["order"] == "lhotse"


def test_a_shar_carries_its_epoch() -> None:
    node = LazyIndexedSharIterator(in_dir=data.shar_directory(), shuffle=True)
    epochs = [list(node) for _ in range(3)]
    assert [{sample.shar_epoch for sample in epoch} for epoch in epochs] == [{0}, {1}, {2}]
    assert get_graph_origin(epochs[2][0]) == (
        DatasetSamples(open_dataset(str(data.shar_directory()))).index(_without_epoch(epochs[2][0])),
        2,
    )
    for sample in chain(*epochs):
        assert node[get_graph_origin(sample)].shar_epoch == sample.shar_epoch
    assert node[3] == node[3, 0] != node[3, 1]
    streamed = LazySharIterator(in_dir=data.shar_directory())
    assert [{sample.shar_epoch for sample in streamed} for _ in range(2)] == [{0}, {1}]
    repeated = LazyRepeater(LazyIndexedSharIterator(in_dir=data.shar_directory()), 2)
    assert [sample.shar_epoch for sample in repeated] == [0] * 7 + [1] * 7
    chained = LazyIteratorChain(LazyIndexedSharIterator(in_dir=data.shar_directory()), shuffle_iters=True)
    assert [{sample.shar_epoch for sample in chained} for _ in range(2)] == [{0}, {1}]


def _without_epoch(sample: Sample) -> Sample:
    return MadeSample(sample.view, sample.shard, sample.ordinal, sample.number, sample.key, {})


def test_wrong_tokens_of_a_shar() -> None:
    node = LazyIndexedSharIterator(in_dir=data.shar_directory())
    for token in ("a", (0, "a"), (0, 0, 0), (0, -1), ((0, 0), 0)):
        with pytest.raises(TypeError, match=r"shaped like \(position, shar_epoch\)"):
            node[token]
    for token in (7, -1, (7, 0)):
        with pytest.raises(IndexError, match="out of range"):
            node[token]


def test_a_token_positions_a_shar_in_its_epoch() -> None:
    make = lambda: LazyIndexedSharIterator(in_dir=data.shar_directory(), shuffle=True)  # noqa: E731
    whole = make()
    epochs = [list(whole), list(whole)]
    node = make()
    restore_state_dict(node, state_at(node, get_graph_origin(epochs[1][4]), 1))
    assert list(node) == epochs[1][4:]
    with pytest.raises(UsageError, match="is a token of epoch 1, and this is epoch 0"):
        state_at(make(), get_graph_origin(epochs[1][4]))


def test_ranks_share_streamed_shards() -> None:
    for epoch_of in (lambda node: list(node), lambda node: [list(node), list(node)][1]):
        parts = [epoch_of(LazyManifestIterator(data.speech(), True, rank=rank, world_size=2)) for rank in range(2)]
        assert sorted(chain(*parts), key=repr) == sorted(LazyManifestIterator(data.speech()), key=repr)
    orders = LazyManifestIterator(data.speech(), shuffle_shards=True, seed=1)
    assert len({tuple(sample.shard for sample in orders) for _ in range(8)}) > 1


# -- resuming


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The ordinals of all samples that are made, by index or by any shard, and how."""
    made: list[Any] = []

    def noted(kind: type, name: str, ordinal_at: int) -> None:
        function = getattr(kind, name)

        def and_noted(*arguments: Any) -> Any:
            made.append((f"{kind.__name__}.{name}", arguments[ordinal_at]))
            return function(*arguments)

        monkeypatch.setattr(kind, name, and_noted)

    noted(Samples, "__getitem__", 1)
    noted(DatasetSamples, "show", 3)
    noted(SegmentSamples, "show", 3)
    noted(LineStream, "_sample", 1)
    noted(TouchNetShard, "sample", 1)
    noted(SharShard, "sample", 1)
    return made


RESUMED = {
    "samples": lambda: LazyIndexedManifestIterator(data.speech(), shuffle=True),
    "segments": lambda: LazyIndexedManifestIterator(SegmentSamples(open_dataset(str(data.speech()))), shuffle=True),
    "shuffle buffer": lambda: LazyShuffler(LazyMapper(LazyIndexedManifestIterator(data.speech()), dict), 3),
    "shar by index": lambda: LazyIndexedSharIterator(in_dir=data.shar_directory(), shuffle=True),
    "chain": lambda: LazyIteratorChain(
        LazyIndexedSharIterator(in_dir=data.shar_directory()),
        LazyIndexedManifestIterator(data.lines()),
        shuffle_iters=True,
    ),
    "lines": lambda: LazyManifestIterator(f"{data.lines()}.gz"),
    "shards": lambda: LazyManifestIterator(data.speech()),
    "shar": lambda: LazySharIterator(in_dir=data.shar_directory(True)),
    "filter": lambda: LazyFilter(LazyManifestIterator(data.lines()), bool),
}


@pytest.mark.parametrize("name", RESUMED)
@pytest.mark.parametrize("taken", [0, 1, 3, 5])
def test_resuming_makes_no_sample_but_the_next(made: list[Any], name: str, taken: int) -> None:
    node, whole = RESUMED[name](), list(RESUMED[name]())
    list(islice(node, taken))
    state = from_json(to_json(collect_state_dict(node)))
    restored = RESUMED[name]()
    made.clear()
    restore_state_dict(restored, state)
    rest = iter(restored)
    assert made == []
    assert list(islice(rest, 1)) == whole[taken : taken + 1]
    assert len(made) == len({function for function, _ in made}) <= 2


@pytest.mark.parametrize("name", sorted(RESUMED.keys() - {"filter"}))
def test_what_is_passed_over_is_not_made(made: list[Any], name: str) -> None:
    whole = len(list(RESUMED[name]()))
    made.clear()
    assert len([None for _ in RESUMED[name]().pairs()]) == whole
    assert made == []


def test_a_state_goes_to_another_machine(tmp_path: Path) -> None:
    shutil.copytree(data.speech(), tmp_path / "elsewhere")
    for kind in (LazyIndexedManifestIterator, LazyManifestIterator):
        node = kind(data.speech())
        first = list(islice(node, 2))
        other = kind(tmp_path / "elsewhere")
        restore_state_dict(other, collect_state_dict(node))
        assert first + list(other) == list(kind(data.speech()))


@pytest.mark.parametrize("kind", [LazyIndexedManifestIterator, LazyManifestIterator])
def test_a_state_of_other_data_is_refused(tmp_path: Path, kind: Any) -> None:
    node = kind(data.lines(5))
    next(iter(node))
    state = collect_state_dict(node)
    with pytest.raises(UsageError, match=r"length = 5, here it is 3|fingerprint ="):
        restore_state_dict(kind(data.lines(3)), state)
    with pytest.raises(UsageError, match="state is of the graph"):
        restore_state_dict(LazyMapper(kind(data.lines(5)), dict), state)


def test_a_state_of_lines_that_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    shutil.copy(data.lines(), path)
    node = LazyManifestIterator(path)
    list(islice(node, 2))
    state = collect_state_dict(node)
    path.write_bytes(path.read_bytes().replace(b'"k1"', b'"K1"'))
    other = LazyManifestIterator(path)
    restore_state_dict(other, state)
    with pytest.raises(ChangedError, match="another line ends here"):
        next(iter(other))


def test_a_streams_state_is_one_ranks_own() -> None:
    make = lambda rank: LazyManifestIterator(data.speech(), rank=rank, world_size=2)  # noqa: E731
    states = [collect_state_dict(make(rank)) for rank in range(2)]
    with pytest.raises(UsageError, match="partition = "):
        restore_state_dict(make(1), states[0])
    with pytest.raises(UsageError):
        merge_states(states)


@pytest.mark.parametrize("place", [[1], [1, 2], [9, 9, 9, 9], [1, -1, 0, 0], [1, 5, 9, 0], "a", [None], [1.5]])
@pytest.mark.parametrize("source", [data.lines, data.speech])
def test_damaged_places_are_refused(source: Any, place: Any) -> None:
    node = LazyManifestIterator(source())
    state = json.loads(json.dumps(collect_state_dict(node)))
    state["state"]["place"] = place
    if source is data.speech and place == [1]:
        return
    with pytest.raises((FormatError, ChangedError)):
        restore_state_dict(node, state)
        next(iter(node))


def test_a_shard_stream_goes_to_an_ordinal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = ShardStream(str(data.speech() / "000000000"), "x")
    assert [make().ordinal for _, make in stream.samples([2])] == [2]
    assert list(stream.samples([3])) == []
    with pytest.raises(FormatError, match="has 3 samples, and 4 were taken"):
        next(stream.samples([4]))


def test_ranks_of_a_dataset_go_on_as_others() -> None:
    make = lambda rank, ranks: LazyIndexedSharIterator(  # noqa: E731
        in_dir=data.shar_directory(), shuffle=True, rank=rank, world_size=ranks
    )
    old = [make(rank, 3) for rank in range(3)]
    seen = [sample for rank, node in enumerate(old) for sample in islice(node, rank)]
    merged = merge_states(list(map(collect_state_dict, old)))
    for rank in range(2):
        node = make(rank, 2)
        restore_state_dict(node, merged)
        seen += node
    assert sorted(sample.key for sample in seen) == [f"cut-{i}" for i in range(7)]
