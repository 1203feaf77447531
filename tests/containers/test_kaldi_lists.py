"""Segments from Kaldi's `segments`, `text` and `utt2spk` beside shards."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
import soundfile
from tars import write_tar

import touchfs
from touchfs.bulk.convert.job import convert
from touchfs.bulk.convert.tar import TarTarget
from touchfs.containers.lines import kaldi
from touchfs.containers.shar.write.writer import SharWriter
from touchfs.dataset.segments import SegmentSamples
from touchfs.indexing import open_dataset
from touchfs.shard.options import Options
from touchfs.source.scratch.store import DIRECTORY_VARIABLE

RATE = 8000
PCM = np.random.default_rng(0).integers(-(2**15), 2**15, (3, 2 * RATE), "<i2")
SEGMENTS = """\
u-10 talks/monday 1.0 2.0
u-2 talks/monday 0.25 0.5
v-1 b 0 -1
w-1 elsewhere 0 1
"""
TEXT = "u-10 good morning\nu-2 hello\nv-1\n"
SPEAKERS = "u-10 anna\nu-2 ben\n"


def recording(number: int, form: str = "WAV") -> bytes:
    file = io.BytesIO()
    soundfile.write(file, PCM[number], RATE, format=form)
    return file.getvalue()


def write_lists(
    directory: Path, segments: str = SEGMENTS, text: str | None = TEXT, speakers: str | None = SPEAKERS
) -> None:
    for name, content in (("segments", segments), ("text", text), ("utt2spk", speakers)):
        if content is not None:
            (directory / name).write_text(content)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Two tars of a directory, and Kaldi's lists."""
    (place := tmp_path / "data").mkdir()
    write_tar(place / "x.tar", {"talks/monday.wav": recording(0), "talks/monday.txt": b"a", "c.txt": b"no recording"})
    write_tar(place / "y.tar.gz", {"b.flac": recording(1, "FLAC")})
    write_lists(place)
    return place


def shown(path: Path, options: Options = Options()) -> dict[tuple[str, int], tuple[str | None, str | None, list[int]]]:  # noqa: B008
    """By key and number: text, speaker, samples."""
    return {
        (segment.key, segment.number): (
            segment.text,
            segment.json().get("speaker"),
            np.rint(segment.audio()[0] * 2**15).astype(int).tolist(),
        )
        for segment in SegmentSamples(open_dataset(str(path), options=options))
    }


EXPECTED = {
    ("talks/monday", 0): ("hello", "ben", PCM[0, 2000:4000].tolist()),
    ("talks/monday", 1): ("good morning", "anna", PCM[0, 8000:].tolist()),
    ("b", 0): ("", None, PCM[1].tolist()),
}


def test_of_all_shards_of_the_directory(place: Path) -> None:
    assert shown(place) == EXPECTED
    assert [shard.report for shard in open_dataset(str(place)).shards] == ["", ""]


def test_of_a_shar(tmp_path: Path) -> None:
    with SharWriter(tmp_path, {"recording": "wav"}, compress_jsonl=False) as writer:
        writer.write({"id": "talks/monday"}, {"recording": recording(0)})
        writer.write({"id": "b"}, {"recording": recording(1)})
    write_lists(tmp_path)
    assert shown(tmp_path) == EXPECTED
    dataset = open_dataset(str(tmp_path))
    assert (dataset.facts()["kind"], dataset.shards[0].report) == ("Lhotse Shar", "")


def test_cuts_without_fields_stay_json_lines(tmp_path: Path) -> None:
    (tmp_path / "cuts.jsonl").write_text('{"id": "a", "supervisions": []}\n')
    write_lists(tmp_path)
    dataset = open_dataset(str(tmp_path))
    assert (dataset.facts()["kind"], dataset.samples) == ("JSON lines", 1)


def test_text_and_speakers_may_be_missing(place: Path) -> None:
    (place / "text").unlink()
    (place / "utt2spk").unlink()
    assert {(text, speaker) for text, speaker, _ in shown(place).values()} == {(None, None)}
    (place / "segments").unlink()
    assert shown(place) == {}


def test_nothing_else_of_these_names_counts(place: Path) -> None:
    (place / "segments").unlink()
    (place / "segments").mkdir()
    assert shown(place) == {}
    assert [shard.report for shard in open_dataset(str(place)).shards] == ["", ""]


def test_its_place_among_the_rules(place: Path) -> None:
    own = json.dumps({"segments": [{"start": 0, "end": 0.5, "text": "own"}]}).encode()
    write_tar(place / "x.tar", {"talks/monday.wav": recording(0), "talks/monday.json": own})
    assert shown(place)["talks/monday", 0] == ("own", None, PCM[0, :4000].tolist())
    assert shown(place, Options(segments="kaldi")) == EXPECTED
    assert shown(place, Options(segments="srt")) == {}


@pytest.mark.parametrize("name", ["segments", "text", "utt2spk"])
def test_a_changed_list_is_noticed(place: Path, name: str) -> None:
    before = shown(place)
    path = place / name
    path.write_text(path.read_text().replace("u-2 ", "u-3 "))
    assert shown(place).keys() == before.keys()
    assert shown(place) != before
    path.write_text("")
    assert shown(place) != before


