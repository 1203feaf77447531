"""One speech dataset in shards of every kind: the trees of its segments, also merged, have the same names and bytes."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
import soundfile
from tree_files import files_below

import touchfs
from touchfs.bulk.convert.job import convert
from touchfs.bulk.convert.shar import SharTarget
from touchfs.bulk.convert.tar import TarTarget
from touchfs.bulk.convert.touchnet import TouchTarget
from touchfs.containers.touchnet.writer import TouchNetWriter
from touchfs.indexing import open_dataset
from touchfs.manifest.entry import ListedRecording, Utterance, recording_id, utterance_ids
from touchfs.manifest.kaldi import build_segments, build_text, build_utt2spk
from touchfs.tree.tree import Tree

RATE = 16000
# Times that binary fractions do not hit, a pause, an overlap, and one up to the end of the recording.
TURNS = [
    {"start": 0.1, "end": 1.3, "txt": "good morning", "speaker": "anna", "whisper": "Good morning.", "score": 0.5},
    {"start": 1.25, "end": 2.0, "txt": "你好", "speaker": "ben", "language": "zh", "txts": {"paraformer": "您好"}},
    {"start": "2.3", "end": 2.7, "text": "bye", "speaker": "anna"},
    {"start": 4.0001, "end": -1, "txt": "", "speaker": "ben"},
]
KEYS = ["talks/monday", "b", "目录/录音 1", "no-segments"]
Shown = dict[str, bytes]


@pytest.fixture(scope="module")
def touchnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("equal") / "touchnet"
    path.mkdir()
    with TouchNetWriter(path / "000000", {"audio": np.dtype("<i2"), "metainfo": np.dtype("u1")}) as writer:
        for number, key in enumerate(KEYS):
            samples = np.random.default_rng(number).integers(-(2**15), 2**15, 5 * RATE + number, "<i2")
            metainfo = {"key": key, "sample_rate": RATE, "txt": f"text of {key}"}
            if number < len(KEYS) - 1:
                metainfo["info"] = {"segments": TURNS[: len(TURNS) - number]}
            writer.add({"audio": samples.tobytes(), "metainfo": json.dumps(metainfo, ensure_ascii=False).encode()})
    return path


@pytest.fixture(scope="module")
def tar(touchnet: Path) -> Path:
    convert(str(touchnet), str(touchnet.parent / "tar"), TarTarget(10))
    return touchnet.parent / "tar"


@pytest.fixture(scope="module")
def flac(tar: Path) -> Path:
    """The tar with its recordings as FLAC."""
    (path := tar.parent / "flac").mkdir()
    with tarfile.open(tar / "000000.tar") as old, tarfile.open(path / "000000.tar", "w") as new:
        for member in old:
            data = old.extractfile(member).read()  # type: ignore[union-attr]
            if member.name.endswith(".wav"):
                samples, rate = soundfile.read(io.BytesIO(data), dtype="int16")
                file = io.BytesIO()
                soundfile.write(file, samples, rate, format="FLAC")
                member.name, data = member.name.removesuffix("wav") + "flac", file.getvalue()
            member.size = len(data)
            new.addfile(member, io.BytesIO(data))
    return path


@pytest.fixture(scope="module")
def shar(touchnet: Path) -> Path:
    convert(str(touchnet), str(touchnet.parent / "shar"), SharTarget(10))
    return touchnet.parent / "shar"


@pytest.fixture(scope="module")
def kaldi(touchnet: Path, tar: Path) -> Path:
    """The recordings of the tar, and Kaldi's lists beside it."""
    convert(str(tar), str(touchnet.parent / "kaldi"), TarTarget(10), leave_out=["json", "txt"])
    lists: dict[str, list[str]] = {"segments": [], "text": [], "utt2spk": []}
    for segment in touchfs.open(str(touchnet)).segments():
        found = segment.json()
        made = found["touchfs"]
        recording = ListedRecording(recording_id(segment.key), "", RATE, 1, 0)
        utterance, speaker = utterance_ids(recording.id, segment.number, found["speaker"])
        listed = Utterance(utterance, recording, made["offset"], made["length"], speaker, segment.text)
        for name, build in (("segments", build_segments), ("text", build_text), ("utt2spk", build_utt2spk)):
            lists[name].append(build(listed))
    for name, lines in lists.items():
        (touchnet.parent / "kaldi" / name).write_text("".join(sorted(lines)))
    return touchnet.parent / "kaldi"


def shown(source: Path, path: str) -> Shown:
    """The files below a directory of the tree, without the name of the shard, which differs."""
    dataset = open_dataset(os.fspath(source))
    tree = Tree(dataset, range(1, 1 + len(dataset.shards)))
    return {name.partition("/")[2]: data for name, data in files_below(tree, path).items()}


@pytest.mark.parametrize("plan", ["max=30", "max=2,gap=0.2", "max=30,text=whisper", "max=3,min=1,seed=5"])
def test_merged_segments_are_equal(touchnet: Path, tar: Path, flac: Path, shar: Path, plan: str) -> None:
    expected = shown(touchnet, f"merged/{plan}")
    assert shown(tar, f"merged/{plan}") == shown(flac, f"merged/{plan}") == expected
    assert without_the_cut_of_a_text(shown(shar, f"merged/{plan}")) == expected


def test_segments_are_equal(touchnet: Path, tar: Path, flac: Path, shar: Path) -> None:
    expected = shown(touchnet, "segments")
    assert {name.removeprefix(KEYS[0] + "/") for name in expected if name.startswith(KEYS[0])} == {
        *(f"{number:04d}.{extension}" for number in range(4) for extension in ("json", "txt", "wav")),
        *("0000.whisper.txt", "0001.paraformer.txt"),
    }
    assert shown(tar, "segments") == shown(flac, "segments") == expected
    assert known_to_lhotse(without_the_cut_of_a_text(shown(shar, "segments"))) == known_to_lhotse(expected)


def test_segments_of_kaldis_lists_are_equal(touchnet: Path, kaldi: Path) -> None:
    """They have one text and no other fields."""
    expected = {name: data for name, data in shown(touchnet, "segments").items() if name.count(".") == 1}
    assert known_to_lhotse(shown(kaldi, "segments")) == known_to_lhotse(expected)
    assert shown(kaldi, "merged/max=30") == shown(touchnet, "merged/max=30")


def test_segments_are_equal_after_all_conversions(touchnet: Path, flac: Path, shar: Path, tmp_path: Path) -> None:
    convert(str(flac), str(tmp_path / "shar"), SharTarget(10))
    assert shown(tmp_path / "shar", "segments") == shown(shar, "segments")
    convert(str(tmp_path / "shar"), str(tmp_path / "touchnet"), TouchTarget(2))
    assert shown(tmp_path / "touchnet", "segments") == shown(touchnet, "segments")


def without_the_cut_of_a_text(shown: Shown) -> Shown:
    """The files of a Shar without those of a text without segments, which in a Shar is one supervision over all."""
    return {name: data for name, data in shown.items() if not name.startswith("no-segments/")}


def known_to_lhotse(shown: Shown) -> dict[str, object]:
    """The files; of each `.json` what is derived, because the rest is the segment as its format stores it."""
    return {
        name: json.loads(data)["touchfs"] | {"speaker": json.loads(data)["speaker"]} if name.endswith(".json") else data
        for name, data in shown.items()
    }
