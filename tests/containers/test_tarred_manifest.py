"""Tars of NeMo with their manifest, `tarred_audio_manifest.json`, as NeMo's convert_to_tarred_audio_dataset.py writes
them: a recording with several entries is stored once, and its later entries are called `-sub1`, `-sub2`, ….
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from tars import write_tar

import touchfs
from touchfs.bulk.convert.job import convert
from touchfs.bulk.convert.tar import TarTarget
from touchfs.core.errors import FormatError
from touchfs.core.location import Location
from touchfs.indexing import open_dataset
from touchfs.registry.find import find, find_shards
from touchfs.shard.options import Options

RATE = 8000
TALK = np.random.default_rng(0).integers(-1000, 1000, 3 * RATE, "<i2")


def wav(pcm: Any) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, pcm, RATE, format="WAV")
    return file.getvalue()


def write_lines(path: Path, entries: list[dict[str, Any]]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Two tars that both have a part of one recording."""
    place, entries = tmp_path / "tarred", []
    for shard in range(2):
        write_tar(place / f"audio_{shard}.tar", {"a_talk.wav": wav(TALK), f"one{shard}.wav": wav(TALK[:RATE])})
        own = [
            {"audio_filepath": "a_talk-sub1.wav", "offset": 2.5, "duration": 0.25, "text": f"later {shard}"},
            {"audio_filepath": f"one{shard}.wav", "duration": 1.0, "text": f"whole {shard}"},
            {"audio_filepath": "a_talk.wav", "offset": shard, "duration": 1.0, "text": f"first {shard}", "lang": "en"},
        ]
        own = [{**each, "shard_id": shard} for each in own]
        write_lines(place / f"sharded_manifests/manifest_{shard}.json", own)
        entries += own
    write_lines(place / "tarred_audio_manifest.json", entries)
    return place


def shown(source: str) -> list[tuple[str, str, str | None, int, int]]:
    """The shard, the key, the text and the place in the recording of all segments."""
    found = []
    for each in touchfs.open(source).segments():
        told = each.json()["touchfs"]
        found.append((each.shard, each.key, each.text, told["offset"], told["length"]))
    return found


def test_entries_are_segments_of_their_recordings_in_their_tar(place: Path) -> None:
    assert shown(str(place)) == [
        row
        for shard in range(2)
        for row in (
            (f"audio_{shard}", "a_talk", f"first {shard}", shard * RATE, RATE),
            (f"audio_{shard}", "a_talk", f"later {shard}", int(2.5 * RATE), RATE // 4),
            (f"audio_{shard}", f"one{shard}", f"whole {shard}", 0, RATE),
        )
    ]
    assert not find(Location.of(str(place))).left_out
    sub = next(each for each in touchfs.open(str(place)).segments() if each.text == "later 1")
    assert np.rint(sub.audio()[0] * 2**15).astype(int).tolist() == TALK[int(2.5 * RATE) :][: RATE // 4].tolist()


def test_a_tar_alone_has_its_own_entries(place: Path) -> None:
    assert [text for _, _, text, _, _ in shown(str(place / "audio_1.tar"))] == ["first 1", "later 1", "whole 1"]
    names = f"{place}/audio__OP_0..1_CL_.tar"  # as NeMo names them
    assert shown(names) == shown(str(place))


def test_a_changed_manifest_is_noticed(place: Path) -> None:
    assert len(shown(str(place))) == 6
    manifest = place / "tarred_audio_manifest.json"
    lines = manifest.read_text().splitlines()
    manifest.write_text("\n".join([*lines, lines[0].replace("2.5", "2.75").replace("later", "last")]))
    assert [text for _, key, text, _, _ in shown(str(place)) if key == "a_talk"][:3] == ["first 0", "later 0", "last 0"]


def test_the_manifest_itself_says_what_to_name(place: Path) -> None:
    with pytest.raises(FormatError, match=f"is the manifest of the tars beside it: name their directory, {place}$"):
        find_shards(str(place / "tarred_audio_manifest.json"))


def test_a_damaged_manifest_is_told_and_the_recordings_are_served(place: Path) -> None:
    (place / "tarred_audio_manifest.json").write_text('{"audio_filepath": 1}\n')
    dataset = open_dataset(str(place))
    told = "the lists beside it (tarred_audio_manifest.json) are not read: line 1: int is not a path"
    assert all(told in shard.report_of_segments for shard in dataset.shards)
    assert [shard.samples for shard in dataset.shards] == [2, 2]


def test_a_converted_set_keeps_the_whole_recordings_and_their_segments(place: Path, tmp_path: Path) -> None:
    convert(str(place), str(tmp_path / "converted"), TarTarget(samples_per_shard=2))
    assert [row[1:] for row in shown(str(tmp_path / "converted"))] == [row[1:] for row in shown(str(place))]


def test_no_rule_but_that_of_nemo_reads_it(place: Path) -> None:
    for rule, count in (("nemo", 3), ("kaldi", 0), ("line", 0), ("none", 0)):
        dataset = open_dataset(str(place), options=Options(segments=rule))
        assert [shard.segments for shard in dataset.shards] == [count, count]