def test_keys_that_are_no_ids(tmp_path: Path) -> None:
    """A key with white space is quoted, as by `touchfs manifest`; and the last component of a path counts."""
    write_tar(tmp_path / "x.tar", {"a b.wav": recording(0), "deep/down/c.wav": recording(1)})
    write_lists(tmp_path, "1 a=20b 0 1\n2 c 0 1\n", None, None)
    assert [key for key, _ in shown(tmp_path)] == ["a b", "deep/down/c"]


@pytest.mark.parametrize(
    ("segments", "text", "problem"),
    [
        ("u a 0\n", None, "line 1: has 3 fields, not utterance, recording, start and end"),
        ("u a 0 x\n", None, "line 1: 'x' is not a time in seconds"),
        ("v a 0 1\nu a 0 1\n", None, "line 2: segments is not in order at 'u': sort the file with LC_ALL=C sort"),
        (
            "a a 0 1\nv a 0 1\n",
            "v x\na x\n",
            "line 2: text is not in order at 'a': sort the file with LC_ALL=C sort",
        ),
        ("u a 0 1\n" * 2, None, "line 2: segments is not in order at 'u'"),
        ("\0\udcff", None, "line 1: is not UTF-8"),
        ("u" * (2**20 + 1), None, "line 1: has over 1,048,576 characters"),
        ("".join(f"{i:03d} a 0 1\n" for i in range(11)), None, "there are over 10 lines"),
    ],
)
def test_what_cannot_be_read_is_a_line_for_each_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segments: str, text: str | None, problem: str
) -> None:
    monkeypatch.setattr(kaldi, "LINES_MAX", 10)
    write_tar(tmp_path / "x.tar", {f"{key}.wav": recording(0) for key in "abc"})
    (tmp_path / "segments").write_bytes(segments.encode(errors="surrogateescape"))
    if text is not None:
        (tmp_path / "text").write_text(text)
    for _ in range(2):
        (shard,) = open_dataset(str(tmp_path), force=True).shards
        assert (shard.samples, shard.damaged, shard.segments) == (3, 0, 0)
        assert shard.report_of_segments.count("are not read") == 1
        assert problem in shard.report_of_segments


def test_too_many_for_one_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kaldi, "SEGMENTS_MAX", 2)
    write_tar(tmp_path / "x.tar", {"a.wav": recording(0), "b.wav": recording(1)})
    write_lists(tmp_path, "1 a 0 1\n2 a 0 1\n3 a 0 1\n4 b 0 1\n", None, None)
    (shard,) = open_dataset(str(tmp_path)).shards
    assert "sample 0 ('a'): the lists beside it have more than 2 segments" in shard.report_of_segments
    assert shard.segments == 1


def test_the_lists_are_parsed_once_for_all_shards(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kaldi._open.cache_clear()
    parsed = []
    parse = kaldi.parse_segments
    monkeypatch.setattr(kaldi, "parse_segments", lambda *files: parsed.append(1) or parse(*files))
    for force in (False, True):
        kaldi._open.cache_clear()
        open_dataset(str(place), force=force)
    assert len(parsed) == 1


def test_without_a_scratch_store(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (place / "y.tar.gz").unlink()
    (place / "file").write_bytes(b"")
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(place / "file" / "scratch"))
    kaldi._open.cache_clear()
    assert shown(place) == {key: value for key, value in EXPECTED.items() if key[0] != "b"}
    assert "the index of lists is kept in memory" in caplog.text


def test_without_a_scratch_store_memory_is_bounded(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "y.tar.gz").unlink()
    (place / "file").write_bytes(b"")
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(place / "file" / "scratch"))
    monkeypatch.setattr(kaldi, "MEMORY_MAX", 100)
    kaldi._open.cache_clear()
    (shard,) = open_dataset(str(place), force=True).shards
    assert (shard.samples, shard.segments) == (2, 0)
    assert "are not read" in shard.report_of_segments
    assert "--scratch-dir" in shard.report_of_segments


@pytest.mark.usefixtures("as_root")
def test_lists_that_may_not_be_read_do_not_hide_the_shard(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where root serves data to others, a link is followed with the rights of its owner."""
    monkeypatch.setenv("TOUCHFS_GUARD_LINKS", "1")
    place.parent.chmod(0o755)
    secret = place.parent / "secret"
    secret.write_text(SEGMENTS)
    secret.chmod(0o600)
    (place / "segments").unlink()
    (place / "segments").symlink_to(secret)
    os.lchown(place / "segments", 12345, 12345)
    dataset = open_dataset(str(place))
    assert (dataset.samples, dataset.facts()["segments"]) == (3, 0)


def test_a_shard_that_is_a_link_has_the_lists_beside_the_link(place: Path) -> None:
    (linked := place.parent / "linked").mkdir()
    (linked / "x.tar").symlink_to(place / "x.tar")
    assert shown(linked) == {}
    write_lists(linked, "u talks/monday 0 1\n", None, None)
    assert [samples for _, _, samples in shown(linked).values()] == [PCM[0, :8000].tolist()]


def test_a_conversion_keeps_them(place: Path, tmp_path: Path) -> None:
    convert(str(place), str(tmp_path / "out"), TarTarget(10))
    assert shown(tmp_path / "out") == EXPECTED


def test_positions_of_samples_do_not_depend_on_them(place: Path) -> None:
    before = touchfs.open(str(place)).state_dict()
    os.truncate(place / "text", 0)
    touchfs.open(str(place)).load_state_dict(before)
