"""Shards of one kind become shards of another, and these the first again: same keys, audio, texts and segments."""

from __future__ import annotations

import io
import json
import os
import signal
import tarfile
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from killed import FORK
from memory import growth
from tars import write_tar

from touchfs.bulk.convert.job import ConvertReport, convert
from touchfs.bulk.convert.names import Names, quote_key
from touchfs.bulk.convert.shar import SharTarget
from touchfs.bulk.convert.tar import TarTarget
from touchfs.bulk.convert.target import Target
from touchfs.bulk.convert.touchnet import TouchTarget
from touchfs.bulk.tables.job import pack_table
from touchfs.bulk.tables.writers import TableSettings
from touchfs.containers.shar.write.writer import SharWriter
from touchfs.containers.tar.samples import split_name
from touchfs.containers.touchnet.writer import TouchNetWriter
from touchfs.core.errors import FormatError, NotFoundError, SourceError, TouchfsError, UsageError
from touchfs.format import wav
from touchfs.format.idx import offsets
from touchfs.format.metainfo import TouchNetSegment
from touchfs.indexing import open_dataset
from touchfs.registry.find import find_shards
from touchfs.registry.open import open_shard
from touchfs.shard.options import LAST_DOT, Options

MODALITIES = {"audio": np.dtype("<i2"), "metainfo": np.dtype("u1")}
KEYS = ["talks/monday", "a.b", "d.d/a.b.c", "x", "x", "x~2", "__m__/k", "50%2Eb", "目录/录音 1", ".hidden", "7"]

Described = tuple[str, int, bytes, str | None, list[tuple[Decimal, Decimal, str | None]]]


def pcm(count: int) -> bytes:
    return np.random.default_rng(count).bytes(2 * count)


def metainfo(number: int, key: str) -> dict[str, object]:
    """Fields of every kind, times that binary fractions do not hit, and a sample without segments."""
    segments = [
        {"start": 0.1, "end": 0.3, "txt": "你好", "speaker": "A", "whisper": "你 好"},
        {"start": "0.30", "end": 0.7, "text": "b"},
        {"start": 0.7, "end": -1},
    ]
    told: dict[str, object] = {"key": key, "wav": f"{number}.wav", "txt": f"text {number} ü", "sample_rate": 8000}
    if number % 3:
        told["info"] = {"segments": segments[: number % 3 + 1], "duration": 1.50}
    if number % 4 == 0:
        del told["txt"]
    return told


@pytest.fixture
def touch(tmp_path: Path) -> Path:
    """Eleven samples in shards of four."""
    source = tmp_path / "touch"
    source.mkdir()
    for first in range(0, len(KEYS), 4):
        with TouchNetWriter(source / f"{first // 4:09d}", MODALITIES) as writer:
            for number, key in enumerate(KEYS[first : first + 4], first):
                told = json.dumps(metainfo(number, key), ensure_ascii=False, indent=number % 2 or None).encode()
                writer.add({"audio": pcm(8000 + number), "metainfo": told})
    return source


def described(source: Path, options: Options = Options()) -> list[Described]:  # noqa: B008
    """Key, rate, PCM, text and segments of each sample of TouchNet shards."""
    found: list[Described] = []
    for path in find_shards(str(source)):
        shard = open_shard(path, options)
        for sample in shard:
            field = sample.fields["audio"]
            with open(Path(path, field.source), "rb") as file:
                file.seek(field.offset)
                audio = file.read(field.size)
            stored = map(TouchNetSegment.of, sample.metainfo.fields.get("info", {}).get("segments", ()))
            segments = [(Decimal(str(s.start)), Decimal(str(s.end)), s.text) for s in stored]
            found.append((sample.key, sample.metainfo.rate or 0, audio, sample.metainfo.text, segments))
        shard.close()
    return found


def stored(source: Path) -> bytes:
    """The metainfo of all samples, end to end."""
    return b"".join(Path(path, "metainfo.bin").read_bytes() for path in find_shards(str(source)))


def members(path: Path) -> list[str]:
    with tarfile.open(path) as tar:
        return tar.getnames()


