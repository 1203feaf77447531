"""Datasets of which a part is damaged: taking samples of them says so, and what would move positions is an error."""

import json
import logging
from pathlib import Path

import pytest
from tars import write_tar

import touchfs
from touchfs.core.errors import FormatError
from touchfs.indexing import open_dataset
from touchfs.node import LazyIndexedManifestIterator
from touchfs.sample_set import SampleSet

MEMBERS = {f"{number}.txt": b"text" for number in range(4)}


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """Two tars, one of which was cut after its second sample."""
    directory = tmp_path / "cut"
    write_tar(directory / "a.tar", MEMBERS)
    (directory / "b.tar").write_bytes((directory / "a.tar").read_bytes()[:2048])
    return directory


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return found


def test_errors_of_shards_are_one_line_in_the_log(cut: Path, caplog: pytest.LogCaptureFixture) -> None:
    line = f"{cut}: 1 of 2 shards with errors, 6 samples served: see `touchfs info {cut}`"
    with caplog.at_level(logging.WARNING):
        assert len(touchfs.open(cut)) == 6
        assert messages(caplog) == [line]
        assert len(SampleSet.from_file(cut, indexed=True)) == 6
        assert messages(caplog) == [line]
        dataset = open_dataset(str(cut))
        assert len(LazyIndexedManifestIterator(dataset)) == 6  # as iterators of a mount, which has said it
        assert messages(caplog) == []


def test_a_dataset_without_errors_is_silent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_tar(tmp_path / "a.tar", MEMBERS)
    write_tar(tmp_path / "empty.tar", {})
    with caplog.at_level(logging.WARNING):
        assert len(touchfs.open(tmp_path, strict=True)) == 4
    assert messages(caplog) == []


def test_strict_allows_no_errors(cut: Path) -> None:
    with pytest.raises(FormatError, match=r"1 shard with errors.*shard b: the archive has no end mark"):
        touchfs.open(cut, strict=True)


@pytest.mark.parametrize("junk", [b"junk\n", 1000 * b"junk\n"])
def test_a_tar_that_is_none_is_an_error_for_positions_only(junk: bytes, tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", MEMBERS)
    (tmp_path / "b.tar").write_bytes(junk)
    write_tar(tmp_path / "c.tar", MEMBERS)
    with pytest.raises(FormatError, match=r"b\.tar.*cannot be served.*\(at byte 0\)"):
        touchfs.open(tmp_path)
    with pytest.raises(FormatError, match=r"b\.tar: .*\(at byte 0\)"):
        list(SampleSet.from_file(tmp_path, indexed=False))
    dataset = open_dataset(str(tmp_path))
    assert [(shard.name, shard.samples, bool(shard.report)) for shard in dataset.shards] == [
        ("a", 4, False),
        ("b", 0, True),
        ("c", 4, False),
    ]


def test_a_file_that_cannot_be_decoded_is_an_error_that_names_its_sample(tmp_path: Path) -> None:
    spans = json.dumps({"segments": [{"start": 0.0, "end": 0.5}]}).encode()
    write_tar(tmp_path / "x.tar", {"talks/one.wav": b"RIFF\0\0\0\0WAVE", "talks/one.json": spans})
    segments = touchfs.open(tmp_path / "x.tar").segments()
    for read in (lambda: segments[0]["wav"], lambda: list(segments.map(dict)), lambda: segments.read("wav", [0])):
        with pytest.raises(FormatError, match=r"the WAV file ends before its data.* \(sample 'talks/one'\)$"):
            read()
