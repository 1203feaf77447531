"""Noise in audio: what is asked for is what comes, and a token rebuilds it whenever it is asked."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile
from node import data
from node.graphs import Doubler

from touchfs import SampleSet
from touchfs.core.errors import FormatError, UsageError
from touchfs.core.token import from_json, to_json
from touchfs.node import (
    IteratorNode,
    LazyCutMixer,
    LazyFilter,
    LazyIndexedManifestIterator,
    LazyIndexedSharIterator,
    LazyIteratorChain,
    LazyIteratorMultiplexer,
    LazyMapper,
    LazyRepeater,
    LazyShuffler,
    get_graph_origin,
    restore_state_dict,
    state_at,
    supports_graph_restore,
)
from touchfs.node import Sound as Decoded
from touchfs.testing import check_restore
from touchfs.write import SharWriter, TarWriter

RATE = 1000


@dataclass
class Sound:
    id: str
    audio: Any
    sampling_rate: int = RATE

    @property
    def duration(self) -> float:
        return float(self.audio.shape[-1] / self.sampling_rate)


@dataclass(frozen=True, slots=True)
class Frozen:
    id: str
    audio: Any
    sampling_rate: int = RATE


class Plain:
    def __init__(self, id: str, audio: Any) -> None:
        self.id = id
        self.audio = audio
        self.sampling_rate = RATE
        self.text = "kept"


class Sounds:
    """Made anew each time they are asked for, and counted."""

    def __init__(self, name: str, count: int, size: int = 300, fingerprint: str | None = None) -> None:
        self.name, self.count, self.size = name, count, size
        self.fingerprint = fingerprint or name
        self.made: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, ordinal: int) -> Sound:
        self.made.append(ordinal)
        random = np.random.default_rng([ordinal, *self.name.encode()])
        return Sound(f"{self.name}-{ordinal}", random.normal(size=self.size + 50 * ordinal))


def speech(count: int = 4, **options: Any) -> LazyIndexedManifestIterator:
    return LazyIndexedManifestIterator(Sounds("speech", count), shuffle=True, **options)


def noise(count: int = 4) -> LazyIndexedManifestIterator:
    return LazyIndexedManifestIterator(Sounds("noise", count, 200))


def mixer(source: Any = None, **options: Any) -> LazyCutMixer:
    return LazyCutMixer(source or speech(), noise(), **{"snr": (5, 15), "random_mix_offset": True, **options})


def equal(a: Any, b: Any) -> bool:
    return bool(a.id == b.id and np.array_equal(a.audio, b.audio))


GRAPHS: dict[str, Callable[[], IteratorNode]] = {
    "mixer": mixer,
    "mixer of some": lambda: mixer(mix_prob=0.5),
    "mixer of a mux": lambda: mixer(LazyIteratorMultiplexer(speech(3), speech(2))),
    "mixer of a foreign": lambda: mixer(LazyMapper(Doubler(speech(4)), lambda pair: pair[0])),
    "repeater of a mixer": lambda: LazyRepeater(mixer(speech(3)), 2),
    "shuffler of a mixer": lambda: LazyShuffler(mixer(), 3),
    "chain, shuffled, of mixers": lambda: LazyIteratorChain(
        mixer(speech(3)), mixer(speech(2), seed=1), shuffle_iters=True
    ),
    "mixer of a mixer": lambda: mixer(mixer(speech(3)), seed=5),
}


# They take the longest, and are like others: `test_random_graphs.py` has mixers below and above all nodes.
ALIKE = {
    *("mixer of some", "repeater of a mixer", "chain, shuffled, of mixers"),
    *("mixer of a mixer", "mixer of a mux", "shuffler of a mixer"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.variant] if name in ALIKE else []) for name in GRAPHS]
)
def test_a_mixer_resumes_exactly(name: str) -> None:
    check_restore(GRAPHS[name], equal=equal)


def test_tokens_of_past_epochs_rebuild_their_noise() -> None:
    node = LazyRepeater(mixer(speech(3)), 3)
    items = [item for _ in range(2) for item in node]
    assert len({item.id for item in items}) == 18
    fresh = LazyRepeater(mixer(speech(3)), 3)
    for graph in (node, fresh):
        for item in items:
            assert equal(graph[from_json(to_json(get_graph_origin(item)))], item)


def test_an_epochs_noise_is_its_own() -> None:
    node = mixer(LazyIndexedManifestIterator(Sounds("speech", 3)))
    first, second = list(node), list(node)
    assert [get_graph_origin(item) for item in first] == [(42, 0), (42, 1), (42, 2)]
    assert [get_graph_origin(item) for item in second] == [(43, 0), (43, 1), (43, 2)]
    assert not any(equal(a, b) for a, b in zip(first, second, strict=True))


def test_without_tokens_a_checkpointable_source_still_resumes_exactly() -> None:
    class Streams(IteratorNode):
        is_checkpointable = True

        def __init__(self) -> None:
            self.position = 0

        def __iter__(self) -> Iterator[Sound]:
            sounds, start, self.position = Sounds("speech", 5), self.position, 0
            for position in range(start, 5):
                self.position = position + 1
                yield sounds[position]
            self.position = 0

        def state_dict(self) -> dict[str, Any]:
            return {"position": self.position}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.position = state["position"]

    whole = list(mixer(Streams()))
    for taken in range(6):
        node, restored = mixer(Streams()), mixer(Streams())
        first = list(islice(node, taken))
        restored.load_state_dict(from_json(to_json(node.state_dict())))
        assert all(map(equal, first + list(restored), whole))
    assert not supports_graph_restore(node)
    assert node.is_checkpointable


def test_positioned_at_a_token() -> None:
    node = mixer()
    epochs = [list(node), list(node)]
    for epoch, items in enumerate(epochs):
        for index, item in enumerate(items):
            restored = mixer()
            restore_state_dict(restored, state_at(restored, get_graph_origin(item), epoch))
            assert all(map(equal, list(restored), items[index:]))
    with pytest.raises(UsageError, match="not one of epoch 1"):
        state_at(node, get_graph_origin(epochs[0][0]), 1)


# -- the mix


def constant(value: float, count: int = 100, channels: int = 0) -> Any:
    return np.full((channels, count) if channels else count, value, np.float32)


def one(audio: Any, noise_audio: Any, **options: Any) -> Any:
    (item,) = LazyCutMixer([Sound("a", audio)], [Sound("b", noise_audio)], **options)
    return item


@pytest.mark.parametrize("snr", [-10, 0, 6, 20.0])
def test_the_ratio_is_the_one_asked_for(snr: float) -> None:
    signal = np.random.default_rng(1).normal(size=5000)
    added = one(signal, np.random.default_rng(2).normal(size=9000), snr=snr).audio - signal
    assert 10 * np.log10(np.mean(signal**2) / np.mean(added**2)) == pytest.approx(snr)


def test_how_long_a_mix_is() -> None:
    """Noise follows noise until 50 ms and less are left of the target, which is 50 ms less than the cut."""
    assert one(constant(1, 1000), constant(2, 300), snr=None).audio.tolist() == [3.0] * 900 + [1.0] * 100
    assert one(constant(1, 1000), constant(2, 310), snr=None).audio.tolist() == [3.0] * 930 + [1.0] * 70
    assert one(constant(1, 1000), constant(2, 2000), snr=None).audio.tolist() == [3.0] * 1000
    longer = one(constant(1, 1000), constant(2, 600), snr=None, duration=1.8).audio
    assert longer.tolist() == [3.0] * 1000 + [2.0] * 800
    shorter = one(constant(1, 1000), constant(2, 600), snr=None, duration=0.3)
    assert shorter.audio.tolist() == [3.0] * 300
    assert shorter.duration == 0.3


def test_silence_is_mixed_as_it_is() -> None:
    assert one(constant(0), constant(2), snr=10).audio.tolist() == [2.0] * 100
    assert one(constant(1), constant(0), snr=10).audio.tolist() == [1.0] * 100


@pytest.mark.parametrize(
    ("left", "right", "shape"),
    [(0, 0, (100,)), (0, 1, (100,)), (0, 2, (2, 100)), (1, 0, (1, 100)), (2, 0, (2, 100)), (2, 2, (2, 100))],
)
def test_channels(left: int, right: int, shape: tuple[int, ...]) -> None:
    mixed = one(constant(1, 100, left), constant(2, 100, right), snr=None).audio
    assert mixed.shape == shape
    assert (mixed == 3).all()
    assert mixed.dtype == np.float32


def test_what_is_mixed_is_a_copy() -> None:
    for kind in (Sound, Frozen, Plain):
        left = kind("a", constant(1))
        for preserved, expected in (("left", "a"), ("right", "b"), (None, None)):
            (item,) = LazyCutMixer([left], [Sound("b", constant(2))], preserve_id=preserved, snr=None)
            assert type(item) is kind
            assert (item.audio == 3).all()
            assert item.id == expected or (expected is None and len(item.id) == 36)
            assert left.id == "a"
            assert (left.audio == 1).all()
    assert item.text == "kept"


def test_a_share_of_items_passes() -> None:
    whole = LazyIndexedManifestIterator(Sounds("speech", 200))
    assert [item.id for item in mixer(whole, mix_prob=0)] == [f"speech-{i}" for i in range(200)]
    passed = [item for item in mixer(whole, mix_prob=0.7) if item.id.startswith("speech")]
    assert 35 < len(passed) < 85


def test_noise_is_decoded_when_its_item_is() -> None:
    noises, sounds = Sounds("noise", 4), Sounds("speech", 20)
    node = LazyCutMixer(LazyIndexedManifestIterator(sounds), noises)
    pairs = list(node.pairs())
    assert (sounds.made, noises.made) == ([], [])
    pairs[7][1]()
    assert sounds.made == [7]
    assert len(noises.made) >= 1


# -- samples of a dataset


def wavs() -> LazyIndexedManifestIterator:
    return LazyIndexedManifestIterator(data.speech(), shuffle=True)


def shar_of(directory: Path, recordings: list[Any], subtype: str, kind: str = "WAV", extension: str = "wav") -> Path:
    with SharWriter(directory, {"recording": extension, "text": "jsonl"}, compress_jsonl=False) as writer:
        for number, recording in enumerate(recordings):
            file = io.BytesIO()
            soundfile.write(file, recording, RATE, subtype=subtype, format=kind)
            writer.write({"id": f"cut-{number}"}, {"recording": file.getvalue(), "text": f"text {number}"})
    return directory


def test_samples_are_mixed_by_their_recordings() -> None:
    items = list(LazyCutMixer(wavs(), wavs(), snr=None, duration=0.1, mix_prob=0.5, preserve_id="left"))
    whole = {sample.key: sample for sample in wavs()}
    mixed = 0
    for item in items:
        assert isinstance(item, Decoded)
        assert item.sample == whole[item.id]
        assert item.sample["txt"] == whole[item.id]["txt"]
        assert (item.sampling_rate, item.duration, item.audio.dtype) == (data.RATE, 0.1, np.float32)
        signal = item.sample.array("wav") / np.float32(32768)
        noises = [sample.array("wav") / np.float32(32768) for sample in whole.values()]
        if np.array_equal(item.audio, signal):
            assert get_graph_origin(item) is not None
        else:
            mixed += any(np.allclose(item.audio, signal + each) for each in noises)
    assert 0 < mixed < len(items)
    assert {item.id for item in items} == set(whole)


def test_graphs_of_samples_resume_exactly() -> None:
    others = LazyMapper(noise(), lambda sound: replace(sound, sampling_rate=data.RATE))
    check_restore(lambda: LazyCutMixer(wavs(), others, snr=(0, 9), random_mix_offset=True))
    shar = LazyIndexedSharIterator(in_dir=data.shar_directory())
    check_restore(lambda: LazyShuffler(LazyCutMixer(wavs(), shar, duration=0.1), 3))


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(
    ("subtype", "kind", "extension"),
    [
        ("PCM_16", "WAV", "wav"),
        ("PCM_24", "WAV", "wav"),
        ("FLOAT", "WAV", "wav"),
        ("PCM_16", "FLAC", "flac"),
        ("PCM_16", "WAV", "original"),
    ],
)
def test_recordings_of_any_kind(tmp_path: Path, channels: int, subtype: str, kind: str, extension: str) -> None:
    recordings = [np.random.default_rng(i).uniform(-0.5, 0.5, (100 + i, channels)) for i in range(3)]
    source = LazyIndexedSharIterator(in_dir=shar_of(tmp_path, recordings, subtype, kind, extension))
    for item, recording in zip(LazyCutMixer(source, [Sound("b", constant(1))], mix_prob=0), recordings, strict=True):
        assert item.audio.shape == ((len(recording),) if channels == 1 else (channels, len(recording)))
        assert item.audio.flags.c_contiguous or channels == 1
        np.testing.assert_allclose(np.atleast_2d(item.audio).T, recording, atol=2**-15)
    (again,) = pickle.loads(pickle.dumps([item]))
    assert again == item
    assert again != replace(item, audio=-item.audio)
    assert len({again, item}) == 1


def test_a_recording_that_decodes_to_too_much_is_refused(tmp_path: Path) -> None:
    """Before it is decoded: it says that it has five hours, in 132 bytes."""
    file = io.BytesIO()
    soundfile.write(file, np.zeros(16000, "<i2"), 16000, format="FLAC")
    flac = bytearray(file.getvalue())
    flac[22:26] = (5 * 3600 * 16000).to_bytes(4, "big")
    with TarWriter(tmp_path / "long.tar") as writer:
        writer.add("long", {"flac": flac})
    (sample,) = SampleSet.from_file(tmp_path / "long.tar", indexed=True)
    with pytest.raises(FormatError, match=r"cannot have 288000000 samples.*'long'"):
        next(iter(SampleSet([sample]).mix([sample])))


def test_samples_that_cannot_be_mixed_say_why(tmp_path: Path) -> None:
    lines = LazyIndexedManifestIterator(data.lines())
    with pytest.raises(UsageError, match=r"a sample with no recording .* map it to .*'k0'"):
        next(iter(LazyCutMixer(lines, wavs())))
    with pytest.raises(UsageError, match="no recording"):
        next(iter(LazyCutMixer(wavs(), lines)))
    for item, why in (
        (5, "int objects cannot be mixed: map them to objects with id, audio and sampling_rate"),
        ({"id": "a", "audio": constant(1)}, "dict objects cannot be mixed"),
        (SimpleNamespace(id="a", sampling_rate=RATE), "SimpleNamespace objects have no audio"),
    ):
        with pytest.raises(UsageError, match=why):
            next(iter(LazyCutMixer([item], noise())))
        with pytest.raises(UsageError, match=why):
            next(iter(LazyCutMixer(speech(), [item])))
    two = tmp_path / "two.tar"
    with TarWriter(two) as writer:
        writer.add("a", {"wav": b"RIFF", "flac": b"fLaC"})
        writer.add("b", {"wav": b"RIFF....WAVE"})
        writer.add("c", {"flac": b"fLaC"})
    broken = list(LazyIndexedManifestIterator(two))
    assert broken[0].coding == "wav"
    for sample in broken:
        with pytest.raises(FormatError, match=f"sample '{sample.key}'"):
            next(iter(LazyCutMixer([sample], noise())))


# -- what is refused


def test_wrong_parameters_are_refused() -> None:
    for options in (
        {"duration": 0},
        {"duration": float("inf")},
        {"mix_prob": 1.5},
        {"snr": (1, 2, 3)},
        {"preserve_id": "both"},
    ):
        with pytest.raises(UsageError):
            mixer(**options)
    for wrong in ([], iter([1]), LazyFilter(noise(), bool), LazyShuffler(noise(), 3)):
        with pytest.raises(UsageError, match="mix_in_cuts"):
            LazyCutMixer(speech(), wrong)
    with pytest.raises(UsageError, match="partitioned"):
        LazyCutMixer(speech(), speech(world_size=2))


def test_audio_that_does_not_fit_is_refused() -> None:
    good = constant(1)
    for left, right, why in (
        (good.astype(np.int16), good, "array of floats"),
        (good, [1.0, 2.0], "array of floats"),
        (constant(1, 100, 2), constant(1, 100, 3), "2 and 3 channels"),
        (good, constant(1, 0), "noise of zero length"),
    ):
        with pytest.raises(UsageError, match=why):
            one(left, right)
    with pytest.raises(UsageError, match="of 8000 Hz"):
        list(LazyCutMixer([Sound("a", good)], [replace(Sound("b", good), sampling_rate=8000)]))


def test_wrong_tokens_and_states() -> None:
    node = mixer()
    for token in (0, "a", (0,), (0, 0, 0), ("a", 0)):
        with pytest.raises(TypeError, match=r"shaped like \(seed, source_token\)"):
            node[token]
    state = node.state_dict()
    with pytest.raises(UsageError, match="seed = 42, here it is 1"):
        mixer(seed=1).load_state_dict(state)
    other = LazyCutMixer(
        speech(), LazyIndexedManifestIterator(Sounds("noise", 4, 200, "other")), snr=(5, 15), random_mix_offset=True
    )
    with pytest.raises(UsageError, match="mix_in_cuts"):
        other.load_state_dict(state)
    for taken in (-1, None, "1", 1.0, True, 1, 2**62):
        with pytest.raises(FormatError, match="taken"):
            mixer().load_state_dict({**state, "taken": taken})


def test_it_promises_what_its_source_does() -> None:
    def promises(node: IteratorNode) -> tuple[bool, bool, bool]:
        return node.is_checkpointable, node.is_indexed, node.has_constant_time_access

    assert promises(mixer()) == (True, True, True)
    over_list = LazyCutMixer([Sound("a", constant(1))], noise())
    assert promises(over_list) == (False, False, False)
    with pytest.raises(UsageError, match="not checkpointable"):
        over_list.state_dict()
    assert len(mixer()) == 4