def wav_of(samples: bytes, rate: int = 16000) -> bytes:
    return wav.build_header(len(samples), rate) + samples


@pytest.mark.parametrize("between", [[TarTarget(3)], [SharTarget(3)], [TarTarget(5), SharTarget(2), TarTarget(4)]])
def test_there_and_back(touch: Path, between: Sequence[Target]) -> None:
    source = touch
    for step, target in enumerate([*between, TouchTarget(4)]):
        output = touch.parent / f"step{step}"
        report = convert(str(source), str(output), target)
        assert report.samples == len(KEYS)
        assert report.skipped == 0
        source = output
    assert report.shards == 3
    assert [key for key, *_ in described(touch)] == KEYS
    assert described(source) == described(touch)
    assert (source / "data.list").read_text() == "".join(f"{source}/{n:09d} audio+metainfo\n" for n in range(3))


def test_the_metainfo_is_copied(touch: Path) -> None:
    convert(str(touch), str(touch.parent / "tar"), TarTarget())
    convert(str(touch.parent / "tar"), str(touch.parent / "back"), TouchTarget(4))
    assert stored(touch.parent / "back") == stored(touch)


def test_names_in_a_tar(touch: Path) -> None:
    output = touch.parent / "tar"
    assert convert(str(touch), str(output), TarTarget(samples_per_shard=7)) == ConvertReport(2, 11, 0)
    keys = list(dict.fromkeys(split_name(name)[0] for name in members(output / "000000.tar")))
    assert keys == ["talks/monday", "a%2Eb", "d.d/a%2Eb%2Ec", "x", "x~2", "x~2~2", "%5F_m__/k"]
    names = members(output / "000001.tar")
    assert names[:5] == ["50%2Eb.wav", "50%2Eb.json", "50%2Eb.txt", "目录/录音 1.wav", "目录/录音 1.json"]
    assert names[-3:] == ["7.wav", "7.json", "7.txt"]
    assert "%2Ehidden.txt" in names


KEY = st.text(st.sampled_from("ab.~%2E/_\n\0\x7f") | st.characters(), max_size=12)


@given(KEY)
def test_a_quoted_key_is_one_to_readers_and_tells_the_key(key: str) -> None:
    name = quote_key(key)
    assert split_name(f"{name}.wav") == (name, "wav")
    assert not {"", ".", ".."} & set(name.split("/"))
    name.encode()
    assert quote_key(name) == name
    if key and "/" not in key and "%" not in key and not any("\ud800" <= c <= "\udfff" for c in key):
        assert unquote(name) == key


def test_a_tar_of_a_tar_has_the_same_names(touch: Path) -> None:
    """Also without JSON that tells the keys, and if it is divided otherwise."""
    first, second, third = (str(touch.parent / name) for name in ("first", "second", "third"))
    convert(str(touch), first, TarTarget(), leave_out=["json"])
    convert(first, second, TarTarget(4))
    convert(second, third, TarTarget())
    names = members(Path(first, "000000.tar"))
    assert {"x~2.wav", "x~2~2.wav", "50%2Eb.wav"} < set(names)
    assert members(Path(third, "000000.tar")) == names
    assert [name for tar in sorted(Path(second).iterdir()) for name in members(tar)] == names


@given(st.lists(KEY, max_size=20))
def test_no_two_samples_have_one_name(keys: list[str]) -> None:
    names = Names()
    made = []
    for key in [*keys, *keys[:5], *(f"{key}~2" for key in keys[:5])]:
        made.append(names.name(key))
        names.written(key, made[-1])
    assert len(set(made)) == len(made)


def test_shards_of_some_size_and_their_index(touch: Path) -> None:
    output = touch.parent / "tar"
    convert(str(touch), str(output), TarTarget(None, bytes_per_shard=40_000, create_index=True))
    tars = sorted(path.name for path in output.glob("*.tar"))
    assert tars == [f"{number:06d}.tar" for number in range(len(tars))]
    assert len(tars) == 4
    for path in output.glob("*.tar"):
        index = offsets.parse(Path(f"{path}.idx").read_bytes(), path.stat().st_size)
        assert len(index) - 1 == len({split_name(name)[0] for name in members(path)})


