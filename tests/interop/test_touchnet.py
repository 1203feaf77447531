"""Files that TouchNet's own tools wrote (tests/data/touchnet): we read them, and write the same."""

import json
import os
import shutil
import wave
from pathlib import Path

import numpy as np
import pytest

from touchfs import TouchDataset
from touchfs.bulk.pack.touchnet import pack_touch
from touchfs.containers.touchnet.layout import mmidx
from touchfs.indexing import open_dataset
from touchfs.tree.tree import Tree

TOUCHNET = Path(__file__).parent.parent / "data/touchnet"
LENGTHS = [[16000, 40000, 48000], [12000, 0]]


@pytest.fixture
def audio_meta(tmp_path):
    """The sample directory, with audio of the lengths that its indexes name."""
    root = tmp_path / "audio_meta"
    shutil.copytree(TOUCHNET / "audio_meta", root)
    for shard, lengths in enumerate(LENGTHS):
        pcm = np.arange(sum(lengths), dtype=np.int16) * 7
        (root / f"{shard:09d}/audio.bin").write_bytes(pcm.tobytes())
    return root


def samples(root: Path):
    """(metainfo bytes, PCM bytes) of every sample, read by the layout of the format and nothing of ours."""
    for shard, lengths in enumerate(LENGTHS):
        directory = root / f"{shard:09d}"
        metainfo, audio = (directory / "metainfo.bin").read_bytes(), (directory / "audio.bin").read_bytes()
        index = (directory / "metainfo.idx").read_bytes()
        sizes = np.frombuffer(index, "<i4", len(lengths), 34)
        offsets = np.frombuffer(index, "<i8", len(lengths), 34 + 4 * len(lengths))
        start = 0
        for length, size, offset in zip(lengths, sizes, offsets, strict=True):
            yield metainfo[offset : offset + size], audio[start : start + 2 * length]
            start += 2 * length


@pytest.mark.parametrize("path", sorted(TOUCHNET.glob("*/*/*.idx")), ids=lambda path: "-".join(path.parts[-3:]))
def test_every_index_is_read_and_written_again_byte_for_byte(path):
    data = path.read_bytes()
    index = mmidx.parse_index(data, 0)
    assert mmidx.build_index(index.dtype, index.entries.lengths) == data


def test_repacking_the_samples_gives_the_same_files(audio_meta, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("synth")
    lines = []
    for number, (metainfo, pcm) in enumerate(samples(audio_meta)):
        given = json.loads(metainfo)
        # The sample's own path; the sample rate is what make_data adds at the end.
        given["wav"] = f"synth/{number}.wav"
        del given["sample_rate"]
        with wave.open(given["wav"], "wb") as file:
            file.setparams((1, 2, 16000, 0, "NONE", ""))
            file.writeframes(pcm)
        lines.append(json.dumps(given))
    Path("data.jsonl").write_text("\n".join([*lines[:3], *lines[3:]]) + "\n")
    pack_touch("data.jsonl", "touchnet-samples", samples_per_shard=3)
    for shard in ("000000000", "000000001"):
        for name in ("audio.bin", "audio.idx", "metainfo.bin", "metainfo.idx"):
            ours, theirs = Path("touchnet-samples", shard, name), audio_meta / shard / name
            assert ours.read_bytes() == theirs.read_bytes(), (shard, name)


def test_the_tree_shows_every_sample(audio_meta):
    dataset = open_dataset(str(audio_meta))
    tree = Tree(dataset, [1, 2])
    names = ["utt-0001", "utt-0002", "pod-0003", "utt/with/slash-0004", "utt-0005"]
    for number, (name, (metainfo, pcm)) in enumerate(zip(names, samples(audio_meta), strict=True)):
        shard = "000000000" if number < 3 else "000000001"

        def read(extension: str, path: str = f"shards/{shard}/{name}") -> bytes:
            entry = tree.resolve(f"{path}.{extension}")
            data = bytes(tree.content(entry.inode).read(0, entry.size + 1))
            assert len(data) == entry.size
            return data

        assert read("json") == metainfo
        assert read("txt") == json.loads(metainfo)["txt"].encode()
        assert read("wav")[44:] == pcm


def test_tokens_are_npy_and_equal(tmp_path):
    tree = Tree(open_dataset(str(TOUCHNET / "texttoken_uint16/000000000")), [1])
    tokens = TouchDataset(str(TOUCHNET / "texttoken_uint16/000000000"), "texttoken")
    stored = np.fromfile(TOUCHNET / "texttoken_uint16/000000000/texttoken.bin", "<u2")
    assert np.array_equal(np.concatenate([tokens.get(i, "texttoken") for i in range(len(tokens))]), stored)
    for i in range(len(tokens)):
        entry = tree.resolve(f"shards/000000000/{i:08d}.texttoken.npy")
        (tmp_path / "x.npy").write_bytes(tree.content(entry.inode).read(0, entry.size))
        assert np.array_equal(np.load(tmp_path / "x.npy"), tokens.get(i, "texttoken"))


def test_integer_keys_and_text_fields(tmp_path):
    dataset = open_dataset(str(TOUCHNET / "metainfo_only/000000000"))
    tree = Tree(dataset, [1])
    names = [name.decode() for name, _, _ in tree.entries(tree.resolve("shards/000000000").inode)]
    assert names == ["0.json", "0.txt", "1.json", "1.txt", "2.json", "2.txt"]


def test_an_empty_shard_is_an_empty_directory(tmp_path):
    root = tmp_path / "empty"
    shutil.copytree(TOUCHNET / "empty", root)
    (root / "000000000/audio.bin").write_bytes(b"")
    dataset = open_dataset(str(root))
    assert dataset.samples == 0
    assert dataset.shards[0].report == ""
    tree = Tree(dataset, [1])
    assert list(tree.entries(tree.resolve("shards/000000000").inode)) == []
