"""Statistics of datasets, against a slow count of their samples; and those that are kept."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tars import write_tar

import touchfs
from touchfs.format import wav
from touchfs.indexing import open_dataset
from touchfs.node.order.feistel import Feistel, round_keys
from touchfs.statistics.catalogs import TICKS, CatalogStatistics
from touchfs.statistics.stored import statistics_of
from touchfs.statistics.texts import TextStatistics


def sound(frames, rate=8000, channels=1):
    return wav.build_header(frames * 2 * channels, rate, channels) + bytes(frames * 2 * channels)


@pytest.fixture
def source(tmp_path):
    """Two tars: samples of several lengths and rates, without a recording, damaged, and with segments."""
    for name in ("a", "b"):
        files = {}
        for number in range(9):
            key = f"{name}{number}"
            if number != 3:
                files[f"{key}.wav"] = sound(1000 * number, (8000, 16000, 44100)[number % 3]) if number != 5 else b"no"
            segments = [{"start": 0.01 * each, "end": 0.01 * each + 0.02} for each in range(number % 4)]
            files[f"{key}.json"] = json.dumps(
                {"segments": segments, "lang": "en" if number % 2 else "de", "score": number / 7, "ok": True}
            ).encode()
            files[f"{key}.txt"] = "hällo wörld \u200b".encode() * number
        write_tar(tmp_path / "data" / f"{name}.tar", files)
    return tmp_path / "data"


def catalogs_of(source):
    dataset, found = open_dataset(str(source)), CatalogStatistics()
    for shard in dataset.shards:
        found.merge(statistics_of(dataset, shard))
    return dataset, found


def test_catalogs_say_what_a_slow_count_does(source):
    samples = touchfs.open(source)
    _, found = catalogs_of(source)
    durations = [int(each.duration * TICKS + 1e-6) for each in samples if each.known_duration is not None]
    assert found.samples == len(samples) == 18
    assert (found.durations.count, found.durations.total) == (len(durations), sum(durations))
    assert (found.durations.least, found.durations.most) == (min(durations), max(durations))
    recorded = [(each.coding, each.rate, each.channels) for each in samples if each.coding]
    assert found.recordings.counts == Counter(recorded) and len(found.recordings.counts) == 4
    segments = touchfs.open(f"{source}").segments()
    lengths = [int(each.duration * TICKS + 1e-6) for each in segments if each.known_duration is not None]
    assert (found.segment_lengths.count, found.segment_lengths.total) == (len(lengths), sum(lengths))
    per_sample = Counter(each.key for each in segments)
    assert (found.segments.count, found.segments.total) == (len(per_sample), per_sample.total())
    slow = Counter()
    for sample in samples:
        for extension in sample:
            slow[extension] += len(sample[extension])
    assert {name: size for name, (_, size) in found.files.items()} == dict(slow)


SAMPLES = st.lists(
    st.tuples(st.integers(0, 3000), st.sampled_from([8000, 16000, 44100]), st.integers(0, 3), st.booleans()),
    min_size=1,
    max_size=4,
)


@settings(max_examples=settings().max_examples // 3)
@given(st.lists(SAMPLES, min_size=1, max_size=3))
def test_shards_together_are_as_one(tmp_path_factory, shards):
    """Any samples, counted slowly, in several tars, and in one."""
    place, whole, slow = tmp_path_factory.mktemp("random"), {}, Counter()
    for number, samples in enumerate(shards):
        files = {}
        for sample, (frames, rate, segments, is_damaged) in enumerate(samples):
            key = f"{number}-{sample}"
            listed = [{"start": 0.001 * each, "end": 0.001 * each + 0.01} for each in range(segments)]
            files[f"{key}.wav"] = b"no sound" if is_damaged else sound(frames, rate)
            files[f"{key}.json"] = json.dumps({"segments": listed}).encode()
            slow["segments"] += segments
            slow["ticks"] += 0 if is_damaged else frames * TICKS // rate
            slow["known"] += not is_damaged
        write_tar(place / f"many/{number}.tar", files)
        whole |= files
    write_tar(place / "one/all.tar", whole)
    many, one = (catalogs_of(place / name)[1] for name in ("many", "one"))
    assert many == one
    told = (one.durations.count, one.durations.total, one.segments.total, one.files["wav"][0])
    assert told == (slow["known"], slow["ticks"], slow["segments"], sum(map(len, shards)))


def test_statistics_are_kept_and_checked(source, tmp_path, monkeypatch):
    dataset, counted = catalogs_of(source)
    kept = [
        Path(shard.catalog).parent / f"{Path(shard.catalog).name.partition('.')[0]}.statistics.json"
        for shard in dataset.shards
    ]
    assert all(each.is_file() for each in kept)
    monkeypatch.setattr(CatalogStatistics, "of", None)
    assert catalogs_of(source)[1] == counted
    monkeypatch.undo()
    whole = kept[0].read_text()
    for damaged in (
        "",
        "{}",
        "[" * 10_000,
        whole.replace('"samples": 9', '"samples": 8'),
        kept[1].read_text(),
        whole[:-5],
    ):
        kept[0].write_text(damaged)
        assert catalogs_of(source)[1] == counted
        assert kept[0].read_text() == whole


def samples_of(samples, count):
    """These samples in touchfs's random order of the seed 0."""
    order = Feistel(len(samples), round_keys(0))
    return [samples[position] for position in order(np.arange(count)).tolist()]


def test_texts_are_those_of_random_samples(source):
    samples = touchfs.open(source)
    found = TextStatistics.read(samples)
    texts = [sample.text for sample in samples]
    assert (found.samples, found.of, found.lengths.total) == (18, 18, sum(map(len, texts)))
    assert found.characters == Counter("".join(texts)) and found.words == Counter(" ".join(texts).split())
    assert found.fields["lang"] == {"de": 10, "en": 8}
    assert [*found.numbers["score"]] == [sample.json()["score"] for sample in samples_of(samples, 18)]
    assert found.numbers.keys() == {"score"}
    part = TextStatistics.read(samples, 5)
    assert (part.samples, part.of) == (5, 18)
    assert TextStatistics.read(samples, clock=iter([0, 1, 99]).__next__).samples == 2