def test_segments_of_a_cut_become_metainfo(tmp_path: Path) -> None:
    """Times as they are written in decimal; values of the cut beside them."""
    with SharWriter(tmp_path / "shar", {"recording": "wav", "lang": "jsonl"}, compress_jsonl=False) as writer:
        supervisions = [
            {"id": "s0", "recording_id": "c", "start": 0.1, "duration": 0.2, "channel": 0, "text": "a", "speaker": "A"},
            {"id": "s1", "recording_id": "c", "start": 0.3, "duration": 0.6, "channel": 0, "custom": {"x": [1]}},
        ]
        cut = {"id": "a/c.1", "supervisions": supervisions, "custom": {"snr": 1.5}}
        writer.write(cut, {"recording": wav_of(pcm(16000)), "lang": "zh"})
    convert(str(tmp_path / "shar"), str(tmp_path / "out"), TouchTarget())
    assert json.loads(stored(tmp_path / "out")) == {
        "snr": 1.5,
        "key": "a/c.1",
        "txt": "a",
        "lang": "zh",
        "sample_rate": 16000,
        "info": {
            "segments": [
                {"start": 0.1, "end": 0.3, "txt": "a", "speaker": "A"},
                {"start": 0.3, "end": 0.9, "x": [1]},
            ]
        },
    }


def test_what_was_edited_as_a_cut_is_not_undone(touch: Path) -> None:
    convert(str(touch / "000000000"), str(touch.parent / "shar"), SharTarget())
    cuts = touch.parent / "shar" / "cuts.000000.jsonl"
    edited = [json.loads(line) for line in cuts.read_text().splitlines()]
    edited[1]["supervisions"][0]["text"] = "mended"
    del edited[1]["supervisions"][1]
    cuts.write_text("".join(json.dumps(cut) + "\n" for cut in edited))
    convert(str(touch.parent / "shar"), str(touch.parent / "out"), TouchTarget())
    found, expected = described(touch.parent / "out"), described(touch / "000000000")
    assert found[1][3:] == ("mended", [(Decimal("0.1"), Decimal("0.3"), "mended")])
    assert found[0] == expected[0]
    assert found[2:] == expected[2:]


def test_cuts_become_supervisions_of_segments(touch: Path) -> None:
    convert(str(touch), str(touch.parent / "shar"), SharTarget(20))
    lines = (touch.parent / "shar/cuts.000000.jsonl").read_text().splitlines()
    cuts = [json.loads(line) for line in lines]
    assert [cut["id"] for cut in cuts] == KEYS
    first, second, third = cuts[0], cuts[1], cuts[2]
    assert first["supervisions"] == [], "neither segments nor a text"
    assert [(s["start"], s["duration"], s["text"]) for s in second["supervisions"]] == [
        (0.1, 0.2, "你好"),
        (0.3, 0.4, "b"),
    ]
    assert second["supervisions"][0]["speaker"] == "A"
    assert second["supervisions"][0]["custom"] == {"whisper": "你 好"}
    assert third["duration"] == 8002 / 8000
    assert (third["supervisions"][2]["start"], third["supervisions"][2]["duration"]) == (0.7, 0.30025)
    whole = cuts[3]["supervisions"]
    assert [(s["start"], s["duration"], s["text"]) for s in whole] == [(0, 8003 / 8000, "text 3 ü")]
    assert first["recording"]["sampling_rate"] == 8000


