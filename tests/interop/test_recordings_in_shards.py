"""Segments of recordings in every coding, container, rate and number of channels, in every kind of shard: the samples
of a full decode by ffmpeg's command.

Codings by themselves are in `tests/media` and `tests/form`. Here each pairs one coding with other values, and lies in
each kind of shard.
"""

from __future__ import annotations

import io
import json
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import soundfile
from recordings import bytes_by_command, decode_all, make_all, to_16_bits
from tars import add

import touchfs
from touchfs.containers.touchnet.writer import TouchNetWriter
from touchfs.indexing import open_dataset
from touchfs.tree.tree import Tree

SLICES = 5
NEAR = 1  # of 32768: Opus after its pre-roll, and other versions of libav


class Coding(NamedTuple):
    """How a recording is made, and what a full decode is compared as: the command's format and soundfile's type."""

    rate: int
    channels: int
    options: tuple[str, ...]
    raw: str = "s32le"
    dtype: str = "int32"


S16 = {"raw": "s16le", "dtype": "int16"}
LOSSLESS = {
    "u8.wav": Coding(8000, 1, ("-c:a", "pcm_u8")),
    "s16.wav": Coding(16000, 2, ("-c:a", "pcm_s16le")),
    "s24.wav": Coding(44100, 6, ("-c:a", "pcm_s24le")),
    "f32.wav": Coding(22050, 1, ("-c:a", "pcm_f32le"), "f32le", "float32"),
    "s16.flac": Coding(16000, 1, ("-sample_fmt", "s16")),
    "s24.flac": Coding(96000, 2, ("-sample_fmt", "s32", "-bits_per_raw_sample", "24")),
    "ogg.oga": Coding(44100, 1, ("-c:a", "flac", "-sample_fmt", "s16")),
    "flac.mkv": Coding(48000, 6, ("-c:a", "flac", "-sample_fmt", "s16")),
    "alac.m4a": Coding(22050, 2, ("-c:a", "alac", "-sample_fmt", "s16p")),
}
LOSSY = {
    "stereo.mp3": Coding(44100, 2, ("-q:a", "3"), **S16),
    "mono.mp3": Coding(16000, 1, ("-b:a", "24k"), **S16),
    "mono.ogg": Coding(22050, 1, ("-c:a", "libvorbis"), **S16),
    "vorbis.webm": Coding(48000, 2, ("-c:a", "libvorbis"), **S16),
    "aac.m4a": Coding(44100, 1, ("-c:a", "aac", "-aac_pns", "0"), **S16),
    "adts.aac": Coding(32000, 2, ("-c:a", "aac", "-aac_pns", "0"), **S16),
    "stereo.opus": Coding(48000, 2, ("-c:a", "libopus", "-b:a", "96k"), **S16),
    "voice.opus": Coding(48000, 1, ("-c:a", "libopus", "-b:a", "16k", "-application", "voip"), **S16),
}
CODINGS = LOSSLESS | LOSSY


