"""Compressed files of samples: they stay as they are, and their content is the sample's JSON, text and segments."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
import zstandard
from tars import write_tar

import touchfs
from touchfs.bulk.convert.job import convert
from touchfs.bulk.convert.touchnet import TouchTarget
from touchfs.core.errors import FormatError
from touchfs.indexing import open_dataset
from touchfs.limits import LIMITS
from touchfs.lists.content import list_pieces
from touchfs.lists.stored import open_lists

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": zstandard.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
}
JSON = {"lang": "en", "segments": [{"start": 0.5, "end": 1, "text": "good"}, {"start": 1, "end": 2, "text": "bye"}]}
SRT = b"1\n00:00:00,000 --> 00:00:01,000\nGood morning.\n"


def sound() -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.zeros(16000, np.int16), 8000, format="WAV")
    return file.getvalue()


@pytest.fixture(params=COMPRESS)
def suffix(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_their_content_is_that_of_the_sample(tmp_path: Path, suffix: str) -> None:
    compress = COMPRESS[suffix]
    stored = {f"json.{suffix}": compress(json.dumps(JSON).encode()), f"txt.{suffix}": compress(b"good bye")}
    members = {"a.wav": sound(), **{f"a.{name}": data for name, data in stored.items()}}
    members |= {"b.WAV": sound(), f"b.Whisper.SRT.{suffix.upper()}": compress(SRT), "c.gz": b"not compressed"}
    path = str(write_tar(tmp_path / "x.tar", members))
    samples = touchfs.open(path)
    first, second, third = samples
    assert (first.text, first.json(), first["wav"]) == ("good bye", JSON, members["a.wav"])
    assert {name: first[name] for name in stored} == stored
    assert (second.text, second.json_name, third["gz"]) == (None, None, b"not compressed")
    assert [sample.key for sample in samples.where('lang == "en" and text contains "bye"')] == ["a"]
    assert [(each.key, each.text) for each in samples.segments()] == [
        ("a", "good"),
        ("a", "bye"),
        ("b", "Good morning."),
    ]


def test_conversions_and_lists_read_them(tmp_path: Path, suffix: str) -> None:
    compress = COMPRESS[suffix]
    members = {
        "a.wav": sound(),
        f"a.json.{suffix}": compress(b'{"lang": "en"}'),
        f"a.txt.{suffix}": compress(b"good bye"),
    }
    path = str(write_tar(tmp_path / "x.tar", members))
    lists = open_lists(open_dataset(path))
    (recording,) = (
        json.loads(line) for line in b"".join(map(bytes, list_pieces(lists, "nemo_manifest.jsonl", ""))).splitlines()
    )
    assert recording["text"] == "good bye"
    convert(path, str(tmp_path / "touch"), TouchTarget())
    (sample,) = touchfs.open(tmp_path / "touch")
    assert (sample.text, sample.json()["lang"]) == ("good bye", "en")


def test_a_bomb_is_an_error(tmp_path: Path, suffix: str) -> None:
    bomb = COMPRESS[suffix](bytes(LIMITS.json + 1))
    cut = COMPRESS[suffix](b"{}" * 9)[:-9]
    members = {"a.wav": sound(), f"a.json.{suffix}": bomb, f"b.txt.{suffix}": bomb, f"c.json.{suffix}": cut}
    path = str(write_tar(tmp_path / "x.tar", members))
    first, second, third = touchfs.open(path)
    assert first[f"json.{suffix}"] == bomb
    for read, problem in (
        (first.json, f"its .json.{suffix}, decompressed, has over 16,000,000 bytes"),
        (lambda: second.text, f"its .txt.{suffix}, decompressed, has over 16,000,000 bytes"),
        (third.json, f"its .json.{suffix}: "),
    ):
        with pytest.raises(FormatError, match=problem) as caught:
            read()
        assert "\n" not in str(caught.value)
    report = open_dataset(path).shards[0].report_of_segments
    assert f"no segments are read from its json.{suffix}: its .json.{suffix}, decompressed, has over" in report