def test_recordings_are_as_they_were(tmp_path: Path) -> None:
    """In a tar and in a Shar, whatever they are; for TouchNet decoded to mono at their own rate."""
    random = np.random.default_rng(0)
    files: dict[str, bytes] = {}
    for name, kind, rate, channels, subtype in [
        ("a", "wav", 16000, 1, "PCM_16"),
        ("b", "wav", 44100, 2, "PCM_24"),
        ("c", "flac", 8000, 1, "PCM_16"),
        ("d", "ogg", 16000, 2, "VORBIS"),
    ]:
        file = io.BytesIO()
        soundfile.write(file, random.normal(0, 0.1, (rate, channels)), rate, format=kind, subtype=subtype)
        files[f"{name}.{kind}"] = file.getvalue()
        files[f"{name}.txt"] = f"text {name}\n".encode()
    write_tar(tmp_path / "source.tar", files)
    convert(str(tmp_path / "source.tar"), str(tmp_path / "shar"), SharTarget())
    with tarfile.open(tmp_path / "shar/recording.000000.tar") as tar:
        data = [tar.extractfile(name).read() for name in tar.getnames() if not name.endswith(".json")]  # type: ignore[union-attr]
        assert [name for name in tar.getnames() if not name.endswith(".json")] == [f"{n}.original" for n in "abcd"]
    assert data == [data for name, data in files.items() if not name.endswith(".txt")]
    convert(str(tmp_path / "shar"), str(tmp_path / "tars"), TarTarget())
    with tarfile.open(tmp_path / "tars/000000.tar") as tar:
        for name, expected in files.items():
            file_again = tar.extractfile(name)
            assert file_again is not None
            assert file_again.read() == expected.removesuffix(b"\n" if name.endswith(".txt") else b"\0\0\0\0")
    convert(str(tmp_path / "source.tar"), str(tmp_path / "touch"), TouchTarget())
    found = described(tmp_path / "touch")
    assert [(key, rate, len(audio), text) for key, rate, audio, text, _ in found] == [
        ("a", 16000, 32000, "text a"),
        ("b", 44100, 88200, "text b"),
        ("c", 8000, 16000, "text c"),
        ("d", 16000, 32000, "text d"),
    ]
    assert found[0][2] == files["a.wav"][44:]
    np.testing.assert_array_equal(
        np.frombuffer(found[2][2], "<i2"), soundfile.read(io.BytesIO(files["c.flac"]), dtype="int16")[0]
    )
    convert(str(tmp_path / "source.tar"), str(tmp_path / "at8000"), TouchTarget(rate=8000))
    assert [(rate, len(audio)) for _, rate, audio, _, _ in described(tmp_path / "at8000")] == [(8000, 16000)] * 4


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("length", [1, 800, 1600, 5000])
def test_flac_of_any_length(tmp_path: Path, length: int, channels: int) -> None:
    """ffmpeg loses those of a frame or two, which are smaller than what its seek goes back by."""
    samples = np.random.default_rng(length).integers(-9999, 9999, (length, channels)).astype("i2")
    file = io.BytesIO()
    soundfile.write(file, samples, 16000, format="flac")
    write_tar(tmp_path / "x.tar", {"a.flac": file.getvalue()})
    convert(str(tmp_path / "x.tar"), str(tmp_path / "out"), TouchTarget())
    ((_, rate, audio, _, _),) = described(tmp_path / "out")
    assert (rate, len(audio)) == (16000, 2 * length)
    if channels == 1:
        assert audio == samples.tobytes()
    write_tar(tmp_path / "cut.tar", {"a.flac": file.getvalue()[:-3]})
    with pytest.raises(FormatError, match=r"cannot be decoded|cut short"):
        convert(str(tmp_path / "cut.tar"), str(tmp_path / "out2"), TouchTarget())


