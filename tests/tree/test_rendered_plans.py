"""`merged/<plan>/` with a rendering: of every kind of recording, by every way to it."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from typing import Any

import numpy as np
import pytest
import soundfile
from tree_files import read

import touchfs
from touchfs.core.errors import FormatError
from touchfs.indexing import open_dataset
from touchfs.tree.tree import Tree

RATE = 16000
SEGMENTS = [{"start": 0.5, "end": 1.0, "text": "one"}, {"start": 1.25, "end": 2.0, "text": "two"}]
CODINGS = {"wav": (), "flac": (), "mp3": ("-b:a", "64k"), "opus": ("-c:a", "libopus")}
PLAN = "max=30,rate=8000,channels=mono"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tar with a stereo recording of each coding."""
    place = tmp_path_factory.mktemp("data")
    noise = np.random.default_rng(0).normal(0, 0.1, (3 * RATE, 2))
    soundfile.write(place / "source.wav", noise, RATE, subtype="PCM_16")
    with tarfile.open(place / "x.tar", "w") as tar:
        for coding, options in CODINGS.items():
            made = place / f"{coding}.{coding}"
            subprocess.run(["ffmpeg", "-v", "error", "-i", place / "source.wav", *options, made], check=True)
            tar.add(made, made.name)
            (place / f"{coding}.json").write_text(json.dumps({"segments": SEGMENTS}))
            tar.add(place / f"{coding}.json", f"{coding}.json")
    return str(place / "x.tar")


@pytest.fixture(scope="module")
def tree(path: str) -> Tree:
    return Tree(open_dataset(path, in_place=True), [1])


def decoded(data: bytes) -> tuple[np.ndarray[Any, Any], int]:
    return soundfile.read(io.BytesIO(data), dtype="int16", always_2d=True)


@pytest.mark.parametrize("coding", CODINGS)
def test_a_plan_renders_what_it_merges(tree: Tree, coding: str) -> None:
    directory = f"x/{coding}"
    plain, rate = decoded(read(tree, f"merged/max=30/{directory}/0000.wav"))
    samples, new_rate = decoded(read(tree, f"merged/{PLAN}/{directory}/0000.wav"))
    assert (new_rate, samples.shape) == (8000, (-(-len(plain) * 8000 // rate), 1))
    mono, _ = decoded(read(tree, f"merged/max=30,channels=mono/{directory}/0000.wav"))
    assert np.abs(mono[:, 0] - plain.mean(1)).max() <= 1
    left, _ = decoded(read(tree, f"merged/max=30,channels=0/{directory}/0000.wav"))
    assert np.array_equal(left[:, 0], plain[:, 0])
    flac = read(tree, f"merged/max=30,format=flac/{directory}/0000.flac")
    assert flac[:4] == b"fLaC" and np.array_equal(decoded(flac)[0], plain)
    assert np.array_equal(decoded(read(tree, f"merged/{PLAN},format=flac/{directory}/0000.flac"))[0], samples)
    found = json.loads(read(tree, f"merged/{PLAN},format=flac/{directory}/0000.json"))
    assert found["rendering"]["sample_rate"] == 8000 and found["rendering"]["format"] == "flac"
    assert found["plan"] == f"{PLAN},format=flac"
    usual = json.loads(read(tree, f"merged/max=30/{directory}/0000.json"))
    assert found == usual | {"plan": found["plan"], "rendering": found["rendering"]}, "times are the recording's"
    assert read(tree, f"merged/{PLAN}/{directory}/0000.txt") == b"one two"


def test_segments_without_merging(tree: Tree) -> None:
    for coding in CODINGS:
        names = [name for name, _, _ in tree.entries(tree.resolve(f"merged/max=0/x/{coding}").inode)]
        assert names == [b"0000.json", b"0000.txt", b"0000.wav", b"0001.json", b"0001.txt", b"0001.wav"]
        for number in (0, 1):
            segment = read(tree, f"segments/x/{coding}/{number:04d}.wav")
            assert read(tree, f"merged/max=0/x/{coding}/{number:04d}.wav") == segment
            flac = read(tree, f"merged/max=0,format=flac/x/{coding}/{number:04d}.flac")
            assert np.array_equal(decoded(flac)[0], decoded(segment)[0])


def test_a_listing_renders_nothing(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(open_dataset(path, in_place=True), [1])
    monkeypatch.setattr("touchfs.form.renderings.Rendered.render", lambda *_: pytest.fail("it is rendered"))
    for plan, sizes in ((PLAN, 2), (f"{PLAN},format=flac", 0)):
        listed = [
            entry.size
            for coding in CODINGS
            for name, entry, _ in tree.entries(tree.resolve(f"merged/{plan}/x/{coding}").inode)
            if name in (b"0000.wav", b"0000.flac")
        ]
        # Sizes of WAVs are known where lengths are: of the WAV and the FLAC.
        assert len(listed) == 4 and sum(size is not None for size in listed) == sizes


def test_a_channel_that_is_not_there(tree: Tree) -> None:
    entry = tree.resolve("merged/max=30,channels=2/x/wav/0000.wav")
    assert entry.size is None
    with pytest.raises(FormatError, match="channels=2: the recording has 2"):
        tree.content(entry.inode)


def test_in_python(path: str, tree: Tree) -> None:
    samples = touchfs.open(path).merged(f"{PLAN},format=flac")
    assert len(samples) == 4
    assert [list(sample) for sample in samples] == [["flac", "json", "txt"]] * 4
    assert samples[1]["flac"] == read(tree, f"merged/{PLAN},format=flac/x/{samples[1].key}/0000.flac")
    audio, rate = samples[0].audio()
    assert rate == 8000 and audio.shape == (12000,)
    assert samples[0].duration == 1.5
    assert len(samples.where("duration > 1 and text == 'one two'")) == 4
    resampled = touchfs.open(path).merged("max=0,rate=8000")
    assert [sample.audio()[1] for sample in resampled] == [8000] * 8
    assert [sample.duration for sample in resampled] == [0.5, 0.75] * 4
