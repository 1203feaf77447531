"""Samples by position are the files that the views show: the same names, the same bytes, in the same order."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import nullcontext
from itertools import chain
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest
from containers.test_shar_shard import cut, missing, pair, wav, write_lines, write_tar
from every_kind import OPTIONS, write_every_kind
from node import data
from shown import dataset_files
from touchnet import UINT16, write_shard
from tree_files import files_below

from touchfs.catalog.table_builder import encode_key
from touchfs.core.errors import FormatError, NotFoundError, UsageError
from touchfs.dataset import Dataset
from touchfs.dataset.interleaved import InterleavedSamples
from touchfs.dataset.sample import Sample
from touchfs.dataset.samples import DatasetSamples
from touchfs.dataset.segments import MergedSamples, SegmentSamples
from touchfs.indexing import open_dataset
from touchfs.shard.options import Options
from touchfs.tree.tree import Tree
from touchfs.view.plan import parse_plan

PLANS = ["max=0.05", "max=1", "max=0.001", "max=1,min=0.05", "max=0.09,seed=3", "max=0.05,gap=0.001"]


@pytest.fixture(scope="module")
def speech() -> Dataset:
    return open_dataset(str(data.speech()))


def all_files(samples: Sequence[Sample]) -> dict[str, bytes]:
    return {sample.path(extension): sample[extension] for sample in samples for extension in sample}


@pytest.mark.parametrize("kind", [DatasetSamples, SegmentSamples])
def test_they_are_the_files_of_the_view(speech: Dataset, kind: type[DatasetSamples]) -> None:
    samples = kind(speech)
    shown = {f"{kind.view}/{path}": text for path, text in dataset_files(speech, kind.view).items()}
    assert all_files(samples) == shown


@pytest.mark.parametrize("name", PLANS)
def test_merged_ones_are_the_files_of_the_mount(speech: Dataset, name: str) -> None:
    samples, tree = MergedSamples(speech, parse_plan(name)), Tree(speech, range(1, len(speech.shards) + 1))
    shown = files_below(tree, f"merged/{name}").items()
    assert all_files(samples) == {f"merged/{name}/{path}": data for path, data in shown}
    assert all(next(iter(sample)) == "wav" for sample in samples)


def microseconds(samples: Sequence[Sample]) -> list[int]:
    known = [sample.known_duration for sample in samples]
    return [-1 if seconds is None else round(seconds * 1e6) for seconds in known]


def test_lengths_are_those_of_each_sample(speech: Dataset, tmp_path: Path) -> None:
    """By the index alone: of recordings with and without segments, a header, or a recording at all."""
    for samples in (DatasetSamples(speech), SegmentSamples(speech), MergedSamples(speech, parse_plan("max=0.05"))):
        assert samples.lengths("seconds").tolist() == microseconds(samples)
        assert set(samples.lengths("tokens").tolist()) == {-1}
    members = {"a.txt": b"", "b.wav": wav(1, 100), "c.json": b"{}", "c.wav": wav(2, 37)}
    write_tar(tmp_path / "x.tar", list(members.items()))
    of_tar = DatasetSamples(open_dataset(str(tmp_path / "x.tar")))
    assert of_tar.lengths("seconds").tolist() == microseconds(of_tar)
    arrays = [np.arange(count, dtype=np.uint16).tobytes() for count in (3, 0, 7)]
    write_shard(tmp_path / "tokens", texttoken=(UINT16, arrays), audiotoken=(UINT16, arrays[::-1]))
    tokens = DatasetSamples(open_dataset(str(tmp_path / "tokens")))
    assert tokens.lengths("tokens").tolist() == [10, 0, 10]


def test_paths_of_many_are_those_of_each(tmp_path: Path) -> None:
    dice = np.random.default_rng(3)
    for shard in range(3):
        recordings = []
        for number in range(40):
            told = [{"start": j / 50, "end": j / 50 + 0.01, "txt": "text"} for j in range(dice.integers(0, 6))]
            metainfo = {"key": f"a{number % 7}/b/{number}" if number % 3 else f"{number}", "sample_rate": data.RATE}
            recordings.append(({**metainfo, "info": {"segments": told}}, data.pcm(number, 1600)))
        data.write_speech(tmp_path / f"{shard}", recordings)
    dataset = open_dataset(str(tmp_path), in_place=True)
    for samples in (DatasetSamples(dataset), SegmentSamples(dataset), MergedSamples(dataset, parse_plan("max=0.05"))):
        wanted = [os.fsencode(sample.path(next(iter(sample)))) for sample in samples]
        for count in (3, len(samples), 5 * len(samples)):
            positions = dice.integers(0, len(samples), count)
            assert samples.paths(positions) == [wanted[position] for position in positions]
        assert samples.paths(range(40, 80)) == wanted[40:80]


def test_keys_of_many_are_those_of_each(tmp_path: Path) -> None:
    """In no order, of every kind of shard: in names, directories and rows, stored, and made of the ordinal."""
    dice = np.random.default_rng(4)
    names = write_every_kind(tmp_path)
    odd = ["a/b/0.txt", "a/b/0.cls", "a/b/1.txt", "c.txt", "d/.json", "\u00fc.txt", f"{'long' * 30}/{'x' * 80}.txt"]
    for name in ("odd", "stored"):
        (tmp_path / name).mkdir()
    write_tar(tmp_path / "odd" / "x.tar", [(name, b"{}") for name in odd])
    lines = [{"key": key, "txt": "t", "segments": [{"start": 0, "end": 1, "txt": "t"}] * 2} for key in ("k/../l", "m")]
    write_lines(tmp_path / "stored" / "x.jsonl", [*lines, {"txt": "no key"}])
    recordings = [({"key": f"{n % 3}/{n}", "sample_rate": data.RATE}, data.pcm(n, 1600)) for n in range(9)]
    data.write_speech(tmp_path / "nested", recordings)
    for name in (*names, "odd", "stored", "nested"):
        dataset = open_dataset(str(tmp_path / name), options=OPTIONS.get(name, Options()))
        views = (DatasetSamples, SegmentSamples, *([InterleavedSamples] if dataset.interleaved else []))
        for samples in (view(dataset) for view in views):
            wanted = [encode_key(sample.key) for sample in samples]
            positions = dice.permutation(len(samples))
            found = [keys.at(place) for keys in samples.keys(positions) for place in range(len(keys.lengths))]
            assert found == [wanted[position] for position in positions], name
            assert [*samples.keys(positions[:0])] == []


def test_order_and_what_is_told(speech: Dataset) -> None:
    samples, segments = DatasetSamples(speech), SegmentSamples(speech)
    assert [(sample.shard, sample.ordinal, sample.key) for sample in samples] == [
        (f"{shard:09d}", ordinal, f"s{shard}/r{ordinal}")
        for shard, counts in enumerate(data.SEGMENTS)
        for ordinal in range(len(counts))
    ]
    assert [(segment.key, segment.number) for segment in segments] == [
        (f"s{shard}/r{ordinal}", number)
        for shard, counts in enumerate(data.SEGMENTS)
        for ordinal, count in enumerate(counts)
        for number in range(count)
    ]
    assert [segment["txt"] for segment in segments][:3] == [b"text 0", b"text 1", b"text 0"]
    assert samples[0].fields == {"wav": "audio", "json": "metainfo", "txt": "metainfo"}
    assert samples[-1] == samples[5] == samples[4:][1]
    assert [*samples[1:4]] == [samples[i] for i in (1, 2, 3)]
    assert samples[0] != segments[0]
    assert samples[0] != samples[1] != "other"
    for position in (6, -7):
        with pytest.raises(IndexError):
            samples[position]
    assert "'s0/r0'" in repr(samples[0])


def test_arrays(speech: Dataset, tmp_path: Path) -> None:
    sample = DatasetSamples(speech)[0]
    assert np.array_equal(sample.array("wav"), np.frombuffer(data.pcm(0, 1600), np.int16))
    assert sample.content("wav").size == len(sample["wav"])
    with pytest.raises(UsageError, match=r"not \.json"):
        sample.array("json")
    for read in (sample.array, sample.content, sample.path):
        with pytest.raises(NotFoundError, match=r"no file \.mp3: there are \.wav, \.json, \.txt"):
            read("mp3")
    with pytest.raises(KeyError):
        sample["mp3"]
    tokens = np.arange(7, dtype=np.uint16)
    write_shard(tmp_path / "shard", texttoken=(UINT16, [tokens.tobytes()]))
    (told,) = DatasetSamples(open_dataset(str(tmp_path / "shard")))
    assert told.array("texttoken.npy").tolist() == tokens.tolist()


def test_a_sample_is_pickled_with_its_bytes(speech: Dataset) -> None:
    sample = DatasetSamples(speech)[2]
    unpickled = pickle.loads(pickle.dumps(sample))
    assert unpickled == sample == copy.copy(sample)
    assert (dict(unpickled), unpickled.fields, unpickled.key) == (dict(sample), sample.fields, sample.key)
    assert unpickled.path("wav") == sample.path("wav")
    assert np.array_equal(unpickled.array("wav"), sample.array("wav"))
    assert hash(unpickled) == hash(sample)


@pytest.mark.parametrize("start", [None, "fork"])
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_other_processes_see_the_same(speech: Dataset, processes: Executor, start: str | None) -> None:
    """Those that are started anew, and forks. Samples come back with their bytes."""
    with ProcessPoolExecutor(1, multiprocessing.get_context(start)) if start else nullcontext(processes) as pool:
        for samples in (DatasetSamples(speech), SegmentSamples(speech), MergedSamples(speech, parse_plan("max=0.05"))):
            assert all_files(pool.submit(list, samples).result()) == all_files(samples)
            assert pool.submit(attrgetter("fingerprint"), samples).result() == samples.fingerprint


def test_threads_share_them(speech: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("touchfs.dataset.samples.SHARDS_KEPT", 1)
    monkeypatch.setattr("touchfs.dataset.segments._SAMPLES_KEPT", 1)
    samples = MergedSamples(speech, parse_plan("max=0.05"))
    here, seen = all_files(samples), []

    def read() -> None:
        for _ in range(20):
            seen.append(all_files(samples))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 80
    assert all(each == here for each in seen)


def test_few_shards_are_kept_open(speech: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("touchfs.dataset.samples.SHARDS_KEPT", 2)
    samples = DatasetSamples(speech)
    assert len(list(samples)) == 6
    assert len(samples._open) == 2


def test_the_fingerprint_is_of_the_data_not_of_its_place(speech: Dataset, tmp_path: Path) -> None:
    def fingerprints(path: Path, **options: bool) -> list[str]:
        dataset = open_dataset(str(path), **options)  # type: ignore[arg-type]
        plan = parse_plan("max=0.05")
        return [
            each.fingerprint
            for each in (DatasetSamples(dataset), SegmentSamples(dataset), MergedSamples(dataset, plan))
        ]

    here = fingerprints(data.speech())
    assert len(set(here)) == 3
    shutil.copytree(data.speech(), tmp_path / "elsewhere")
    assert fingerprints(tmp_path / "elsewhere") == fingerprints(tmp_path / "elsewhere", in_place=True) == here
    assert MergedSamples(speech, parse_plan("max=0.06")).fingerprint != here[2]
    os.rename(tmp_path / "elsewhere" / "000000002", tmp_path / "elsewhere" / "000000003")
    assert not set(fingerprints(tmp_path / "elsewhere")) & set(here)
    shutil.rmtree(tmp_path / "elsewhere" / "000000003")
    assert not set(fingerprints(tmp_path / "elsewhere")) & set(here)


def test_a_shard_that_cannot_be_opened_is_an_error_not_a_gap(tmp_path: Path) -> None:
    shutil.copytree(data.speech(), tmp_path / "speech")
    (tmp_path / "speech" / "000000001" / "audio.idx").write_bytes(b"nonsense")
    with pytest.raises(FormatError, match="000000001: This shard cannot be served"):
        DatasetSamples(open_dataset(str(tmp_path / "speech")))


def test_shards_without_samples_or_segments(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"")
    (tmp_path / "b.jsonl").write_bytes(b'{"id": "x"}\nnot JSON\n')
    dataset = open_dataset(str(tmp_path))
    samples = DatasetSamples(dataset)
    assert [(sample.key, sample["json"]) for sample in samples] == [
        ("x", b'{"id": "x"}\n'),
        ("00000001", b"not JSON\n"),
    ]
    assert len(SegmentSamples(dataset)) == len(MergedSamples(dataset, parse_plan("max=9"))) == 0
    assert list(chain(SegmentSamples(dataset))) == []


def test_segments_of_cuts_without_a_recording(tmp_path: Path) -> None:
    """They are counted with the others, and have no `.wav`; merged ones are of recordings only."""
    keys = [f"k{i}" for i in range(20)]
    recordings = [each for i, key in enumerate(keys) for each in (pair(key, "wav", wav(i)) if i % 2 else missing(key))]
    write_lines(tmp_path / "cuts.jsonl", *(cut(key, supervisions=SUPERVISIONS[: i % 3]) for i, key in enumerate(keys)))
    write_tar(tmp_path / "recording.tar", recordings)
    dataset = open_dataset(str(tmp_path))
    segments = SegmentSamples(dataset)
    expected = [(i, number) for i in range(20) for number in range(i % 3)]
    assert [(sample.ordinal, sample.number) for sample in segments] == expected
    for sample in segments:
        assert sample["txt"].decode() == f"text {sample.number}"
        assert ("wav" in sample) == (sample.ordinal % 2 == 1)
    assert segments.paths(range(len(segments))) == [sample.first_path() for sample in segments]
    assert all_files(segments) == {
        f"segments/{path}": data for path, data in dataset_files(dataset, "segments").items()
    }
    merged = MergedSamples(dataset, parse_plan("max=30"))
    assert [sample.ordinal for sample in merged] == [i for i in range(20) if i % 2 and i % 3]
    tree = Tree(dataset, [1])
    for i, key in enumerate(keys):
        if i % 3:
            place = tree.resolve(f"merged/max=30/cuts/{key}")
            names = [name for name, _, _ in tree.entries(place.inode)]
            assert names == ([b"0000.json", b"0000.txt", b"0000.wav"] if i % 2 else [])


SUPERVISIONS = [{"id": f"s{i}", "start": i / 4, "duration": 0.25, "text": f"text {i}"} for i in range(2)]