def test_arrays_and_values_in_a_shar(tmp_path: Path) -> None:
    def npy(array: object) -> bytes:
        file = io.BytesIO()
        np.save(file, np.asarray(array))
        return file.getvalue()

    files = {
        "a.wav": wav_of(pcm(1600)),
        "a.npy": npy([1, 2]),
        "a.embedding.npy": npy(np.ones((3, 4), "f4")),
        "a.lang.txt": b"zh",
        "a.tags.json": b'["x", 1]',
        "b.wav": wav_of(pcm(800)),
        "b.noise.wav": wav_of(pcm(800)),
    }
    write_tar(tmp_path / "source.tar", files)
    convert(str(tmp_path / "source.tar"), str(tmp_path / "shar"), SharTarget())
    first, second = map(json.loads, (tmp_path / "shar/cuts.000000.jsonl").read_text().splitlines())
    assert first["custom"]["lang"] == "zh"
    assert first["custom"]["tags"] == ["x", 1]
    assert first["custom"]["embedding"]["shape"] == [3, 4]
    assert second["custom"]["noise"]["num_samples"] == 800
    convert(str(tmp_path / "shar"), str(tmp_path / "again"), SharTarget())
    for path in (tmp_path / "shar").iterdir():
        if path.name.startswith("cuts"):
            continue  # the order of names
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), path.name
    again = map(json.loads, (tmp_path / "again/cuts.000000.jsonl").read_text().splitlines())
    assert list(again) == [first, second]
    convert(str(tmp_path / "shar"), str(tmp_path / "tars"), TarTarget())
    with tarfile.open(tmp_path / "tars/000000.tar") as tar:
        assert tar.extractfile("a.embedding.npy").read() == files["a.embedding.npy"]  # type: ignore[union-attr]
        assert tar.extractfile("b.noise.wav").read() == files["b.noise.wav"]  # type: ignore[union-attr]


def test_a_tar_of_many_kinds_of_metainfo_becomes_touchnet(tmp_path: Path) -> None:
    audio = wav_of(pcm(100))
    files = {
        "s/none.wav": audio,
        "s/own.wav": audio,
        "s/own.json": b'{"key": "s/own",  "sample_rate": 16000, "txt": "t"}',
        "s/other.wav": audio,
        "s/other.json": b'{"key": "elsewhere", "sample_rate": 44100, "text": "t"}',
        "s/text.wav": audio,
        "s/text.txt": "täxt\n".encode(),
        "s/value.wav": audio,
        "s/value.lang.txt": b"de",
    }
    write_tar(tmp_path / "x.tar", files)
    convert(str(tmp_path / "x.tar"), str(tmp_path / "out"), TouchTarget(1))
    found = [Path(path, "metainfo.bin").read_bytes() for path in find_shards(str(tmp_path / "out"))]
    assert found[1] == files["s/own.json"]
    assert [json.loads(each) for each in found] == [
        {"key": "s/none", "sample_rate": 16000},
        json.loads(files["s/own.json"]),
        {"key": "s/other", "sample_rate": 16000, "text": "t"},
        {"key": "s/text", "sample_rate": 16000, "txt": "täxt"},
        {"key": "s/value", "sample_rate": 16000, "lang": "de"},
    ]


def test_the_key_rule_and_the_rate(tmp_path: Path) -> None:
    write_tar(tmp_path / "x.tar", {"a.1.wav": wav_of(pcm(9)), "a.2.wav": wav_of(pcm(8))})
    convert(str(tmp_path / "x.tar"), str(tmp_path / "out"), TouchTarget(), options=Options(None, LAST_DOT))
    assert [key for key, *_ in described(tmp_path / "out")] == ["a.1", "a.2"]
    with TouchNetWriter(tmp_path / "t", {"audio": np.dtype("<i2")}) as writer:
        writer.add({"audio": pcm(5)})
    with pytest.raises(FormatError, match="cannot store pcm"):
        convert(str(tmp_path / "t"), str(tmp_path / "out2"), TouchTarget())
    convert(str(tmp_path / "t"), str(tmp_path / "out3"), TouchTarget(), options=Options(8000))
    assert described(tmp_path / "out3") == [("00000000", 8000, pcm(5), None, [])]


def test_metainfo_alone(tmp_path: Path) -> None:
    lines = '{"id": "a", "text": "x"}\n\n{"key": 7, "txt": "ü"}\n'
    (tmp_path / "l.jsonl").write_text(lines)
    convert(str(tmp_path / "l.jsonl"), str(tmp_path / "out"), TouchTarget(datatypes="metainfo"))
    assert stored(tmp_path / "out") == '{"id": "a", "text": "x", "key": "a"}{"key": 7, "txt": "ü"}\n'.encode()
    assert (tmp_path / "out/data.list").read_text() == f"{tmp_path}/out/000000000 metainfo\n"
    with pytest.raises(FormatError, match=r"l\.jsonl: sample 0 \('a'\): has no recording.*--datatypes metainfo; fix"):
        convert(str(tmp_path / "l.jsonl"), str(tmp_path / "out2"), TouchTarget())


