"""`SampleSet`: graphs by chaining, and when a source is read by index."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from node import data
from node.graphs import leaf

import touchfs
from touchfs import SampleSet
from touchfs.core.errors import ChangedError, UsageError
from touchfs.core.token import from_json, to_json
from touchfs.node import (
    DynamicSampler,
    LazyIndexedManifestIterator,
    LazyIndexedSharIterator,
    LazyManifestIterator,
    LazyMapper,
    LazySharIterator,
    get_graph_origin,
    resolve_iterator_source,
)
from touchfs.peers.match import has_native_indexes
from touchfs.peers.write import Dialect, write_index
from touchfs.testing import check_restore


def ordinals(samples: Any) -> list[int]:
    return [sample.ordinal for sample in samples]


def test_it_is_exported() -> None:
    assert touchfs.SampleSet is SampleSet
    assert {"SampleSet", "TouchDataset"} <= set(touchfs.__all__)


def test_chained_methods_are_the_nodes() -> None:
    numbers = SampleSet(LazyIndexedManifestIterator(range(6)))
    assert list(numbers.filter(lambda number: number % 2)) == [1, 3, 5]
    assert list(numbers.map(str, apply_fn=lambda number: number > 3)) == [0, 1, 2, 3, "4", "5"]
    assert list(numbers.map(lambda number: [number] * number).flatten())[:4] == [1, 2, 2, 3]
    assert list(numbers.repeat(2)) == [*range(6)] * 2
    assert list(islice(numbers.repeat(), 20))[18:] == [0, 1]
    assert list(numbers.chain(numbers, [7])) == [*range(6), *range(6), 7]
    for mixed in (
        numbers.mux(numbers, weights=[1, 2], seed=3),
        SampleSet.mux(numbers, numbers, weights=[1, 2], seed=3),
    ):
        assert sorted(mixed) == sorted([*range(6)] * 2)
    assert list(numbers.shuffle(42)) == list(LazyIndexedManifestIterator(range(6), shuffle=True, seed=42))
    assert sorted(numbers.shuffle(1, buffer_size=3)) == list(range(6))
    parts = [list(numbers.shuffle(42, rank=rank, world_size=2)) for rank in range(2)]
    assert sorted(parts[0] + parts[1]) == list(range(6))
    assert repr(numbers.map(str)) == "SampleSet(LazyMapper(LazyIndexedManifestIterator))"


def test_lengths_and_truth() -> None:
    numbers = SampleSet(LazyIndexedManifestIterator(range(6)))
    assert [len(each) for each in (numbers, numbers.map(str), numbers.shuffle(), numbers.repeat(2))] == [6, 6, 6, 12]
    for unknown in (numbers.filter(bool), numbers.repeat()):
        with pytest.raises(TypeError):
            len(unknown)
        assert unknown


def test_it_is_looked_through() -> None:
    numbers = SampleSet(leaf(3))
    assert resolve_iterator_source(numbers) is numbers.data
    assert LazyMapper(numbers, str).source is numbers.data
    assert SampleSet(numbers).data is numbers.data


def test_it_is_saved_and_restored_and_rebuilds_items() -> None:
    def make() -> SampleSet:
        return (
            SampleSet.from_file(data.speech())
            .shuffle(7)
            .filter(bool)
            .map(dict)
            .mux(SampleSet.from_file(data.lines(), indexed=True))
        )

    samples = make()
    whole = list(make())
    first = list(islice(samples, 5))
    restored = make()
    restored.load_state_dict(from_json(to_json(samples.state_dict())))
    assert first + list(restored) == whole
    assert samples[get_graph_origin(whole[3])] == whole[3]
    check_restore(lambda: make().data)


def test_a_shuffle_of_all_takes_an_index() -> None:
    streamed = SampleSet.from_file(data.lines(), indexed=False)
    with pytest.raises(UsageError, match="needs indexed sources"):
        streamed.shuffle()
    assert sorted(ordinals(streamed.shuffle(buffer_size=3))) == [0, 1, 2, 3, 4]
    with pytest.raises(UsageError, match="has no world_size: give that to what is shuffled"):
        streamed.shuffle(buffer_size=3, world_size=2)


def test_mixing_is_the_cut_mixers() -> None:
    mixed = SampleSet(leaf(3)).mix(leaf(2), seed=5)
    assert type(mixed.data).__name__ == "LazyCutMixer"
    assert mixed.data.seed == 5


def test_samples_of_datasets_are_mixed() -> None:
    speech = SampleSet.from_file(data.speech()).shuffle(7)
    mixed = speech.mix(SampleSet.from_shar(in_dir=data.shar_directory()), snr=10, preserve_id="left")
    for before, after in zip(speech, mixed, strict=True):
        assert (after.id, after.sample["txt"], after.sampling_rate) == (before.key, before["txt"], data.RATE)
        signal = before.array("wav") / 32768
        assert 10 * np.log10(np.mean(signal**2) / np.mean((after.audio - signal)[:780] ** 2)) == pytest.approx(10, 0.2)
        assert mixed[get_graph_origin(after)] == after
    for streamed in (SampleSet.from_file(data.speech(), indexed=False), SampleSet.from_file(f"{data.lines()}.gz")):
        with pytest.raises(UsageError, match="give a sequence or an indexed node"):
            speech.mix(streamed)


# -- indexed or not


def test_by_default_it_is_what_the_data_was_prepared_for(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    shutil.copy(data.lines(), path)

    def kind() -> type:
        return type(SampleSet.from_file(path).data)

    assert kind() is LazyManifestIterator
    assert ordinals(SampleSet.from_file(path, indexed=True)) == [0, 1, 2, 3, 4]
    assert kind() is LazyManifestIterator, "what is in a cache does not count"
    write_index(str(path), f"{path}.idx", None)
    assert kind() is LazyIndexedManifestIterator
    index = Path(f"{path}.idx")
    for damaged in (index.read_bytes()[:-8], index.read_bytes()[:-3], b"", bytes(16)):
        index.write_bytes(damaged)
        assert kind() is LazyManifestIterator
    assert type(SampleSet.from_file(path, indexed=False).data) is LazyManifestIterator
    assert type(SampleSet.from_file(data.speech()).data) is LazyIndexedManifestIterator
    assert type(SampleSet.from_file(data.speech(), indexed=False).data) is LazyManifestIterator
    assert type(SampleSet.from_file(f"{data.lines()}.gz").data) is LazyManifestIterator
    assert type(SampleSet.from_file("pipe:true").data) is LazyManifestIterator


def test_the_index_of_a_tar_ends_within_its_end_mark(tmp_path: Path) -> None:
    (tar,) = (path for path in data.shar_directory().glob("recording.000000.tar"))
    shutil.copy(tar, tmp_path / "a.tar")
    assert not has_native_indexes(str(tmp_path / "a.tar"))
    for dialect in (Dialect.LHOTSE, Dialect.ENERGON):
        write_index(str(tmp_path / "a.tar"), str(tmp_path / "a.tar.idx"), dialect)
        assert has_native_indexes(str(tmp_path))
    with open(tmp_path / "a.tar", "ab") as file:
        file.write(bytes(1 << 16))
    assert not has_native_indexes(str(tmp_path))


def test_a_shar_is_indexed_if_all_wanted_fields_are(tmp_path: Path) -> None:
    shutil.copytree(data.shar_directory(), tmp_path / "shar")

    def kind(*fields: str) -> type:
        paths = {name: sorted((tmp_path / "shar").glob(f"{name}.*[rl]")) for name in ("cuts", *fields)}
        return type((SampleSet.from_shar(paths) if fields else SampleSet.from_shar(in_dir=tmp_path / "shar")).data)

    assert kind() is kind("lang") is LazyIndexedSharIterator
    (tmp_path / "shar" / "recording.000001.tar.idx").unlink()
    assert kind() is kind("recording") is LazySharIterator
    assert kind("lang") is LazyIndexedSharIterator
    (tmp_path / "shar" / "README.md").write_text("about")
    assert kind("lang") is LazyIndexedSharIterator
    assert type(SampleSet.from_shar(in_dir=data.shar_directory(True)).data) is LazySharIterator
    assert type(SampleSet.from_shar(in_dir=tmp_path / "shar", indexed=True).data) is LazyIndexedSharIterator
    assert type(SampleSet.from_shar(in_dir=data.shar_directory(), indexed=False).data) is LazySharIterator


@pytest.mark.parametrize("path", ["x.jsonl.gz", "x.tar.zst", "pipe:cat x.jsonl"])
def test_what_cannot_be_indexed_says_why(path: str) -> None:
    with pytest.raises(
        UsageError, match=r"cannot be indexed: .*(decompress it|write it to a file), or .*indexed=False"
    ):
        SampleSet.from_file(path, indexed=True)


@pytest.mark.parametrize("name", ["shuffle", "partition", "tail"])
def test_an_order_that_needs_an_index_says_so(name: str) -> None:
    problem = f"{name} needs indexed=True; shards that are read in order have shuffle_shards"
    with pytest.raises(UsageError, match=problem):
        SampleSet.from_file(data.speech(), indexed=False, **{name: True})
    with pytest.raises(UsageError, match=problem):
        SampleSet.from_shar(in_dir=data.shar_directory(), indexed=False, **{name: True})


def test_a_compressed_shar_cannot_be_indexed() -> None:
    for arguments in ({"in_dir": data.shar_directory(True)}, {"fields": data.shar_fields(True, "lang")}):
        with pytest.raises(UsageError, match="cannot be indexed: it is compressed"):
            SampleSet.from_shar(**arguments, indexed=True)


def test_order_is_told_to_the_leaf() -> None:
    assert len(SampleSet.from_file(data.speech(), rank=1, world_size=4)) == 2
    shuffled = SampleSet.from_file(data.speech(), shuffle=True, seed=3)
    assert list(shuffled) == list(LazyIndexedManifestIterator(data.speech(), shuffle=True, seed=3))
    with pytest.raises(TypeError):
        SampleSet.from_file(data.lines(), shuffle=True)


def test_a_dataset_that_changed_is_told(tmp_path: Path) -> None:
    shutil.copy(data.lines(), tmp_path / "a.jsonl")
    samples = SampleSet.from_file(tmp_path / "a.jsonl", indexed=True)
    iterator = iter(samples)
    next(iterator)
    (tmp_path / "a.jsonl").write_bytes(b"{}\n")
    with pytest.raises(ChangedError):
        [sample["json"] for sample in SampleSet(samples)]


def test_samples_know_how_long_they_are() -> None:
    samples = list(SampleSet.from_file(data.speech(), indexed=True))
    told = [sample.duration for sample in samples if "wav" in sample]
    assert told == [len(sample.array("wav")) / 16000 for sample in samples if "wav" in sample] and told
    batches = list(DynamicSampler(SampleSet.from_file(data.speech(), indexed=True), max_duration=2 * max(told)))
    assert sorted(sample.key for batch in batches for sample in batch) == sorted(sample.key for sample in samples)


def test_prefetched_samples_are_the_same_and_resume() -> None:
    def make() -> SampleSet:
        return SampleSet.from_file(data.speech(), shuffle=True, seed=3).prefetch(4, threads=2)

    whole = [(sample.key, sample["json"]) for sample in SampleSet.from_file(data.speech(), shuffle=True, seed=3)]
    samples = make()
    first = [(sample.key, sample["json"]) for sample in islice(samples, 3)]
    again = make()
    again.load_state_dict(samples.state_dict())
    assert first + [(sample.key, sample["json"]) for sample in again] == whole
    check_restore(lambda: make().data)
