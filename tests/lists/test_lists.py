"""Lists of a dataset: the rules of the tools that read them, for data sets of every kind."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.ipc
import pytest
import soundfile
from tars import add
from wav_files import wav_of

from touchfs.bulk.convert.job import convert
from touchfs.bulk.convert.shar import SharTarget
from touchfs.bulk.convert.tar import TarTarget
from touchfs.bulk.convert.target import Target
from touchfs.bulk.convert.touchnet import TouchTarget
from touchfs.containers.touchnet.writer import TouchNetWriter
from touchfs.core.errors import ChangedError, FormatError, SourceError
from touchfs.indexing import open_dataset
from touchfs.lists.apart import open_lists_apart
from touchfs.lists.content import list_content, list_size
from touchfs.lists.kinds import CATALOG, NAMES
from touchfs.lists.stored import StoredLists, build_lists, open_lists
from touchfs.source.scratch.store import Scratch

pytestmark = pytest.mark.usefixtures("scratch")

RATE = 8000
PREFIX = "/mnt/my speech/"
Segments = Sequence[Mapping[str, Any]]


def wav(seconds: float, channels: int = 1, seed: int = 0) -> bytes:
    samples = np.random.default_rng(seed).integers(-(2**15), 2**15, (int(seconds * RATE), channels), "<i2")
    return wav_of(samples, RATE, channels)


def flac(data: bytes) -> bytes:
    samples, rate = soundfile.read(io.BytesIO(data), dtype="int16")
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="FLAC")
    return file.getvalue()


def write_tar(path: Path, members: Sequence[tuple[str | bytes, bytes]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", encoding="utf-8", errors="surrogateescape") as tar:
        for name, data in members:
            add(tar, os.fsdecode(name), data)
    return path


def sample(
    key: str | bytes, segments: Segments = (), extension: str = "wav", **others: str
) -> list[tuple[bytes, bytes]]:
    """The members of a sample of two seconds in a tar."""
    audio = wav(2) if extension == "wav" else flac(wav(2))
    members = {extension: audio, **({"json": json.dumps({"segments": segments}).encode()} if segments else {})}
    members |= {name: text.encode() for name, text in others.items()}
    return [(os.fsencode(key) + b"." + name.encode(), data) for name, data in members.items()]


def lists_of(source: Path) -> StoredLists:
    return open_lists(open_dataset(os.fspath(source), in_memory=True))


def texts(lists: StoredLists, prefix: str = PREFIX) -> dict[str, bytes]:
    """All lists, read at once and in odd pieces."""
    found = {}
    for name in NAMES:
        content = list_content(lists, name, prefix)
        data = found[name] = bytes(content.read(0, content.size))
        assert len(data) == content.size == list_size(lists, name, prefix)
        assert b"".join(bytes(content.read(i, 77)) for i in range(0, len(data), 77)) == data
    return found


def rows(data: bytes) -> list[list[bytes]]:
    assert data == b"" or data.endswith(b"\n")
    return [line.split(b" ") for line in data.split(b"\n")[:-1]]


def table_of(found: Mapping[str, bytes]) -> pyarrow.Table:
    table = pyarrow.ipc.open_file(found[CATALOG]).read_all()
    table.validate(full=True)
    return table


def check_kaldi(found: Mapping[str, bytes]) -> None:
    """The rules of Kaldi's utils/validate_data_dir.sh and validate_text.pl."""
    files = {name.removeprefix("kaldi/"): data for name, data in found.items() if name.startswith("kaldi/")}
    keys = {}
    for name, data in files.items():
        lines = data.split(b"\n")[:-1]
        keys[name] = [line.split(b" ")[0] for line in lines]
        assert lines == sorted(lines), f"{name} is not sorted in the C locale"
        assert len(set(keys[name])) == len(keys[name]), f"{name} has a key twice"
    assert keys["text"] == keys["utt2spk"] == keys["segments"] == keys["utt2dur"]
    assert keys["wav.scp"] == keys["reco2dur"] == sorted({row[1] for row in rows(files["segments"])})
    speakers = [row[1] for row in rows(files["utt2spk"])]
    assert speakers == sorted(speakers), "utterances sorted by id are not sorted by speaker"
    spk2utt: dict[bytes, list[bytes]] = {}
    for utterance, speaker in rows(files["utt2spk"]):
        assert utterance.startswith(speaker)
        spk2utt.setdefault(speaker, []).append(utterance)
    assert {row[0]: row[1:] for row in rows(files["spk2utt"])} == spk2utt
    assert keys["spk2utt"] == list(spk2utt)
    durations = {row[0]: float(row[1]) for row in rows(files["reco2dur"])}
    for (_, recording, start, end), (_, duration) in zip(rows(files["segments"]), rows(files["utt2dur"]), strict=True):
        assert 0 <= float(start) < float(end) <= durations[recording]
        assert float(duration) > 0
    for line in files["text"].split(b"\n")[:-1]:
        text = line.decode()
        assert not any(c.isspace() and c != " " for c in text)
        assert text.split(" ") == text.split()
        assert not {"<s>", "</s>", "#0"} & set(text.split(" "))
    for line in files["wav.scp"].split(b"\n")[:-1]:
        assert b"|" not in line