GOOD = wav_of(pcm(1600))
BAD: list[tuple[Target, dict[str, bytes], str]] = [
    (TouchTarget(), {"wav": GOOD, "png": b""}, "TouchNet cannot store png: leave it out with --leave-out png"),
    (TouchTarget(), {"txt": b"x"}, "has no recording"),
    (TouchTarget(), {"wav": GOOD, "flac": b""}, "recordings in wav and flac: leave one out with --leave-out flac"),
    (TouchTarget(), {"wav": GOOD[:-1]}, "cut short"),
    (TouchTarget(), {"flac": b"fLaC"}, "cannot be decoded"),
    (TouchTarget(), {"m4a": b"?"}, "its rate is unknown: name one with --audio-resample"),
    (TouchTarget(rate=8000), {"m4a": b"?"}, "cannot be decoded"),
    (TouchTarget(), {"wav": GOOD, "json": b"[1]"}, "not a JSON object"),
    (TouchTarget(), {"wav": GOOD, "txt": b"\xff"}, "not UTF-8"),
    (TouchTarget(), {"wav": GOOD, "txt": b"a", "json": b'{"txt": "b"}'}, "different texts"),
    (TouchTarget(), {"wav": GOOD, "lang.txt": b"a", "json": b'{"lang": "b"}'}, "another lang"),
    (SharTarget(), {"wav": GOOD, "png": b""}, "a Shar cannot store its png: leave it out"),
    (SharTarget(), {"txt": b"x"}, "no recording"),
    (SharTarget(), {"wav": b"RIFF"}, "field recording|not a WAV|too short|not a recording"),
    (SharTarget(), {"wav": GOOD, "x.npy": b"?"}, "not numpy"),
    (SharTarget(), {"wav": GOOD, "json": b'{"info": {"segments": [{"start": 1, "end": 1}]}}'}, "segment 0 from 1 to 1"),
    (SharTarget(), {"wav": GOOD, "json": b'{"info": {"segments": [{"start": "x", "end": 1}]}}'}, "'x' is not a time"),
    (SharTarget(), {"wav": GOOD, "json": b'{"info": {"segments": [{"start": NaN, "end": 1}]}}'}, "NaN is not a time"),
    (SharTarget(), {"wav": GOOD, "json": b'{"info": {"segments": [{"start": null, "end": 1}]}}'}, "null is not a time"),
    (
        SharTarget(),
        {"wav": GOOD, "json": b'{"info": {"segments": [{"start": 0, "end": "1e999"}]}}'},
        "'1e999' is not a",
    ),
    (TouchTarget(), {"wav": GOOD, "json": b'{"id": "k/b", "supervisions": [{"start": []}]}'}, r"\[\] is not a time"),
    (
        SharTarget(),
        {
            "wav": GOOD,
            "json": b'{"id":1,"supervisions":[],"recording":{"id":1,"sources":2,"sampling_rate":3}}',
        },
        "an invalid manifest",
    ),
    (TarTarget(), {"": b"x"}, "without an extension"),
]


