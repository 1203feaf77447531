"""Segments of recordings whose length no header has: when they are read, and which samples they have."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import soundfile
from recordings import decode_all, make, make_amr, sound, to_16_bits
from tars import write_tar

from touchfs.containers.touchnet.writer import TouchNetWriter
from touchfs.core.errors import FormatError
from touchfs.core.extent import Extent
from touchfs.form.lengths import known_info
from touchfs.indexing import open_dataset
from touchfs.source.data import DATA
from touchfs.tree.entry import Entry
from touchfs.tree.open_shards import WouldBlockError
from touchfs.tree.tree import Tree

SEGMENTS = [{"start": 0.5, "end": 1.50003, "text": "one"}, {"start": 2, "end": 3.25, "text": "two"}, {"start": 7}]
OPTIONS = {
    "a.mp3": (44100, 2),
    "a.opus": (48000, 1, "-c:a", "libopus"),
    "a.ogg": (22050, 1, "-c:a", "libvorbis"),
    "a.m4a": (44100, 2, "-c:a", "aac", "-aac_pns", "0"),
    "a.aiff": (8000, 1, "-c:a", "pcm_s24be"),
    "a.mkv": (16000, 1, "-c:a", "flac"),
    "a.avi": (16000, 1, "-c:a", "pcm_s16le"),
}


def tar_of(directory: Path, recording: Path, segments: object = SEGMENTS) -> Path:
    metainfo = json.dumps({"segments": segments}).encode()
    return write_tar(directory / "x.tar", {recording.name: recording.read_bytes(), "a.json": metainfo})


def tree_of(source: Path) -> Tree:
    dataset = open_dataset(str(source), in_memory=True)
    return Tree(dataset, range(1, len(dataset.shards) + 1))


def files(tree: Tree, path: str) -> dict[str, Entry]:
    """The entries of the .wav files in a directory as it lists them."""
    listed = tree.entries(tree.resolve(path).inode)
    return {name.decode(): entry for name, entry, _ in listed if name.endswith(b".wav")}


def read(tree: Tree, path: str) -> bytes:
    content = tree.content(tree.resolve(path).inode)
    return bytes(content.read(0, content.size))


def decoded(data: bytes) -> np.ndarray:
    return soundfile.read(io.BytesIO(data), dtype="int16", always_2d=True)[0]


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("media")


def coded(media: Path, name: str) -> Path:
    rate, channels, *options = OPTIONS[name]
    return make(media, name, rate, channels, *options)


@pytest.mark.parametrize("name", [*OPTIONS, "a.amr"])
def test_segments_are_cut_out_of_a_full_decode(tmp_path: Path, media: Path, name: str) -> None:
    recording = make_amr(tmp_path) if name == "a.amr" else coded(media, name)
    rate = 8000 if name == "a.amr" else OPTIONS[name][0]
    whole = decode_all(recording)
    tree = tree_of(tar_of(tmp_path, recording))
    assert list(files(tree, "segments/x/a")) == ["0000.wav", "0001.wav", "0002.wav"]
    spans = [(rate // 2, int(1.50003 * rate + 0.5)), (2 * rate, int(3.25 * rate + 0.5)), (7 * rate, len(whole))]
    for number, (first, last) in enumerate(spans):
        data = read(tree, f"segments/x/a/{number:04d}.wav")
        assert tree.resolve(f"segments/x/a/{number:04d}.wav").size == len(data)
        if name == "a.aiff":
            assert np.array_equal(soundfile.read(io.BytesIO(data), dtype="int32")[0], whole[first:last, 0])
        else:
            difference = decoded(data).astype(int) - to_16_bits(whole[first:last])
            assert np.abs(difference).max() <= (1 if name in ("a.amr", "a.opus") else 0)
    merged = read(tree, "merged/max=4/x/a/0000.wav")
    assert np.abs(decoded(merged).astype(int) - to_16_bits(whole[spans[0][0] : spans[1][1]])).max() <= 1


def test_a_listing_reads_no_recording(tmp_path: Path, media: Path) -> None:
    path = tar_of(tmp_path, coded(media, "a.mp3"))
    tree = tree_of(path)
    with tarfile.open(path) as tar:
        member = tar.getmember("a.mp3")
    extent = Extent(DATA.open(str(path), tree.dataset.shards[0].files["x.tar"]), member.offset_data, member.size)
    for directory in ("segments/x/a", "merged/max=4/x/a", "segments/x/a"):
        listed = files(tree, directory)
        assert {entry.size for entry in listed.values()} == {None}
        assert known_info(extent) is None
        for entry in listed.values():
            with pytest.raises(WouldBlockError):
                tree.nonblocking.entry(entry.inode)
            with pytest.raises(WouldBlockError):
                tree.nonblocking.content(entry.inode)
    entry = tree.entry(listed["0000.wav"].inode)
    assert entry.size == 44 + 4 * round(1.00003 * 44100)
    assert known_info(extent) is not None
    # From now on nobody has to wait, neither for the other segments nor for merged ones.
    for directory in ("segments/x/a", "merged/max=4/x/a"):
        for name, entry in files(tree, directory).items():
            inode = tree.resolve(directory).inode
            assert tree.nonblocking.entry(entry.inode) == tree.nonblocking.find(inode, name.encode())
            assert tree.nonblocking.entry(entry.inode).size == tree.nonblocking.content(entry.inode).size


def test_what_the_json_of_a_segment_has(tmp_path: Path, media: Path) -> None:
    samples = {"start_sample": 4410, "num_samples": 100}
    tree = tree_of(tar_of(tmp_path, coded(media, "a.mp3"), [*SEGMENTS[1:], {"start": 5, "end": 4}, samples]))
    found = [json.loads(read(tree, f"segments/x/a/{number:04d}.json"))["touchfs"] for number in range(4)]
    begin = [{"key": "a", "segment": number} for number in range(4)]
    assert found == [
        begin[0] | {"start": 2.0, "end": 3.25},
        begin[1] | {"start": 7.0, "end": None},
        begin[2] | {"start": 5.0, "end": 5.0, "problem": "ends at 4.0 s, not after its start at 5.0 s"},
        begin[3] | {"offset": 4410, "length": 100},
    ]
    sizes = [tree.resolve(f"segments/x/a/{number:04d}.wav").size for number in range(4)]
    assert sizes == [44 + 4 * 55125, 44 + 4 * 2 * 44100, 44, 44 + 400]


def test_what_the_json_of_a_merged_segment_has(tmp_path: Path, media: Path) -> None:
    tree = tree_of(tar_of(tmp_path, coded(media, "a.mp3")))
    assert json.loads(read(tree, "merged/max=4/x/a/0000.json")) == {
        "key": "a",
        "plan": "max=4",
        "number": 0,
        "start": 0.5,
        "end": 3.25,
        "parts": [{"segment": 0, "start": 0.5, "end": 1.50003}, {"segment": 1, "start": 2.0, "end": 3.25}],
        "text": "one two",
    }
    last = json.loads(read(tree, "merged/max=4/x/a/0001.json"))
    assert (last["start"], last["end"], last["parts"]) == (7.0, None, [{"segment": 2, "start": 7.0, "end": None}])


def test_a_corrupt_recording_has_a_size_and_a_reason(tmp_path: Path) -> None:
    broken = tmp_path / "a.mp3"
    broken.write_bytes(b"nonsense" * 99)
    tree = tree_of(tar_of(tmp_path, broken))
    for directory in ("segments/x/a", "merged/max=4/x/a"):
        for name, entry in files(tree, directory).items():
            assert tree.entry(entry.inode).size is None
            assert tree.resolve(f"{directory}/{name}").size is None
            with pytest.raises(FormatError, match="not a recording that can be sliced"):
                tree.content(entry.inode)


def test_a_flac_whose_header_has_no_length(tmp_path: Path) -> None:
    whole = decode_all(make(tmp_path, "a.flac", 16000, 1))
    data = bytearray((tmp_path / "a.flac").read_bytes())
    data[21:26] = bytes([data[21] & 0xF0, 0, 0, 0, 0])  # samples in STREAMINFO: unknown
    (tmp_path / "a.flac").write_bytes(data)
    tree = tree_of(tar_of(tmp_path, tmp_path / "a.flac"))
    flac = soundfile.read(io.BytesIO(read(tree, "segments/x/a/0001.wav")), dtype="int32")[0]
    assert np.array_equal(flac, whole[2 * 16000 : 52000, 0])


@pytest.mark.parametrize(
    ("form", "subtype", "bits"),
    [
        ("WAV", "PCM_U8", 8),
        ("WAV", "PCM_24", 24),
        ("WAVEX", "PCM_32", 32),
        ("RF64", "PCM_24", 24),
        ("WAV", "DOUBLE", 64),
    ],
)
def test_pcm_of_every_width_stays_where_it_is(tmp_path: Path, form: str, subtype: str, bits: int) -> None:
    recording = tmp_path / "a.wav"
    soundfile.write(recording, sound(8000, 2), 8000, subtype, format=form)
    tree = tree_of(tar_of(tmp_path, recording))
    listed = files(tree, "segments/x/a")
    assert [entry.size for entry in listed.values()] == [44 + seconds * bits // 4 for seconds in (8000, 10000, 16000)]
    assert tree.attributes(listed["0001.wav"].inode)["size"] == str(10000 * bits // 4)
    wanted, _ = soundfile.read(recording, dtype="float64")
    found, _ = soundfile.read(io.BytesIO(read(tree, "segments/x/a/0001.wav")), dtype="float64")
    assert np.array_equal(found, wanted[16000:26000])
    merged, _ = soundfile.read(io.BytesIO(read(tree, "merged/max=4/x/a/0000.wav")), dtype="float64")
    assert np.array_equal(merged, wanted[4000:26000])


def test_flac_keeps_its_24_bits(tmp_path: Path) -> None:
    recording = tmp_path / "a.flac"
    soundfile.write(recording, sound(8000, 1), 8000, "PCM_24")
    tree = tree_of(tar_of(tmp_path, recording))
    wanted, _ = soundfile.read(recording, dtype="int32")
    found, _ = soundfile.read(io.BytesIO(read(tree, "segments/x/a/0001.wav")), dtype="int32")
    assert np.array_equal(found, wanted[16000:26000])


def test_cuts_of_a_shar_that_declare_nothing(tmp_path: Path, media: Path) -> None:
    recording = coded(media, "a.mp3")
    (tmp_path / "shar").mkdir()
    supervision = {"id": "s", "start": 2, "duration": 1.25, "text": "x"}
    cut = {"id": "a", "start": 0, "duration": 9, "supervisions": [supervision]}
    (tmp_path / "shar" / "cuts.000000.jsonl").write_text(json.dumps(cut) + "\n")
    write_tar(tmp_path / "shar" / "recording.000000.tar", {"a.mp3": recording.read_bytes(), "a.json": b"{}"})
    tree = tree_of(tmp_path / "shar")
    path = f"segments/{tree.dataset.shards[0].name}/a/0000.wav"
    assert np.array_equal(decoded(read(tree, path)), to_16_bits(decode_all(recording)[88200:143325]))


def test_recordings_of_megatron_and_touchnet_are_measured_too(tmp_path: Path, media: Path) -> None:
    """An entry is a recording if its first bytes say so."""
    (tmp_path / "touch").mkdir()
    recording, uint8 = coded(media, "a.mp3").read_bytes(), np.dtype("u1")
    metainfo = json.dumps({"key": "a", "info": {"segments": SEGMENTS}})
    with TouchNetWriter(tmp_path / "touch" / "0", {"metainfo": uint8, "video": uint8}) as writer:
        writer.add({"metainfo": metainfo.encode(), "video": recording})
    tree = tree_of(tmp_path / "touch")
    assert [entry.size for entry in files(tree, "segments/0/a").values()] == [None] * 3
    whole = to_16_bits(decode_all(media / "a.mp3"))
    assert np.array_equal(decoded(read(tree, "segments/0/a/0001.wav")), whole[2 * 44100 : 143325])