SPOKEN = [{"start": 0.25, "end": 0.5, "text": "Good\n morning."}, {"start": 0.625, "end": 1.0, "text": "早上好。"}]


def test_segments_and_whole_recordings(tmp_path: Path) -> None:
    members = [*sample("talks/monday", SPOKEN), *sample("a", txt=" no \t segments\n", extension="flac"), *sample("b")]
    found = texts(lists_of(write_tar(tmp_path / "x.tar", members)))
    check_kaldi(found)
    assert found["kaldi/wav.scp"].decode() == (
        "a /mnt/my speech/slices/all/x/a.wav\n"
        "b /mnt/my speech/shards/x/b.wav\n"
        "talks/monday /mnt/my speech/shards/x/talks/monday.wav\n"
    )
    assert found["kaldi/segments"].decode() == (
        "a-0000 a 0.0 2.0\nb-0000 b 0.0 2.0\n"
        "talks/monday-0000 talks/monday 0.25 0.5\ntalks/monday-0001 talks/monday 0.625 1.0\n"
    )
    assert found["kaldi/text"].decode() == (
        "a-0000 no segments\nb-0000\ntalks/monday-0000 Good morning.\ntalks/monday-0001 早上好。\n"
    )
    assert found["hf/metadata.csv"].decode().splitlines()[1:] == [
        "/mnt/my speech/slices/all/x/a.wav,no segments,,,2.0",
        "/mnt/my speech/shards/x/b.wav,,,,2.0",
        "/mnt/my speech/segments/x/talks/monday/0000.wav,Good morning.,,,0.25",
        "/mnt/my speech/segments/x/talks/monday/0001.wav,早上好。,,,0.375",
    ]
    assert found["filelist.txt"].splitlines() == [
        line.split(b" ", 1)[1] for line in found["kaldi/wav.scp"].splitlines()
    ]
    nemo = json.loads(found["nemo_manifest.jsonl"].splitlines()[2])
    assert nemo == {
        "audio_filepath": "/mnt/my speech/shards/x/talks/monday.wav",
        "offset": 0.25,
        "duration": 0.25,
        "text": "Good morning.",
    }
    assert not found["left_out.txt"]
    assert table_of(found).to_pylist()[2] == {
        "id": "talks/monday-0000",
        "recording": "talks/monday",
        "shard": "x",
        "key": "talks/monday",
        "segment": 0,
        "path": "/mnt/my speech/segments/x/talks/monday/0000.wav",
        "recording_path": "/mnt/my speech/shards/x/talks/monday.wav",
        "start": 0.25,
        "duration": 0.25,
        "offset": 2000,
        "length": 2000,
        "rate": 8000,
        "channels": 1,
        "text": "Good morning.",
        "speaker": "",
        "language": "",
    }


def test_speakers_come_first_in_all_ids(tmp_path: Path) -> None:
    named = [{"start": 0, "end": 1, "speaker": name} for name in ("Ann-Lee", "Z oe", "Ann", "é\n", "ann/b", "💬")]
    members = [*sample("k", named), *sample("no speaker"), *sample("z", [{"start": 1, "end": 2, "speaker": "Ann"}])]
    members += sample("json", json='{"speaker": "Ann", "text": "of the json", "language": "en"}')
    found = texts(lists_of(write_tar(tmp_path / "x.tar", members)))
    check_kaldi(found)
    ids = [row[0].decode() for row in rows(found["kaldi/utt2spk"])]
    assert ids == [
        *("Ann-json-0000", "Ann-k-0002", "Ann-z-0000", "Ann=2DLee-k-0000", "Z=20oe-k-0001", "ann/b-k-0004"),
        *("no=3D20speaker-no=20speaker-0000", "é=0A-k-0003", "💬-k-0005"),
    ]
    assert b"Ann-json-0000 of the json\n" in found["kaldi/text"]
    assert json.loads(found["nemo_manifest.jsonl"].splitlines()[0])["lang"] == "en"


HOSTILE = [
    "a b",
    "a\tb",
    "line\nend",
    "x/../y",
    "|cat",
    "a=20b",
    b"\xff\xfe",
    "💬/é",
    "-",
    "#0",
    "a\u2028b",
    "%41",
]