@pytest.mark.parametrize(("target", "files", "reason"), BAD, ids=lambda value: str(value)[:24])
def test_a_sample_that_has_no_place(tmp_path: Path, target: Target, files: dict[str, bytes], reason: str) -> None:
    good = {f"k/{n}.wav": GOOD for n in "ac"}
    bad = {f"k/b.{extension}": data for extension, data in files.items()}
    source = write_tar(tmp_path / "x.tar", {"k/a.wav": GOOD, **bad, "k/c.wav": GOOD})
    with pytest.raises(TouchfsError, match=reason) as caught:
        convert(str(source), str(tmp_path / "out"), target)
    message = str(caught.value)
    assert message.startswith(f"{source}: sample 1 ('k/b'): ")
    assert message.endswith("; fix it, or skip it with --skip-bad")
    assert "\n" not in message
    assert not list((tmp_path / "out").iterdir()), "nothing of a shard that is not whole"
    report = convert(str(source), str(tmp_path / "some"), target, skip_bad=True)
    assert report == ConvertReport(1, 2, 1)
    (told,) = map(json.loads, (tmp_path / "some/skipped.jsonl").read_text().splitlines())
    assert (told["shard"], told["sample"], told["key"]) == (str(source), 1, "k/b")
    (tmp_path / "some/skipped.jsonl").unlink()
    write_tar(source, good)
    convert(str(source), str(tmp_path / "same"), target)
    for path in (tmp_path / "same").rglob("*"):
        if path.is_file() and path.name != "data.list":
            assert (tmp_path / "some" / path.relative_to(tmp_path / "same")).read_bytes() == path.read_bytes()


def test_left_out(tmp_path: Path) -> None:
    source = write_tar(tmp_path / "x.tar", {"a.wav": GOOD, "a.png": b"p", "a": b"", "a.x.npy": b"?"})
    convert(str(source), str(tmp_path / "out"), SharTarget(), leave_out=["png", "", "x.npy"])
    assert sorted(path.name for path in (tmp_path / "out").glob("*.tar")) == ["recording.000000.tar"]
    convert(str(source), str(tmp_path / "tars"), TarTarget(), leave_out=["wav", ""])
    assert members(tmp_path / "tars/000000.tar") == ["a.png", "a.x.npy"]


def test_a_cut_without_a_field_that_is_left_out(tmp_path: Path) -> None:
    with SharWriter(tmp_path / "shar", {"recording": "wav", "x": "numpy"}, compress_jsonl=False) as writer:
        writer.write({"id": "a", "supervisions": []}, {"recording": GOOD, "x": np.zeros(3)})
    convert(str(tmp_path / "shar"), str(tmp_path / "out"), SharTarget(), leave_out=["x.npy"])
    (cut,) = map(json.loads, (tmp_path / "out/cuts.000000.jsonl").read_text().splitlines())
    assert "x" not in cut["custom"]


def test_damage_is_never_passed_over(touch: Path) -> None:
    """What comes before it is there; what it took is an error, or told."""
    convert(str(touch), str(touch.parent / "tars"), TarTarget(4))
    damaged = touch.parent / "tars/000001.tar"
    os.truncate(damaged, 40_000)
    with pytest.raises(FormatError, match=r"000001\.tar: .*at byte .*skip it with --skip-bad"):
        convert(str(touch.parent / "tars"), str(touch.parent / "out"), TarTarget(2))
    assert sorted(path.name for path in (touch.parent / "out").glob("[!.]*")) == [f"00000{n}.tar" for n in range(3)]
    report = convert(str(touch.parent / "tars"), str(touch.parent / "some"), TarTarget(2), skip_bad=True)
    told = [json.loads(line) for line in (touch.parent / "some/skipped.jsonl").read_text().splitlines()]
    assert report.skipped == len(told) >= 1
    assert {each["shard"] for each in told} == {str(damaged)}
    os.truncate(touch / "000000001/audio.bin", 100)
    with pytest.raises(FormatError, match=r"000000001: sample 0 \('x'\): audio.bin ends before this sample does"):
        convert(str(touch), str(touch.parent / "out3"), SharTarget())
    (touch / "000000002/audio.idx").write_bytes(b"?")
    report = convert(str(touch), str(touch.parent / "out4"), TarTarget(), skip_bad=True)
    assert report == ConvertReport(1, 4, 5)


