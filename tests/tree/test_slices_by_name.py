"""`slices/`: a span of a recording, named by nothing but its times, is what a full decode has there."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from recordings import make
from tars import add, write_tar
from touchnet import write_speech
from tree_files import read

from touchfs.core.errors import ChangedError, FormatError, FullError, NotFoundError, UsageError
from touchfs.indexing import open_dataset
from touchfs.tree.inode import ROOT, pack, unpack
from touchfs.tree.open_shards import WouldBlockError
from touchfs.tree.slice_numbers import LocalNumbers, Record
from touchfs.tree.tree import Tree
from touchfs.write import SharWriter

RATE = 8000
SUBTYPES = [("wav", "PCM_16"), ("wav", "PCM_24"), ("wav", "FLOAT"), ("flac", "PCM_16"), ("flac", "PCM_24")]


def noise(count: int, channels: int = 1, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(-(2**31), 2**31, (count, channels), "<i4")


def recording(extension: str, subtype: str, samples: np.ndarray[Any, Any], rate: int = RATE) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, subtype, format=extension)
    return file.getvalue()


def opened(place: Path, **options: Any) -> Tree:
    dataset = open_dataset(os.fspath(place), in_place=True)
    return Tree(dataset, range(1, len(dataset.shards) + 1), **options)


def samples_of(data: bytes, dtype: str = "int32") -> np.ndarray[Any, Any]:
    samples: np.ndarray[Any, Any] = soundfile.read(io.BytesIO(data), dtype=dtype, always_2d=True)[0]
    return samples


def listed(tree: Tree, directory: str) -> list[str]:
    return sorted(os.fsdecode(name) for name, _, _ in tree.entries(tree.resolve(directory).inode))


FLAC = recording("flac", "PCM_16", noise(9))


@pytest.fixture(scope="module", params=SUBTYPES, ids="-".join)
def coded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tree, bytes]:
    """A tree over a tar with one recording of 2 channels, and the recording."""
    tmp_path = tmp_path_factory.mktemp("coded")
    data = recording(*request.param, noise(3 * RATE, 2))
    write_tar(tmp_path / "s.tar", {f"a/b.{request.param[0]}": data, "a/b.txt": b"text"})
    return opened(tmp_path / "s.tar"), data


@pytest.mark.parametrize(
    ("span", "first", "last"),
    [
        ("1-2", RATE, 2 * RATE),
        ("0.5-0.75", RATE // 2, RATE * 3 // 4),
        ("0.00006-0.00007", 0, 1),
        ("7s-15009s", 7, 15009),
        ("2.9-100", RATE * 29 // 10, 3 * RATE),
        ("3-4", 3 * RATE, 3 * RATE),
        ("99s-1000000s", 99, 3 * RATE),
        ("all", 0, 3 * RATE),
    ],
)
def test_a_slice_is_the_samples_of_the_full_decode(coded: tuple[Tree, bytes], span: str, first: int, last: int) -> None:
    tree, data = coded
    found = read(tree, f"slices/{span}/s/a/b.wav")
    assert (samples_of(found) == samples_of(data)[first:last]).all()
    told, expected = soundfile.info(io.BytesIO(found)), soundfile.info(io.BytesIO(data))
    assert (told.samplerate, told.channels, told.frames) == (RATE, 2, last - first)
    assert (told.subtype, told.format.startswith("WAV")) == (expected.subtype, True)


@pytest.mark.parametrize("full", [pytest.param(False, marks=pytest.mark.variant), True])
@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.mp3", "a.opus", "a.m4a"])
def test_a_slice_is_the_segment_of_the_same_times(tmp_path: Path, name: str, full: bool) -> None:
    data = make(tmp_path, name, 48000, 2, *(["-c:a", "libopus"] if name == "a.opus" else [])).read_bytes()
    segments = {"segments": [{"start": 0.5, "end": 1.50003}, {"start": 8, "end": 99}]}
    write_tar(tmp_path / "s.tar", {f"x/{name}": data, "x/a.json": json.dumps(segments).encode()})
    dataset = open_dataset(os.fspath(tmp_path / "s.tar"), in_place=True, full=full)
    tree = Tree(dataset, [1])
    assert listed(tree, "slices/all/s/x") == ["a.wav"]
    for number, span in enumerate(("0.5-1.50003", "8-99")):
        assert read(tree, f"slices/{span}/s/x/a.wav") == read(tree, f"segments/s/x/a/{number:04d}.wav")
    rate = soundfile.info(io.BytesIO(read(tree, "slices/all/s/x/a.wav"))).samplerate
    assert read(tree, f"slices/{rate}s-{2 * rate}s/s/x/a.wav") == read(tree, "slices/1-2/s/x/a.wav")


def test_touchnet_and_shar(tmp_path: Path) -> None:
    samples = (noise(2 * RATE)[:, 0] >> 16).astype("<i2")
    write_speech(tmp_path / "touch" / "s", [({"key": "x/y", "sample_rate": RATE}, samples.tobytes())])
    with SharWriter(tmp_path / "shar", {"recording": "flac"}, compress_jsonl=False) as writer:
        cut = {"id": "c", "recording_id": "c", "start": 0, "duration": 2, "channel": 0, "type": "MonoCut"}
        writer.write(cut, {"recording": recording("flac", "PCM_16", samples)})
    for kind, path in (("touch", "s/x/y"), ("shar", "000000/c")):
        tree = opened(tmp_path / kind)
        shard = tree.dataset.shards[0].name
        path = f"{shard}/{path.partition('/')[2]}.wav"
        for span, first, last in (("0.25-1", RATE // 4, RATE), ("5s-6s", 5, 6), ("all", 0, None)):
            found = samples_of(read(tree, f"slices/{span}/{path}"), "int16")[:, 0]
            assert (found == samples[first:last]).all()
        assert listed(tree, f"slices/all/{os.path.dirname(path)}") == [os.path.basename(path)]


def test_names_are_links_to_the_canonical_one_and_nothing_is_listed(coded: tuple[Tree, bytes]) -> None:
    tree, _ = coded
    slices = tree.resolve("slices").inode
    canonical = tree.find(slices, b"1.5-2")
    link = tree.find(slices, b"1.50-2.0")
    assert canonical is not None and canonical.is_directory and tree.parent(canonical.inode) == slices
    assert link is not None and link.is_link and tree.entry(link.inode) == link
    assert tree.link(link.inode) == b"1.5-2" and link.size == 5
    assert tree.resolve("slices/1.50-2.0/s/a/b.wav") == tree.resolve("slices/1.5-2/s/a/b.wav")
    for directory in ("slices", "slices/1.5-2", "slices/1.5-2/s", "slices/1.5-2/s/a"):
        assert listed(tree, directory) == []
    assert listed(tree, "slices/all") == ["s"]
    assert listed(tree, "slices/all/s") == ["a"]
    assert listed(tree, "slices/all/s/a") == ["b.wav"]
    for ask in (lambda i: tree.find(i, b"s"), tree.link):
        with pytest.raises((ChangedError, UsageError)):
            ask(tree.resolve("slices/1.5-2/s/a/b.wav").inode)
            raise UsageError("a file has no entries")


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("12.5s", "'12.5s' is no span: write seconds as 12.5-17.25"),
        ("2-1/s/a/b.wav", "does not end after its start"),
        ("0-99999999999", "is no span"),
        ("nan-1", "is no span"),
        ("1-2/t", "there is no 't' in /slices/1-2"),
        ("1-2/s/a/b.flac", "there is no 'b.flac'"),
        ("1-2/s/a/b.txt", "there is no 'b.txt'"),
        ("1-2/s/a/b.wav/x", "is a file"),
        ("all/s/a/.wav", "there is no '.wav'"),
        ("ALL", "is no span"),
    ],
)
def test_what_is_not_there_has_a_reason(tmp_path: Path, path: str, problem: str) -> None:
    write_tar(tmp_path / "s.tar", {"a/b.flac": recording("flac", "PCM_16", noise(9)), "a/b.txt": b""})
    with pytest.raises(NotFoundError, match=problem):
        opened(tmp_path / "s.tar").resolve(f"slices/{path}")


def test_numbers_of_repeated_keys_and_names_that_clash(tmp_path: Path) -> None:
    sounds = {f"r{i}": recording("flac", "PCM_16", noise(10 + i, seed=i)) for i in range(6)}
    lengths = {name: 10 + i for i, name in enumerate(sounds)}
    members = [
        ("b.flac", "r0"),
        ("b.json", None),
        ("b.flac", "r1"),  # another sample with the same key
        ("b~2.wav", "r2"),  # a key that looks like the second
        ("c.flac", "r3"),
        ("c.wav/x.flac", "r4"),
        ("c%~2.flac", "r5"),
    ]
    with tarfile.open(tmp_path / "s.tar", "w") as tar:
        for name, sound in members:
            add(tar, name, b"{}" if sound is None else sounds[sound])
    tree = opened(tmp_path / "s.tar")
    names = listed(tree, "slices/all/s")
    assert len(names) == len(set(names)) == 6
    found = {}
    for name in [*names, "c.wav/x.wav"]:
        if name != "c.wav":
            frames = len(samples_of(read(tree, f"slices/all/s/{name}")))
            assert frames == len(samples_of(read(tree, f"slices/0-9/s/{name}")))
            found[name] = next(sound for sound, length in lengths.items() if length == frames)
    assert sorted(found.values()) == sorted(lengths)
    assert (found["b.wav"], found["c.wav/x.wav"], found["c%~2.wav"]) == ("r0", "r4", "r3")


def test_the_first_recording_whose_length_is_known_counts(tmp_path: Path) -> None:
    sounds = [recording(kind, "PCM_16", noise(length)) for kind, length in (("wav", 5), ("flac", 6))]
    write_tar(tmp_path / "s.tar", {"a.json": b"{}", "a.left.wav": sounds[0], "a.right.flac": sounds[1]})
    tree = opened(tmp_path / "s.tar")
    assert listed(tree, "slices/all/s") == ["a.wav"]
    assert len(samples_of(read(tree, "slices/all/s/a.wav"))) == 5


def test_a_dataset_without_recordings_has_no_slices(tmp_path: Path) -> None:
    write_tar(tmp_path / "s.tar", {"a.txt": b"text", "a.json": b"{}"})
    tree = opened(tmp_path / "s.tar")
    assert "slices" not in listed(tree, "")
    with pytest.raises(NotFoundError, match="there is no 'slices' in /"):
        tree.resolve("slices/1-2")
    with pytest.raises(ChangedError):
        tree.entry(pack(5, 0, 0))


def test_a_listing_reads_no_recording(tmp_path: Path) -> None:
    write_tar(tmp_path / "s.tar", {"a.flac": FLAC, "b.wav": recording("wav", "PCM_16", noise(4))})
    tree = opened(tmp_path / "s.tar")
    directory = tree.resolve("slices/all/s").inode
    assert [entry.size for _, entry, _ in tree.entries(directory)] == [None, None]
    sizes = [tree.entry(entry.inode).size for _, entry, _ in tree.entries(directory)]
    assert sizes == [44 + 2 * 9, 44 + 2 * 4]
    assert [entry.size for _, entry, _ in tree.entries(directory)] == sizes


def test_a_recording_that_cannot_be_read_has_no_size_and_opening_it_says_why(tmp_path: Path) -> None:
    write_tar(tmp_path / "s.tar", {"a.flac": b"not audio", "b.wav": recording("wav", "PCM_16", noise(4))})
    tree = opened(tmp_path / "s.tar")
    assert listed(tree, "slices/all/s") == ["a.wav", "b.wav"]
    entry = tree.resolve("slices/1-2/s/a.wav")
    assert entry.size is None
    with pytest.raises(FormatError, match=r"s\.tar"):
        tree.content(entry.inode)


def test_attributes_and_paths(coded: tuple[Tree, bytes]) -> None:
    tree, _ = coded
    for span in ("0.5-1", "3s-4s", "all"):
        entry = tree.resolve(f"slices/{span}/s/a/b.wav")
        attributes = tree.attributes(entry.inode)
        assert (attributes["key"], attributes["shard"], attributes["slice"]) == ("a/b", "s", span)
        assert tree.path(entry.inode) == f"slices/{span}/s/a/b.wav"
        assert tree.attributes(tree.parent(tree.resolve(f"slices/{span}/s/a").inode)) == {}
        assert unpack(entry.inode)[1] == 1, "the shard is in the inode number: who may read it is known by that"
        above = tree.resolve(f"slices/{span}/s/a").inode
        path = []
        while above != ROOT:
            path.append(tree.path(above))
            above = tree.parent(above)
        assert path == [f"slices/{span}/s/a", f"slices/{span}/s", f"slices/{span}", "slices"]


def test_numbers_of_nobody(coded: tuple[Tree, bytes]) -> None:
    tree, _ = coded
    inode = tree.resolve("slices/1-2/s/a/b.wav").inode
    text = pack(7, *unpack(tree.resolve("shards/s/a/b.txt").inode)[1:])
    for number in (inode + 1, inode + (1 << 32), pack(5, 0, 99), pack(7, 0, 1), pack(7, 1, 9999), text):
        for ask in (tree.entry, tree.content, tree.parent, tree.attributes, tree.link, lambda i: tree.find(i, b"a")):
            with pytest.raises(ChangedError):
                ask(number)
        with pytest.raises(ChangedError):
            list(tree.entries(number))


class Busy(LocalNumbers):
    """Another process is always adding something."""

    def add_nowait(self, record: Record, *, is_guest: bool = False) -> None: ...


def test_a_thread_that_must_not_block_reads_no_recording_and_waits_for_nobody(coded: tuple[Tree, bytes]) -> None:
    for numbers in (LocalNumbers(), Busy()):
        data = write_tar(Path(coded[0].dataset.source).with_name(f"{type(numbers).__name__}.tar"), {"b.flac": FLAC})
        dataset = open_dataset(os.fspath(data), in_place=True)
        tree = Tree(dataset, [1], numbers=numbers)
        fast, path = tree.nonblocking, f"{data.stem}/b.wav"
        tree.resolve("shards/" + path.replace("wav", "flac"))
        with pytest.raises(WouldBlockError):
            fast.resolve(f"slices/1-2/{path}")
        with pytest.raises(WouldBlockError):
            fast.resolve(f"slices/all/{path}")
        entry = tree.resolve(f"slices/1-2/{path}")
        assert fast.resolve(f"slices/1-2/{path}") == fast.entry(entry.inode) == entry
        assert fast.content(entry.inode).size == entry.size


def test_guests_may_look_up_a_part(coded: tuple[Tree, bytes]) -> None:
    class Numbers(LocalNumbers):
        def add(self, record: Record, *, is_guest: bool = False) -> int:
            if is_guest:
                raise FullError("full")
            return super().add(record)

    tree = Tree(coded[0].dataset, [1], numbers=Numbers())
    slices = tree.resolve("slices").inode
    with pytest.raises(FullError):
        tree.find(slices, b"1-2", is_guest=True)
    span = tree.resolve("slices/1-2")
    assert tree.find(slices, b"1-2", is_guest=True) == span
    with pytest.raises(FullError):
        tree.find(span.inode, b"s", is_guest=True)
    whole = tree.find(slices, b"all", is_guest=True)
    assert whole is not None and tree.find(whole.inode, b"s", is_guest=True) is not None


def test_json_lines_are_no_recordings(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text(json.dumps({"id": "a", "text": "x"}) + "\n")
    assert "slices" not in listed(opened(tmp_path / "s.jsonl"), "")