def test_hostile_keys(tmp_path: Path) -> None:
    members = [member for key in HOSTILE for member in sample(key, SPOKEN)]
    source = write_tar(tmp_path / "x.tar", members)
    found = texts(lists_of(source))
    check_kaldi(found)
    left = found["left_out.txt"].decode().splitlines()
    assert [line.split("\t")[0] for line in left] == ["shards/x/|cat.wav"]
    assert len(rows(found["kaldi/segments"])) == 2 * (len(HOSTILE) - 1)
    for name in ("nemo_manifest.jsonl", "lhotse/cuts.jsonl", "wenet/data.list", "lhotse/supervisions.jsonl"):
        assert len([json.loads(line) for line in found[name].splitlines()]) in (len(HOSTILE), 2 * len(HOSTILE))
    assert found["filelist.txt"].count(b"\n") == len(HOSTILE)


def test_keys_that_several_samples_have(tmp_path: Path) -> None:
    write_tar(tmp_path / "set" / "a.tar", [*sample("k", SPOKEN), *sample("other")])
    write_tar(tmp_path / "set" / "b.tar", [*sample("k"), *sample("x"), *sample("k")])
    found = texts(lists_of(tmp_path / "set"))
    check_kaldi(found)
    assert [row[0].decode() for row in rows(found["kaldi/utt2spk"])] == [
        *("a/k-0000", "a/k-0001", "a/other-0000", "b/k-0000", "b/k=~2-0000", "b/x-0000"),
    ]
    assert b"\nb/k=~2 /mnt/my speech/shards/b/k~2.wav\n" in found["kaldi/wav.scp"]


def test_samples_without_keys(tmp_path: Path) -> None:
    with TouchNetWriter(tmp_path / "0", {"audio": np.dtype("<i2"), "metainfo": np.dtype("u1")}) as writer:
        for metainfo in ({"sample_rate": 8000}, {"sample_rate": 8000, "key": "00000000"}):
            writer.add({"audio": bytes(800), "metainfo": json.dumps(metainfo).encode()})
    found = texts(lists_of(tmp_path))
    check_kaldi(found)
    assert [row[0] for row in rows(found["kaldi/reco2dur"])] == [b"0/00000000", b"0/00000000=~0"]


def test_what_is_left_out_is_told(tmp_path: Path) -> None:
    members = sample("k", [{"start": 0, "end": 1}, {"start": 1.5, "end": 1.5}, {"start": "late", "end": 3}])
    members += [(b"broken.flac", b"fLaC?"), (b"empty.wav", wav(0)), (b"text.txt", b"no audio")]
    found = texts(lists_of(write_tar(tmp_path / "x.tar", members)))
    check_kaldi(found)
    left = dict(line.split("\t") for line in found["left_out.txt"].decode().splitlines())
    assert list(left) == [
        *("segments/x/k/0001.wav", "segments/x/k/0002.wav", "shards/x/broken.flac", "shards/x/empty.wav"),
    ]
    assert "late" in left["segments/x/k/0002.wav"]
    assert [row[0] for row in rows(found["kaldi/utt2spk"])] == [b"k-0000"]
    assert found["filelist.txt"].count(b"\n") == 2  # the empty one, too: it is a file


def test_channels(tmp_path: Path) -> None:
    members = [(b"stereo.wav", wav(1, 2)), (b"cut.wav", wav(1, 2)), (b"flac.flac", flac(wav(1, 2)))]
    members += [(b"cut.json", json.dumps({"segments": SPOKEN[:1]}).encode())]
    found = texts(lists_of(write_tar(tmp_path / "x.tar", members)))
    for line in found["lhotse/recordings.jsonl"].splitlines():
        assert json.loads(line)["channel_ids"] == [0, 1]


def without_paths(found: Mapping[str, bytes]) -> dict[str, list[Any]]:
    """The lists without the paths in them."""

    def stripped(value: Any) -> Any:
        if isinstance(value, dict):
            paths = ("audio_filepath", "wav", "source")
            return {name: stripped(each) for name, each in value.items() if name not in paths}
        return [stripped(each) for each in value] if isinstance(value, list) else value

    lists: dict[str, list[Any]] = {}
    for name, data in found.items():
        if name == CATALOG:
            lists[name] = table_of(found).drop(["shard", "path", "recording_path"]).to_pylist()
            continue
        lines = data.decode().splitlines()
        if data[:1] == b"{":
            lists[name] = [stripped(json.loads(line)) for line in lines]
        elif name.endswith(("wav.scp", "filelist.txt", ".csv")):
            lists[name] = [
                line.replace("slices/all", "shards").replace("/000000000", "/").count("/") > 2 for line in lines
            ]
        else:
            lists[name] = lines
    return lists