def test_outputs_that_cannot_be(touch: Path) -> None:
    (touch.parent / "out").mkdir()
    (touch.parent / "out/notes").write_text("of the user")
    with pytest.raises(UsageError, match="already holds 'notes': remove it, or choose another output"):
        convert(str(touch), str(touch.parent / "out"), TarTarget())
    with pytest.raises(UsageError, match=r"Not a directory|File exists"):
        convert(str(touch), str(touch.parent / "out/notes"), TarTarget())
    with pytest.raises(UsageError, match="the output is empty"):
        convert(str(touch), "", TouchTarget())
    with pytest.raises(NotFoundError, match="no such file"):
        convert(str(touch.parent / "nothing"), str(touch.parent / "new"), TarTarget())
    assert not (touch.parent / "new").exists()


def test_the_output_is_not_in_what_is_read(touch: Path) -> None:
    """Also if a link leads there: the next conversion would read what this one wrote."""
    (touch.parent / "link").symlink_to(touch)
    for source, output in ((touch, touch / "out"), (touch, touch.parent / "link" / "out"), (touch / "../link", touch)):
        with pytest.raises(UsageError, match="which is read: choose another output"):
            convert(str(source), str(output), TarTarget())
        with pytest.raises(UsageError, match="which is read: choose another output"):
            pack_table(str(source), str(output), TableSettings("arrow"))
    assert not (touch / "out").exists()
    assert convert(str(touch / "000000000"), str(touch / "out"), TarTarget()).samples == 4


def test_a_full_disk_is_no_bad_sample(touch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: str, destination: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("touchfs.posix.atomic.os.replace", full)
    with pytest.raises(SourceError, match="cannot be written: No space left on device"):
        convert(str(touch), str(touch.parent / "out"), TarTarget(2), skip_bad=True)
    assert list((touch.parent / "out").iterdir()) == []


def test_progress_and_an_empty_source(touch: Path) -> None:
    told: list[tuple[int, int]] = []
    convert(str(touch), str(touch.parent / "o"), TarTarget(), progress=lambda done, total: told.append((done, total)))
    totals = {total for _, total in told}
    assert len(totals) == 1
    done = [done for done, _ in told]
    assert (done[0], done[-1]) == (0, totals.pop())
    assert done == sorted(set(done))
    assert len(done) > 3
    (touch.parent / "empty.jsonl").touch()
    for number, target in enumerate([TouchTarget(), TarTarget(), SharTarget()]):
        output = touch.parent / f"empty{number}"
        shards = 0 if isinstance(target, SharTarget) else 1  # Lhotse has no empty ones
        assert convert(str(touch.parent / "empty.jsonl"), str(output), target) == ConvertReport(shards, 0, 0)
        if shards:
            assert [(shard.samples, shard.report) for shard in open_dataset(str(output)).shards] == [(0, "")]


def convert_until(shards: int, source: Path, output: Path) -> None:
    """Convert, and be killed when so many shards are there."""

    def progress(done: int, total: int) -> None:
        if len(list(output.glob("0*.tar"))) == shards:
            os.kill(os.getpid(), signal.SIGKILL)

    convert(str(source), str(output), TarTarget(2, create_index=True), progress=progress)


def test_killed_it_leaves_whole_shards_only(touch: Path) -> None:
    convert(str(touch), str(touch.parent / "whole"), TarTarget(2, create_index=True))
    whole = {path.name: path.read_bytes() for path in (touch.parent / "whole").iterdir()}
    for number in range(1, 6):
        output = touch.parent / f"killed{number}"
        process = FORK.Process(target=convert_until, args=(number, touch, output))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        found = {path.name: path.read_bytes() for path in output.iterdir() if path.name[0] != "."}
        assert len([name for name in found if name.endswith(".tar")]) == number
        assert found.items() <= whole.items()


def test_memory_is_that_of_one_sample(tmp_path: Path) -> None:
    with TouchNetWriter(tmp_path / "t", {"video": np.dtype("u1")}) as writer:
        for _ in range(12):
            writer.add({"video": bytes(2**22)})
    imports = "from touchfs.bulk.convert.job import convert; from touchfs.bulk.convert.tar import TarTarget"
    grown = growth(tmp_path, imports, 'convert("t", "out", TarTarget())')
    assert (tmp_path / "out/000000.tar").stat().st_size > 12 * 2**22
    assert grown < 4 * 2**12, "KiB"