class Recording(NamedTuple):
    """A stored recording, its samples as the command decodes them, and random spans of them."""

    name: str
    data: bytes
    samples: np.ndarray[Any, Any]
    exact: np.ndarray[Any, Any]
    spans: list[tuple[int, int]]

    @property
    def key(self) -> str:
        return self.name.replace(".", "-")

    @property
    def extension(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def segments(self) -> list[dict[str, Any]]:
        """In the middle between samples, so that rounding and truncating find the same one."""
        rate = CODINGS[self.name].rate
        return [{"start": (first + 0.25) / rate, "end": (end + 0.25) / rate, "text": "x"} for first, end in self.spans]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[Recording]:
    directory = tmp_path_factory.mktemp("recordings")
    make_all(
        directory, [(name, each.rate, each.channels, (*each.options, "-t", "3")) for name, each in CODINGS.items()]
    )
    decoded = bytes_by_command([(directory / name, ("-f", coding.raw)) for name, coding in CODINGS.items()])
    return [recording(directory / name, each) for name, each in zip(CODINGS, decoded, strict=True)]


def recording(path: Path, decoded: bytes) -> Recording:
    name = path.name
    coding = CODINGS[name]
    samples = np.frombuffer(decoded, coding.dtype).reshape(-1, coding.channels)
    exact = samples if name in LOSSLESS else to_16_bits(decode_all(path))
    chooser = random.Random(name)
    firsts = [0, *(chooser.randrange(len(samples) - 1) for _ in range(SLICES - 1))]
    spans = [(first, chooser.randint(first + 1, min(first + coding.rate, len(samples)))) for first in firsts]
    return Recording(name, path.read_bytes(), samples, exact, spans)


def in_a_tar(place: Path, recordings: list[Recording]) -> None:
    with tarfile.open(place / "x.tar", "w") as tar:
        for each in recordings:
            add(tar, f"{each.key}.{each.extension}", each.data)
            add(tar, f"{each.key}.json", json.dumps({"segments": each.segments}).encode())


def in_touchnet(place: Path, recordings: list[Recording]) -> None:
    """As entries of bytes, of which only the begin tells that they are recordings."""
    uint8 = np.dtype("u1")
    with TouchNetWriter(place / "x", {"metainfo": uint8, "video": uint8}) as writer:
        for each in recordings:
            metainfo = {"key": each.key, "info": {"segments": each.segments}}
            writer.add({"metainfo": json.dumps(metainfo).encode(), "video": each.data})


def in_a_shar(place: Path, recordings: list[Recording], *, declare: bool) -> None:
    with open(place / "cuts.000000.jsonl", "w") as cuts, tarfile.open(place / "recording.000000.tar", "w") as tar:
        for each in recordings:
            rate, seconds = CODINGS[each.name].rate, len(each.samples) / CODINGS[each.name].rate
            supervisions = [
                {"id": f"{each.key}-{i}", "recording_id": each.key, "start": first / rate, "text": "x", "channel": 0}
                | {"duration": (end - first) / rate}
                for i, (first, end) in enumerate(each.spans)
            ]
            manifest = {"id": each.key, "sampling_rate": rate, "num_samples": len(each.samples), "duration": seconds}
            manifest["channel_ids"] = [*range(each.samples.shape[1])]
            manifest["sources"] = [{"type": "shar", "channels": manifest["channel_ids"], "source": ""}]
            cut = {"id": each.key, "start": 0, "duration": seconds, "supervisions": supervisions}
            cut |= {"recording": manifest, "type": "MultiCut", "channel": [0]} if declare else {}
            cuts.write(json.dumps(cut) + "\n")
            add(tar, f"{each.key}.{each.extension}", each.data)
            add(tar, f"{each.key}.json", json.dumps(manifest if declare else {}).encode())


KINDS: dict[str, Callable[[Path, list[Recording]], None]] = {
    "tar": in_a_tar,
    "TouchNet": in_touchnet,
    "Shar": lambda place, recordings: in_a_shar(place, recordings, declare=True),
    "Shar without manifests": lambda place, recordings: in_a_shar(place, recordings, declare=False),
}


def check(recording: Recording, number: int, data: bytes) -> None:
    first, end = recording.spans[number]
    samples = soundfile.read(io.BytesIO(data), dtype=CODINGS[recording.name].dtype, always_2d=True)[0]
    where = (recording.name, first, end)
    assert samples.shape == (end - first, recording.samples.shape[1]), where
    if recording.name in LOSSLESS:
        assert np.array_equal(samples, recording.samples[first:end]), where
        return
    same_libav = 0 if "opus" not in recording.name else NEAR
    assert np.abs(samples.astype(int) - recording.exact[first:end]).max() <= same_libav, where
    assert np.abs(samples.astype(int) - recording.samples[first:end]).max() <= NEAR, where


@pytest.mark.parametrize("kind", KINDS)
def test_slices_are_those_of_a_full_decode(tmp_path: Path, recordings: list[Recording], kind: str) -> None:
    """Through the library, and the same bytes through the tree."""
    place = tmp_path / "shards"
    place.mkdir()
    KINDS[kind](place, recordings)
    segments = {(each.key, each.number): each for each in touchfs.open(place).segments()}
    assert len(segments) == SLICES * len(recordings)
    dataset = open_dataset(str(place))
    tree = Tree(dataset, range(1, len(dataset.shards) + 1))
    for each in recordings:
        for number in range(SLICES):
            sample = segments[each.key, number]
            data = sample["wav"]
            check(each, number, data)
            entry = tree.resolve(sample.path("wav"))
            content = tree.content(entry.inode)
            assert entry.size == content.size == len(data)
            assert bytes(content.read(0, content.size)) == data
