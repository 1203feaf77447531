"""`touchfs.open`: the samples of a dataset as a Python sequence."""

import inspect
import json
import pickle
import pydoc
import subprocess
import sys
import warnings
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch.utils.data import DataLoader, default_collate

import touchfs
from touchfs.containers.touchnet.writer import TouchNetWriter
from touchfs.core.errors import NotFoundError, UsageError
from touchfs.dataset.sample import Sample
from touchfs.node import collect_state_dict, share_of
from touchfs.torch import NodeIterableDataset, SharedMemoryCollate
from touchfs.write import TarWriter

COUNT = 40
SEGMENTS = [{"start": 0, "end": 0.5, "txt": "one"}, {"start": 0.5, "end": 1, "txt": "two"}]


def name(number: int) -> str:
    return f"talk{number:02d}"


@pytest.fixture(scope="module")
def speech(tmp_path_factory) -> Path:
    """Two shards of recordings of 1 to 4 seconds, each with two segments."""
    source = tmp_path_factory.mktemp("speech")
    for shard in range(2):
        modalities = {"audio": np.dtype("<i2"), "metainfo": np.dtype("u1")}
        with TouchNetWriter(source / f"{shard}", modalities) as writer:
            for number in range(shard * COUNT // 2, (shard + 1) * COUNT // 2):
                seconds = 1 + number % 4
                audio = np.full(100 * seconds, number, "<i2")
                metainfo = {
                    "key": name(number),
                    "sample_rate": 100,
                    "txt": f"words of {number}",
                    "lang": "de" if number % 3 else "en",
                    "info": {"segments": SEGMENTS},
                }
                writer.add({"audio": audio.tobytes(), "metainfo": json.dumps(metainfo).encode()})
    return source


@pytest.fixture(scope="module")
def ds(speech):
    return touchfs.open(speech)


@pytest.fixture(scope="module")
def coded(tmp_path_factory):
    """One second of a sine in each coding, mono and stereo."""
    directory = tmp_path_factory.mktemp("coded")
    with TarWriter(directory / "coded.tar") as tar:
        for extension in ("wav", "flac", "mp3", "ogg", "opus", "m4a"):
            for channels in (1, 2):
                path = directory / f"{channels}.{extension}"
                sine = ["-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000:duration=1"]
                command = ["ffmpeg", "-v", "error", "-y", *sine, "-ac", str(channels), path]
                subprocess.run(command, check=True)
                tar.add(f"{extension}{channels}", {extension: path.read_bytes()})
        tar.add("none", {"txt": b"text only"})
        tar.add("broken", {"flac": b"fLaC but no more"})
    return touchfs.open(directory / "coded.tar")


class TestSequence:
    def test_length_items_and_iteration_agree(self, ds):
        assert len(ds) == COUNT
        assert [sample.key for sample in ds] == [ds[i].key for i in range(COUNT)] == list(map(name, range(COUNT)))
        assert ds[-1].key == name(COUNT - 1)
        assert list(ds.keys()) == list(map(name, range(COUNT)))
        with pytest.raises(IndexError, match=f"item {COUNT} of {COUNT}"):
            ds[COUNT]

    def test_an_image_of_a_parquet_file_is_few_calls(self, tmp_path):
        """What loaders ask for. Each call of ours takes about a fifth of a microsecond, an image of 30 kB five."""
        images = [{"bytes": b"\xff\xd8\xff\xe0" + bytes([i]) * 60_000, "path": f"{i}.jpg"} for i in range(8)]
        pq.write_table(pa.table({"image": images}), tmp_path / "x.parquet", row_group_size=4)
        ds, names = touchfs.open(tmp_path / "x.parquet"), list[str]()

        def count(frame, event, argument):
            if event == "call":
                names.append(frame.f_code.co_qualname)

        for is_counted in (False, True):
            sys.setprofile(count if is_counted else None)
            try:
                assert ds[5]["jpg"] == images[5]["bytes"]
            finally:
                sys.setprofile(None)
        assert len(names) <= 36, names

    def test_slices_are_sets(self, ds):
        assert [sample.key for sample in ds[10:20:3]] == list(map(name, range(10, 20, 3)))
        assert [sample.key for sample in ds[::-1]] == list(map(name, reversed(range(COUNT))))
        assert [sample.key for sample in ds.take(3)] == list(map(name, range(3)))
        assert len(ds.take(1000)) == COUNT
        assert len(ds[5:5]) == 0
        with pytest.raises(UsageError, match="0 or more"):
            ds.take(-1)

    def test_a_sample_is_found_by_its_key_in_any_set(self, ds):
        assert ds["talk17"].ordinal == 17
        for subset in (
            ds,
            ds.shuffle(3),
            ds[30:2:-2],
            ds.where("duration > 2"),
            ds.where("duration > 2").shuffle(1)[4:],
        ):
            for position in range(len(subset)):
                assert subset.find(subset[position].key) == position
        assert ds.segments()[ds.segments().find("talk05")].number == 0
        for missing in ("talk99", "talk01"):
            with pytest.raises(KeyError, match=f"no sample has the key '{missing}'"):
                ds[10:20][missing]
        with pytest.raises(KeyError, match=r"no file \.png: there are \."):
            ds[0]["png"]

    def test_a_shuffled_set_has_all_items_and_another_order_each_epoch(self, ds):
        shuffled = ds.shuffle(seed=7)
        first = [sample.key for sample in shuffled]
        assert first == [shuffled[i].key for i in range(COUNT)] == list(shuffled.keys())
        assert sorted(first) == list(ds.keys())
        second = [sample.key for sample in shuffled]
        assert sorted(second) == sorted(first) != second != first
        assert [sample.key for sample in ds.shuffle(7)] == first
        assert [sample.key for sample in shuffled.take(5)] == first[:5]
        assert [sample.key for sample in ds.shuffle(7).shuffle(8)] == [sample.key for sample in ds.shuffle(8)]

    def test_where_keeps_the_length(self, ds):
        long = ds.where("duration > 2")
        assert len(long) == COUNT // 2
        assert all(sample.duration > 2 for sample in long)
        german = long.where('lang == "de"')
        assert [sample.key for sample in german] == [s.key for s in long if s.json()["lang"] == "de"]
        assert sorted(german.shuffle(2).keys()) == list(german.keys())
        with pytest.raises(UsageError):
            ds.where("duration >")

    def test_map_filter_and_batch(self, ds):
        numbers = ds.map(lambda sample: sample.ordinal + 20 * int(sample.shard))
        assert list(numbers) == list(range(COUNT)) == [numbers[i] for i in range(COUNT)]
        batches = numbers.batch(7)
        assert list(batches) == [batches[i] for i in range(len(batches))]
        assert (len(batches), batches[-1]) == (6, list(range(35, 40)))
        assert list(batches.batch(4).map(len)) == [4, 2]
        assert sorted(numbers.shuffle(1)) == list(range(COUNT))
        assert numbers.shuffle(1).__getitems__([3, 0, 3]) == [numbers.shuffle(1)[i] for i in (3, 0, 3)]
        assert batches.__getitems__([0, 5]) == [batches[0], batches[5]]
        for wrong in ([-1], [0, COUNT]):
            with pytest.raises(IndexError):
                numbers.__getitems__(wrong)
        assert list(numbers[3:6]) == [3, 4, 5]
        even = numbers.filter(lambda number: number % 2 == 0)
        assert list(even) == list(range(0, COUNT, 2))
        assert bool(even)
        for ask in (len, lambda each: each[0]):
            with pytest.raises(TypeError, match="NodeIterableDataset"):
                ask(even)

    def test_items_are_selected_and_skipped(self, ds):
        for chosen in (ds.select([30, 2, -1, 2]), ds[[30, 2, -1, 2]], ds[np.array([30, 2, -1, 2])]):
            assert [sample.key for sample in chosen] == list(map(name, (30, 2, COUNT - 1, 2)))
        assert list(ds.select(i for i in range(3)).keys()) == list(map(name, range(3)))
        assert list(ds.shuffle(3).select(range(5)).keys()) == list(ds.shuffle(3).keys())[:5]
        assert list(ds.skip(35).keys()) == list(map(name, range(35, COUNT)))
        assert len(ds.skip(1000)) == len(ds[[]]) == 0
        assert len(ds.select(range(20)).where("duration > 2").shuffle(1)) == 10
        assert list(ds.map(lambda sample: sample.key)[[7, 3]]) == [name(7), name(3)]
        for wrong, error in (([COUNT], IndexError), ([1.5], TypeError), ([True], TypeError)):
            with pytest.raises(error):
                ds.select(wrong)
        with pytest.raises(UsageError, match="0 or more"):
            ds.skip(-1)

    def test_a_state_of_another_selection_is_refused(self, ds):
        selected = ds.select([1, 2, 3])
        next(iter(selected))
        for other in (ds.select([1, 3, 2]), ds[1:4], ds.take(3), ds[1:3] + ds[3:4]):
            with pytest.raises(UsageError, match="state was saved with"):
                other.load_state_dict(selected.state_dict())

    @pytest.mark.parametrize(
        "method", ["where", "find", "keys", "shuffle", "take", "skip", "select", "segments", "to_arrow"]
    )
    def test_what_comes_too_late_says_when_it_is_to_come(self, ds, method):
        with pytest.raises(TypeError, match=r"before|first"):
            getattr(ds.batch(2), method)(
                *{"where": ["duration > 1"], "find": ["x"], "take": [1], "skip": [1], "select": [[1]]}.get(method, [])
            )

    def test_segments_and_merged(self, ds):
        segments = ds.segments()
        assert len(segments) == 2 * COUNT
        assert (segments[1].key, segments[1].number, segments[1].text) == (name(0), 1, "two")
        merged = ds.merged("max=30,gap=1")
        assert len(merged) == COUNT
        assert merged[0].duration == 1
        assert len(segments.where("duration > 0.4").shuffle(1)) == 2 * COUNT


class TestSample:
    def test_text_json_duration_and_audio(self, ds):
        sample = ds[6]
        assert (sample.text, sample.json()["lang"], sample.duration) == ("words of 6", "en", 3)
        samples, rate = sample.audio("int16")
        assert (samples.dtype, samples.tolist(), rate) == (np.int16, [6] * 300, 100)
        floats, _ = sample.audio()
        assert (floats.dtype, floats.shape) == (np.float32, (300,))
        assert np.array_equal(floats * 32768, samples)

    @pytest.mark.parametrize("channels", [1, 2])
    @pytest.mark.parametrize("extension", ["wav", "flac", "mp3", "ogg", "opus", "m4a"])
    def test_each_coding_is_decoded(self, coded, extension, channels):
        samples, rate = coded[f"{extension}{channels}"].audio()
        assert rate == 48000
        assert samples.shape == (len(samples),) if channels == 1 else (len(samples), 2)
        assert abs(len(samples) - 48000) < 3000  # some codings add silence
        spectrum = np.abs(np.fft.rfft(samples.reshape(len(samples), -1)[:, 0]))
        assert abs(np.argmax(spectrum) * rate / len(samples) - 440) < 3
        whole, _ = coded[f"{extension}{channels}"].audio("int16")
        assert whole.dtype == np.int16
        assert np.abs(whole / 32768 - samples).max() < 1e-4

    def test_what_cannot_be_had_is_named(self, coded):
        assert coded["none"].text == "text only"
        assert coded["none"].known_duration is None
        with pytest.raises(NotFoundError, match=r"no recording.*'none'"):
            coded["none"].audio()
        with pytest.raises(NotFoundError, match=r"no file \.json"):
            coded["none"].json()
        with pytest.raises(touchfs.core.errors.FormatError, match=r"cannot be decoded.*'broken'"):
            coded["broken"].audio()


class TestElsewhere:
    def test_a_state_goes_on_where_it_was_saved(self, ds):
        whole = [sample.key for sample in ds.shuffle(5)]
        first = ds.shuffle(5)
        taken = [sample.key for sample in islice(first, 13)]
        again = ds.shuffle(5)
        again.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert taken + [sample.key for sample in again] == whole
        assert collect_state_dict(first.data) == first.state_dict()

    def test_it_is_pickled_without_its_data(self, ds):
        copy = pickle.loads(pickle.dumps(ds.where("duration > 2").shuffle(3)[2:]))
        assert [sample.key for sample in copy] == [s.key for s in ds.where("duration > 2").shuffle(3)[2:]]

    @pytest.mark.parametrize("workers", [0, 2])
    def test_a_data_loader_takes_it(self, ds, workers):
        loader = DataLoader(ds.map(_number), batch_size=8, shuffle=True, num_workers=workers)
        assert sorted(number for batch in loader for number in batch.tolist()) == list(range(COUNT))
        node = NodeIterableDataset(ds.map(_number).filter(_is_even))
        assert sorted(DataLoader(node, batch_size=None, num_workers=workers)) == list(range(0, COUNT, 2))

    @pytest.mark.parametrize(
        "convert, collate, options",
        [
            (lambda sample: sample["wav"] * 100, list, {}),
            (lambda sample: sample, list, {"persistent_workers": True}),
            (lambda sample: sample.ordinal, default_collate, {"prefetch_factor": 5}),
        ],
    )
    def test_workers_hand_over_batches_in_memory(self, ds, convert, collate, options):
        items = ds.map(convert)
        wanted = [*DataLoader(items, 7, collate_fn=SharedMemoryCollate(collate))]
        loader = DataLoader(items, 7, num_workers=2, collate_fn=SharedMemoryCollate(collate), **options)
        for _ in range(2):
            found = [*loader]
            assert [type(batch) for batch in found] == [type(batch) for batch in wanted]
            assert [list(batch) for batch in found] == [list(batch) for batch in wanted]

    def test_the_package_shows_it(self):
        page = pydoc.render_doc(touchfs, renderer=pydoc.plaintext)
        for name in touchfs.__all__:
            assert getattr(touchfs, name)
        assert {"open", "OpenDataset", "Sample", "torch"} < {*dir(touchfs)}
        assert "\n    open(path: " in page
        assert "class OpenDataset(" in page
        assert "__getattr__(" not in page.partition("FUNCTIONS")[2]
        assert touchfs.torch.NodeSampler
        code = "import touchfs; touchfs.node.LazyMapper"
        subprocess.run([sys.executable, "-c", code], check=True)
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            touchfs.nothing  # noqa: B018
        for method in ("where", "shuffle", "take", "batch", "find"):
            assert inspect.getdoc(getattr(type(touchfs.open), method, getattr(_class(), method)))


def _class():
    from touchfs.open_dataset import OpenDataset

    return OpenDataset


def _number(sample: Sample) -> int:
    return sample.ordinal + 20 * int(sample.shard)


def _is_even(number: int) -> bool:
    return number % 2 == 0


def test_membership(ds):
    assert name(3) in ds
    assert ("lost" in ds, name(3) in ds.take(3), name(3) in ds.shuffle()) == (False, False, True)
    assert (ds[5] in ds, ds[5] in ds.shuffle(1), ds[5] in ds.take(3)) == (True, True, False)
    shuffled = ds.shuffle(3)
    order = [sample.key for sample in ds.shuffle(3)]
    assert ds[5] in shuffled
    assert [sample.key for sample in shuffled] == order, "to look is no pass"


@pytest.mark.parametrize("index", [1.5, None, b"talk03"])
def test_what_is_no_index(ds, index):
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        ds[index]


@pytest.mark.parametrize("seed", ["7", 1.5, None, True])
def test_what_is_no_seed(ds, seed):
    with pytest.raises(UsageError, match="a seed is an integer, not"):
        ds.shuffle(seed)


@pytest.mark.parametrize(("tail", "counts"), [("keep", [5, 5, 4]), ("drop", [4, 4, 4]), ("pad", [5, 5, 5])])
def test_ranks_that_share_a_set(ds, tail, counts):
    """The tail is that of the set, whatever is done to it after it is shuffled."""
    shuffled = ds.shuffle(7, tail=tail)
    whole = [sample.key for sample in shuffled]
    assert whole == [sample.key for sample in ds.shuffle(7)]
    for part in (shuffled.take(14), shuffled[:14].map(_itself), shuffled.where("ordinal < 7").filter(bool)):
        parts = keys_of_ranks(pickle.loads(pickle.dumps(part)), 3)
        assert [len(keys) for keys in parts] == counts
    assert set().union(*keys_of_ranks(shuffled.take(14), 3)) <= set(whole[:14])
    assert repr(shuffled).endswith(".shuffle(7)" if tail == "keep" else f".shuffle(7, tail={tail!r})")


def keys_of_ranks(given, ranks):
    return [[sample.key for sample in share_of(given.data, rank, ranks)] for rank in range(ranks)]


def _itself(sample):
    return sample


def test_what_is_no_tail(ds):
    with pytest.raises(UsageError, match="no tail 'cut': it is one of keep, drop, pad"):
        ds.shuffle(7, tail="cut")


def test_how_shards_are_read(tmp_path):
    """The options of the commands."""
    with TarWriter(tmp_path / "x.tar") as writer:
        writer.add("a.b", {"json": json.dumps({"segments": SEGMENTS}).encode(), "pcm": b"0" * 400})
    with pytest.raises(UsageError, match="no rule for keys 'dots'"):
        touchfs.open(tmp_path, key_rule="dots")
    assert [sample.key for sample in touchfs.open(tmp_path)] == ["a"]
    assert [sample.key for sample in touchfs.open(tmp_path, key_rule="last-dot")] == ["a.b"]
    assert len(touchfs.open(tmp_path, sample_rate=100).segments()) == 2
    assert len(touchfs.open(tmp_path, sample_rate=100, segments="none").segments()) == 0
    with pytest.raises(UsageError, match="the limit `json`"):
        touchfs.open(tmp_path, limits=touchfs.limits.Limits(json=0))
    assert len(touchfs.open(tmp_path, sample_rate=100, limits=touchfs.limits.Limits(json=10)).segments()) == 0


def test_a_loader_without_epochs_is_told(ds):
    """It asks for the positions of one epoch. Of a set that is in order, or that the loader shuffles, they are fine."""
    shuffled = ds.shuffle(3).map(_number)
    with pytest.warns(UserWarning, match=r"Use samples\.loader\(.*, or give it shuffle=True"):
        first = list(DataLoader(shuffled, batch_size=4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(DataLoader(ds.map(_number), batch_size=4))
        list(DataLoader(ds.shuffle(3).map(_number), batch_size=4, shuffle=True))
        list(DataLoader(NodeIterableDataset(shuffled), batch_size=4))
    assert len(first) > 1
