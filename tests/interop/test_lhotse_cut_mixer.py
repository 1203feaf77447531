"""The audio of a mix is what Lhotse's mixer makes of the same cuts with the same seed."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
import soundfile
from lhotse import CutSet, Recording
from lhotse.cut.set import LazyCutMixer as LhotseMixer
from lhotse.lazy import LazyIteratorChain as LhotseChain

from touchfs.node import LazyCutMixer, LazyIndexedManifestIterator, LazyIteratorChain

RATE = 16000


@dataclass
class Sound:
    id: str
    audio: np.ndarray[Any, Any]
    sampling_rate: int


def write(directory: Any, name: str, lengths: list[int], channels: int = 1) -> str:
    random = np.random.default_rng(len(name) + sum(lengths))
    cuts = []
    for index, length in enumerate(lengths):
        path = directory / f"{name}-{index}.wav"
        # The third is silent.
        loud = 0.0 if index == 2 else random.uniform(0.05, 0.5)
        data = (random.normal(size=(length, channels)) * loud).clip(-1, 1).astype(np.float32)
        soundfile.write(path, data, RATE, subtype="FLOAT")
        cuts.append(Recording.from_file(path, recording_id=f"{name}-{index}").to_cut())
    manifest = directory / f"{name}.jsonl"
    CutSet.from_cuts(cuts).to_file(manifest)
    return str(manifest)


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("sounds")
    speech = [16000, 7777, 12000, 24001, 900, 5000, 31234]
    noise = [8000, 40000, 2000, 16011, 3333]
    return {
        "speech": write(directory, "speech", speech),
        "more": write(directory, "more", speech[::-1]),
        "short": write(directory, "short", [400, 800, 801, 1]),
        "noise": write(directory, "noise", noise),
        "stereo": write(directory, "stereo", noise, channels=2),
        "stereo speech": write(directory, "stereo speech", speech, channels=2),
    }


@cache
def sounds(manifest: str) -> LazyIndexedManifestIterator:
    cuts = CutSet.from_file(manifest)
    return LazyIndexedManifestIterator([Sound(cut.id, cut.load_audio(), RATE) for cut in cuts])


def check(ours: Any, theirs: Any, epochs: int = 2) -> None:
    for _ in range(epochs):
        for mine, cut in zip(ours, theirs, strict=True):
            expected = cut.load_audio()
            assert mine.audio.shape == expected.shape
            assert mine.audio.dtype == expected.dtype
            np.testing.assert_allclose(mine.audio, expected, rtol=1e-5, atol=1e-6)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"snr": None},
    {"snr": (5, 15), "seed": 7},
    {"snr": -3, "mix_prob": 0.5},
    {"snr": [0, 30], "mix_prob": 0.7, "random_mix_offset": True, "seed": 123456789},
    {"duration": 1.0, "random_mix_offset": True},
    {"duration": 3.0, "snr": (10, 20)},
    {"duration": 0.3, "snr": 10},
    {"stateful": False, "snr": (5, 15)},
    {"duration": 3.0, "allow_padding": True, "snr": 10},
]


def lhotse(manifest: str) -> CutSet:
    return CutSet.from_file(manifest, indexed=True)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_same_seed_gives_the_same_audio(manifests: dict[str, str], options: dict[str, Any]) -> None:
    speech, noise = manifests["speech"], manifests["noise"]
    theirs = LhotseMixer(lhotse(speech), lhotse(noise), **options)
    check(LazyCutMixer(sounds(speech), sounds(noise), **options), theirs)


def test_speech_shorter_than_the_least_noise(manifests: dict[str, str]) -> None:
    short, noise = manifests["short"], manifests["noise"]
    check(LazyCutMixer(sounds(short), sounds(noise)), LhotseMixer(lhotse(short), lhotse(noise)))


@pytest.mark.parametrize(
    ("speech", "noise"), [("stereo speech", "stereo"), ("stereo speech", "noise"), ("speech", "stereo")]
)
def test_channels(manifests: dict[str, str], speech: str, noise: str) -> None:
    options: dict[str, Any] = {"snr": (5, 15), "random_mix_offset": True}
    theirs = LhotseMixer(lhotse(manifests[speech]), lhotse(manifests[noise]), **options)
    check(LazyCutMixer(sounds(manifests[speech]), sounds(manifests[noise]), **options), theirs)


def test_tokens_of_a_chain(manifests: dict[str, str]) -> None:
    """They seed the random numbers, and are tuples there."""
    speech, more, noise = manifests["speech"], manifests["more"], manifests["noise"]
    theirs = LhotseMixer(CutSet(LhotseChain(lhotse(speech).data, lhotse(more).data)), lhotse(noise), snr=(0, 20))
    check(LazyCutMixer(LazyIteratorChain(sounds(speech), sounds(more)), sounds(noise), snr=(0, 20)), theirs)


def test_ids(manifests: dict[str, str]) -> None:
    speech, noise = manifests["speech"], manifests["noise"]
    for side in ("left", "right"):
        options: dict[str, Any] = {"mix_prob": 0.6, "duration": 2.0, "preserve_id": side}
        theirs = LhotseMixer(lhotse(speech), lhotse(noise), **options)
        ours = LazyCutMixer(sounds(speech), sounds(noise), **options)
        assert [sound.id for sound in ours] == [cut.id for cut in theirs]