def test_the_same_lists_from_all_kinds_of_shards(tmp_path: Path) -> None:
    spoken = [{**each, "speaker": name} for each, name in zip(SPOKEN, ("Ann", "Bob"), strict=True)]
    members = [*sample("talks/monday", spoken), *sample("talks/tuesday", SPOKEN), *sample("x", SPOKEN[:1])]
    source = write_tar(tmp_path / "tar" / "0.tar", members)
    expected = without_paths(texts(lists_of(source)))
    targets: dict[str, Target] = {"touch": TouchTarget(), "shar": SharTarget(), "again": TarTarget()}
    for name, target in targets.items():
        convert(os.fspath(source), os.fspath(tmp_path / name), target)
        assert without_paths(texts(lists_of(tmp_path / name))) == expected, name


def test_little_memory_gives_the_same_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = np.random.default_rng(1)
    members: list[tuple[bytes, bytes]] = []
    for i in choose.permutation(520):
        segments = [
            {"start": 0.1, "end": 0.2, "speaker": str(choose.integers(9)), "text": "x" * int(choose.integers(50))}
        ]
        members += [(b"%05d.wav" % i, wav(0.5)), (b"%05d.json" % i, json.dumps({"segments": segments}).encode())]
    dataset = open_dataset(os.fspath(write_tar(tmp_path / "x.tar", members)), in_memory=True)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("touchfs.lists.sorting.RUNS_MAX", 4)
    made = b"".join(map(bytes, build_lists(dataset, os.fspath(tmp_path / "scratch"), memory=3000)))
    assert made == b"".join(map(bytes, build_lists(dataset, os.fspath(tmp_path / "scratch"))))
    assert not list((tmp_path / "scratch").iterdir()), "no temporary file is left"
    monkeypatch.setattr("touchfs.lists.catalog.BATCH_BLOCKS", 1)
    found = texts(open_lists(dataset))
    check_kaldi(found)
    assert table_of(found)["id"].num_chunks == 3
    assert table_of(found)["id"].to_pylist() == [row[0].decode() for row in rows(found["kaldi/utt2spk"])]


def test_no_changed_bit_is_in_a_list(tmp_path: Path) -> None:
    source = write_tar(tmp_path / "x.tar", [(b"a.wav", wav(0.5)), (b"a.txt", b"text")])
    lists_of(source)
    (path,) = (tmp_path / "scratch").glob("*.scratch")
    whole = path.read_bytes()
    for place in range(0, len(whole), 23):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with pytest.raises(FormatError, match=f"{path}: damaged, .*: remove it"):
            lists_of(source)


def test_no_recordings(tmp_path: Path) -> None:
    found = texts(lists_of(write_tar(tmp_path / "x.tar", [(b"a.txt", b"text")])))
    assert {name for name, data in found.items() if data} == {"hf/metadata.csv", CATALOG, "filelist.txt"}
    assert found["filelist.txt"] == b"/mnt/my speech/shards/x/a.txt\n"
    assert table_of(found).num_rows == 0


def test_lists_are_made_once_for_a_dataset(tmp_path: Path) -> None:
    source = write_tar(tmp_path / "x.tar", sample("a"))
    for content, files in (("a", 1), ("a", 1), ("b", 2)):
        if files > 1:
            write_tar(source, sample(content))
        assert texts(lists_of(source), "")["filelist.txt"].decode() == f"shards/x/{content}.wav\n"
        assert len(Scratch.configured().stored()) == files


def test_lists_that_are_made_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_tar(tmp_path / "x.tar", sample("a", SPOKEN))
    dataset = open_dataset(os.fspath(source), in_memory=True)
    assert dataset.find("a")  # which maps a catalog
    found = texts(open_lists_apart(dataset, few=0))
    assert found["kaldi/text"] == "a-0000 Good morning.\na-0001 早上好。\n".encode()
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", os.fspath(tmp_path / "other"))
    (tmp_path / "other").touch()
    with pytest.raises(SourceError, match="scratch store"):
        open_lists_apart(dataset, few=0)


def test_the_shard_of_a_transcript_has_changed(tmp_path: Path) -> None:
    source = write_tar(tmp_path / "x.tar", sample("a", txt="text"))
    dataset = open_dataset(os.fspath(source), in_memory=True)
    write_tar(source, sample("b", txt="another text"))
    for open_them in (open_lists, partial(open_lists_apart, few=0)):
        with pytest.raises(ChangedError):
            open_them(dataset)
    assert not Scratch.configured().stored()
