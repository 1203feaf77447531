"""`full`: lengths of recordings that no header has are found when a dataset is indexed, once."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from recordings import SECONDS, make
from tars import write_tar

from touchfs.catalog.catalog import Catalog
from touchfs.core.errors import ChangedError
from touchfs.dataset import Dataset
from touchfs.indexing import open_dataset
from touchfs.open_dataset import open as open_samples
from touchfs.tree.tree import Tree

SEGMENTS = json.dumps({"segments": [{"start": 1, "end": 2.5, "text": "x"}, {"start": 8, "end": 99}]}).encode()


@pytest.fixture(scope="module")
def coded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("coded")


@pytest.fixture
def tars(tmp_path: Path, coded: Path) -> Path:
    """Two tars: of an MP3 with segments and an Opus without, and of a WAV."""
    mp3, opus = make(coded, "a.mp3", 44100, 1), make(coded, "b.opus", 48000, 2, "-c:a", "libopus")
    wav = make(coded, "c.wav", 8000, 1)
    (tmp_path / "tars").mkdir()
    members = {"a.mp3": mp3.read_bytes(), "a.json": SEGMENTS, "b.opus": opus.read_bytes()}
    write_tar(tmp_path / "tars" / "x.tar", members)
    write_tar(tmp_path / "tars" / "y.tar", {"c.wav": wav.read_bytes(), "c.json": SEGMENTS})
    return tmp_path / "tars"


def open_now(source: Path, *, full: bool = False) -> tuple[Dataset, list[str]]:
    """The dataset, and the names of the shards that were indexed now."""
    indexed: list[str] = []
    dataset = open_dataset(str(source), full=full, indexed_now=indexed.append)
    return dataset, [Path(path).name for path in indexed]


def test_a_full_index_is_made_once(tars: Path) -> None:
    before, indexed = open_now(tars)
    assert indexed == ["x.tar", "y.tar"]
    assert (before.timed, before.facts()["samples_of_unknown_duration"]) == (1, 2)
    full, indexed = open_now(tars, full=True)
    assert indexed == ["x.tar"], "nothing of the other shard is unknown"
    assert full.timed == 3
    assert full.seconds == pytest.approx(3 * SECONDS, abs=0.1)
    assert open_now(tars, full=True)[1] == []
    again, indexed = open_now(tars)
    assert (indexed, again.timed, again.seconds) == ([], 3, full.seconds)
    kinds = Catalog(again.shards[0].catalog).kinds
    assert "unmeasured" not in {kind.form for kind in kinds}
    assert {kind.rate for kind in kinds if kind.field in ("mp3", "opus") and kind.form == "bytes"} == {44100, 48000}


def test_inodes_and_catalogs_of_before_are_of_another_shard(tars: Path) -> None:
    before, _ = open_now(tars)
    full, _ = open_now(tars, full=True)
    assert [one.identity == other.identity for one, other in zip(before.shards, full.shards, strict=True)] == [
        False,
        True,
    ]
    with pytest.raises(ChangedError, match="its catalog was rebuilt"):
        before.catalog(0)


def test_a_shard_that_changes_is_measured_again(tars: Path, coded: Path) -> None:
    open_now(tars, full=True)
    write_tar(tars / "x.tar", {"a.mp3": (coded / "a.mp3").read_bytes(), "a.json": SEGMENTS})
    dataset, indexed = open_now(tars)
    assert (indexed, dataset.timed) == (["x.tar"], 1)
    assert open_now(tars, full=True)[0].timed == 2


def test_a_recording_that_cannot_be_decoded_is_reported_once(tmp_path: Path, coded: Path) -> None:
    good = make(coded, "a.mp3", 44100, 1).read_bytes()
    members = {"a.mp3": b"nonsense" * 99, "a.json": SEGMENTS, "b.mp3": good, "b.json": SEGMENTS}
    path = write_tar(tmp_path / "x.tar", members)
    dataset, _ = open_now(path, full=True)
    assert (dataset.timed, dataset.samples) == (1, 2)
    assert (
        "sample 0 ('a'): its recording cannot be decoded: not a recording that can be sliced"
        in dataset.shards[0].report
    )
    tree = Tree(dataset, [1])
    names = [name for name, _, _ in tree.entries(tree.resolve("segments/x/a").inode)]
    assert names == [b"0000.json", b"0000.txt", b"0001.json"]
    content = tree.content(tree.resolve("segments/x/a/0000.json").inode)
    reason = json.loads(bytes(content.read(0, content.size)))["touchfs"]["problem"]
    assert reason == "its recording cannot be decoded: ERROR.txt of its shard says why"
    assert tree.attributes(tree.resolve("shards/x/a.mp3").inode)["reason"] == reason
    assert list(tree.entries(tree.resolve("merged/max=30/x/a").inode)) == []
    assert open_now(path, full=True)[1] == [], "the next time finds no more"


def test_durations_of_samples_and_segments(tars: Path) -> None:
    """Of a segment the recording is read; of a sample only a full index knows the duration."""
    for is_full in (False, True):
        open_now(tars, full=is_full)
        samples = open_samples(str(tars))
        assert [sample.known_duration is not None for sample in samples] == [is_full, is_full, True]
        segments = list(samples.segments())
        assert [segment.duration for segment in segments] == [
            1.5,
            pytest.approx(SECONDS - 8, abs=0.1),
            1.5,
            SECONDS - 8,
        ]
        audio, rate = segments[0].audio()
        assert (audio.shape, rate) == ((round(1.5 * 44100),), 44100)
        copy = pickle.loads(pickle.dumps(segments[0]))
        assert copy == segments[0]
        assert copy["wav"] == segments[0]["wav"]
        assert copy.duration == 1.5


def test_samples_of_another_process(tars: Path) -> None:
    """An open dataset is pickled, and segments are read there."""
    segments = open_samples(str(tars)).segments()
    again = pickle.loads(pickle.dumps(segments))
    assert [sample["wav"] for sample in again] == [sample["wav"] for sample in segments]


def test_segments_are_the_same_as_before(tmp_path: Path) -> None:
    """Whatever rule rounds their times: TouchNet's, Lhotse's or that of all others."""
    times = [(i * 0.07, i * 0.07 + 0.0531) for i in range(40)]
    pairs = [{"start": start, "end": end} for start, end in times]
    lasting = [{"start": start, "duration": end - start} for start, end in times]
    recording = make(tmp_path, "a.mp3", 22050, 1).read_bytes()
    for metainfo in (
        {"info": {"segments": pairs}},
        {"id": "a", "start": 0.0101, "duration": 6.5, "supervisions": lasting},
        {"segments": [*lasting, *pairs]},
    ):
        path = write_tar(tmp_path / "x.tar", {"a.mp3": recording, "a.json": json.dumps(metainfo).encode()})
        before = wavs(Tree(open_now(path)[0], [1]))
        assert len(before) > 44
        assert wavs(Tree(open_now(path, full=True)[0], [1])) == before


def wavs(tree: Tree) -> dict[str, bytes]:
    """The segments and merged segments of a sample."""
    found = {}
    for directory in ("segments/x/a", "merged/max=0.5,gap=0.1/x/a"):
        for name, entry, _ in tree.entries(tree.resolve(directory).inode):
            if name.endswith(b".wav"):
                content = tree.content(entry.inode)
                found[f"{directory}/{name.decode()}"] = bytes(content.read(0, content.size))
                assert tree.entry(entry.inode).size == content.size
    return found
