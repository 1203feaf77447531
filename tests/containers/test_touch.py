import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance import Expected, check_shard
from hypothesis import given
from hypothesis import strategies as st
from touchnet import INT16, INT32, UINT8, UINT16, as_json, index_bytes, write_modality, write_shard, write_speech

from touchfs.containers.touchnet.reader import fingerprints, is_touchnet_shard
from touchfs.containers.touchnet.writer import TouchNetWriter
from touchfs.core.errors import ChangedError, FormatError, NotFoundError, SourceError, TouchfsError
from touchfs.registry.open import open_shard
from touchfs.shard.options import Options
from touchfs.source.data import DATA

PCM = [random.Random(i).randbytes(2 * n) for i, n in enumerate((0, 1, 500, 0, 4000))]
TOLD: list[dict[str, Any]] = [{"key": f"utt{i}", "txt": "é" * i, "sample_rate": 8000} for i in range(len(PCM))]


def speech(path: Path) -> Path:
    return write_speech(path, list(zip(TOLD, PCM, strict=True)))


def expected(*missing: tuple[int, str]) -> list[Expected]:
    """Speech whose sample `ordinal` lacks a field."""
    samples = []
    for i, (told, pcm) in enumerate(zip(TOLD, PCM, strict=True)):
        fields = {"audio": pcm, "metainfo": as_json(told)}
        for name in [name for ordinal, name in missing if ordinal == i]:
            del fields[name]
        key = told["key"] if "metainfo" in fields else f"{i:08d}"
        samples.append(Expected(key, fields, damaged=len(fields) < 2))
    return samples


def written_by_touchfs(path: Path) -> Path:
    with TouchNetWriter(path, {"audio": np.dtype("<i2"), "metainfo": np.dtype("u1")}) as writer:
        for told, pcm in zip(TOLD, PCM, strict=True):
            writer.add({"audio": pcm, "metainfo": as_json(told)})
    return path


@pytest.mark.parametrize("write", [speech, written_by_touchfs])
def test_it_is_a_shard(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    path = write(tmp_path / "shard")
    check_shard(lambda: open_shard(str(path)), expected())
    shard = open_shard(str(path))
    assert shard.size == sum(map(len, PCM)) + sum(len(as_json(told)) for told in TOLD)
    assert shard.index_size == 2 * (42 + 20 * len(PCM))


def test_modalities_of_all_kinds(tmp_path: Path) -> None:
    flac, unknown = b"fLaC" + bytes(50), b"?"
    tokens = np.arange(7, dtype="<u2").tobytes()
    path = write_shard(
        tmp_path,
        video=(UINT8, [flac, unknown, b""]),
        texttoken=(UINT16, [tokens, b"", tokens]),
        pair_audio=(INT16, [PCM[2], PCM[0], PCM[1]]),
        pair_text=(UINT8, [b'{"sample_rate": 24000}', b'{"key": 7}', b"{}"]),
    )
    names = ("video", "texttoken", "pair_audio", "pair_text")
    check_shard(
        lambda: open_shard(str(path)),
        [
            Expected("00000000", dict(zip(names, (flac, tokens, PCM[2], b'{"sample_rate": 24000}'), strict=True))),
            Expected("7", dict(zip(names, (unknown, b"", PCM[0], b'{"key": 7}'), strict=True))),
            Expected("00000002", dict(zip(names, (b"", tokens, PCM[1], b"{}"), strict=True))),
        ],
    )

    def forms(ordinal: int, sample_rate: int | None = None) -> dict[str, tuple[str, str]]:
        sample = open_shard(str(path), Options(sample_rate))[ordinal]
        return {name: (str(field.form), field.extension) for name, field in sample.fields.items()}

    assert forms(0) == {
        "video": ("bytes", "flac"),
        "texttoken": ("npy/<u2", "texttoken.npy"),
        "pair_audio": ("wav/24000", "wav"),
        "pair_text": ("bytes", "json"),
    }
    assert forms(0, 8000)["pair_audio"] == ("wav/24000", "wav"), "the metainfo goes before --sample-rate"
    assert forms(1)["pair_audio"] == ("bytes", "pcm")
    assert "--sample-rate" in open_shard(str(path))[1].fields["pair_audio"].note
    assert forms(1, 8000)["pair_audio"] == ("wav/8000", "wav")
    assert forms(1)["video"] == forms(2)["video"] == ("bytes", "bin")


def test_audio_and_metainfo_of_another_type_are_taken_for_what_they_are(tmp_path: Path) -> None:
    path = write_shard(
        tmp_path, audio=(INT32, [bytes(8)]), metainfo=(UINT16, [b"{}"]), pair_text=(UINT8, [b'{"key": 3}'])
    )
    [sample] = open_shard(str(path))
    assert sample.key == "3"
    assert {name: str(field.form) for name, field in sample.fields.items()} == {
        "audio": "npy/<i4",
        "metainfo": "npy/<u2",
        "pair_text": "bytes",
    }


def test_an_empty_shard(tmp_path: Path) -> None:
    path = write_speech(tmp_path, [])
    assert (path / "audio.bin").stat().st_size == 0
    check_shard(lambda: open_shard(str(path)), [])


HEADER = struct.Struct("<9sQBQQ")
GOOD = index_bytes(INT16, list(map(len, PCM)))


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (b"", "ends inside its header"),
        (GOOD[:20], "ends inside its header"),
        (GOOD[:-1], "has 142 bytes, this has 141"),
        (GOOD[:-8], "has 142 bytes, this has 134"),
        (GOOD + b"\0", "has 142 bytes, this has 143"),
        (b"not an index at all" * 9, "not an index"),
        (b"TNTIDX\0\0" + GOOD[8:], "legacy TNTIDX"),
        (b"v1.1 3\ntar 1 2 3\n" * 9, "DALI"),
        (index_bytes(INT16, list(map(len, PCM)), version=2), "index version 2"),
        (index_bytes(INT16, list(map(len, PCM)), code=11), "unknown dtype code 11"),
        (index_bytes(INT16, list(map(len, PCM)), code=0), "unknown dtype code 0"),
        (index_bytes(INT16, list(map(len, PCM)), count=6), "6 samples"),
        (index_bytes(INT16, list(map(len, PCM)), count=2**63), "has 142|this has 142"),
        (index_bytes(INT16, list(map(len, PCM)), documents=2**64 - 1), "this has 142"),
        (index_bytes(INT16, [0] * 5, [2, 8, 8, 8, 8]), "its entries are not those of 5 samples"),
    ],
)
def test_a_damaged_index(tmp_path: Path, index: bytes, words: str) -> None:
    path = speech(tmp_path)
    (path / "audio.idx").write_bytes(index)
    with pytest.raises(FormatError, match=words) as caught:
        open_shard(str(path))
    assert caught.value.path == str(path / "audio.idx")
    assert caught.value.offset is not None
    assert "\n" not in str(caught.value)


def without(*names: str) -> Callable[[Path], None]:
    return lambda path: [os.unlink(path / name) for name in names] and None


def add_modality(name: str, code: int, samples: list[bytes]) -> Callable[[Path], None]:
    return lambda path: write_modality(path, name, code, samples)


def link_away(path: Path) -> None:
    os.unlink(path / "audio.bin")
    os.symlink("nowhere", path / "audio.bin")


def shar(path: Path) -> None:
    for name in os.listdir(path):
        os.unlink(path / name)
    for name in ("cuts.000000.jsonl", "cuts.000000.jsonl.idx", "recording.000000.tar", "recording.000000.tar.idx"):
        (path / name).touch()


def pipe(path: Path) -> None:
    os.unlink(path / "audio.bin")
    os.mkfifo(path / "audio.bin")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without("audio.idx"), "audio.bin has no index: the job that wrote this shard did not end"),
        (without("audio.bin"), "audio.idx has no audio.bin beside it"),
        (without("audio.idx", "metainfo.idx"), "has no index"),
        (without("audio.bin", "metainfo.bin"), "has no audio.bin beside it"),
        (without("audio.idx", "audio.bin", "metainfo.idx", "metainfo.bin"), "not a TouchNet shard"),
        (shar, "not a TouchNet shard: .*; if shards of another kind are in it, name each of them"),
        (link_away, "audio.idx has no audio.bin beside it"),
        (pipe, "audio.idx has no audio.bin beside it"),
        (
            add_modality("video", UINT8, [b"x"] * 4),
            "unequal numbers of samples: audio has 5, metainfo has 5, video has 4",
        ),
        (add_modality("v" * 65, UINT8, [b"x"] * 5), "a modality's name has at most 64 bytes"),
    ],
)
def test_a_shard_that_contradicts_itself(tmp_path: Path, change: Callable[[Path], None], words: str) -> None:
    path = speech(tmp_path)
    change(path)
    with pytest.raises(FormatError, match=words) as caught:
        open_shard(str(path))
    assert caught.value.path == str(path)


def test_what_is_not_there_or_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "loop").symlink_to("loop")
    for name, error in (("missing", NotFoundError), ("file", SourceError), ("loop", SourceError)):
        with pytest.raises(error) as caught:
            open_shard(str(tmp_path / name))
        assert type(caught.value) is error


def test_files_that_are_not_of_the_shard(tmp_path: Path) -> None:
    """What a Mac, an editor or rsync leaves behind is hidden; directories and pipes are no data."""
    path = speech(tmp_path / "shard")
    for name in ("._audio.bin", ".bin", ".idx", ".metainfo.idx", "notes.txt"):
        (path / name).write_bytes(b"x")
    (path / "old.bin").mkdir()
    os.mkfifo(path / "pipe.idx")
    assert sorted(fingerprints(str(path))) == ["audio.bin", "audio.idx", "metainfo.bin", "metainfo.idx"]
    check_shard(lambda: open_shard(str(path)), expected())
    (tmp_path / "outer.bin").mkdir()
    assert not is_touchnet_shard(DATA.list(str(tmp_path))), "directories are named as if they were data"


@pytest.mark.parametrize(
    ("modality", "size", "missing"),
    [
        ("audio", sum(map(len, PCM)) - 1, [(4, "audio")]),
        ("audio", 1002, [(4, "audio")]),
        ("audio", 1001, [(2, "audio"), (3, "audio"), (4, "audio")]),
        ("audio", 2, [(2, "audio"), (3, "audio"), (4, "audio")]),
        ("audio", 0, [(1, "audio"), (2, "audio"), (3, "audio"), (4, "audio")]),
        ("metainfo", 60, [(1, "metainfo"), (2, "metainfo"), (3, "metainfo"), (4, "metainfo")]),
        ("metainfo", 0, [(i, "metainfo") for i in range(5)]),
    ],
)
def test_a_bin_shorter_than_its_index(tmp_path: Path, modality: str, size: int, missing: list[tuple[int, str]]) -> None:
    path = speech(tmp_path)
    os.truncate(path / f"{modality}.bin", size)
    check_shard(lambda: open_shard(str(path)), expected(*missing))
    for ordinal, _ in missing:
        assert open_shard(str(path))[ordinal].problem == f"{modality}.bin ends before this sample does"


def test_a_bin_longer_than_its_index(tmp_path: Path) -> None:
    """The last length may be damaged, so the last sample is in doubt."""
    path = speech(tmp_path)
    with open(path / "audio.bin", "ab") as file:
        file.write(b"more")
    check_shard(lambda: open_shard(str(path)), expected((4, "audio")))
    assert open_shard(str(path))[4].problem == "audio.idx says that this last sample does not end where audio.bin does"


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff{}", "not UTF-8"),
        (b"[]", "not a JSON object"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"n": ' + b"9" * 9999 + b"}", "number too long"),
    ],
)
def test_metainfo_that_cannot_be_read_is_shown_as_it_is(tmp_path: Path, stored: bytes, words: str) -> None:
    path = write_speech(tmp_path, [({"key": "a"}, b"ab"), (stored, b"cd"), ({"key": "c"}, b"ef")])
    check_shard(
        lambda: open_shard(str(path)),
        [
            Expected("a", {"audio": b"ab", "metainfo": b'{"key": "a"}'}),
            Expected("00000001", {"audio": b"cd", "metainfo": stored}, damaged=True),
            Expected("c", {"audio": b"ef", "metainfo": b'{"key": "c"}'}),
        ],
    )
    assert words in open_shard(str(path))[1].problem
    assert "\n" not in open_shard(str(path))[1].problem


@pytest.mark.parametrize("name", ["audio.idx", "metainfo.bin"])
def test_a_file_that_changes_while_the_shard_is_open(tmp_path: Path, name: str) -> None:
    path = speech(tmp_path)
    shard = open_shard(str(path))
    list(shard)
    shard.close()
    os.replace(path / "audio.bin", path / name)
    if name == "audio.idx":
        with pytest.raises(TouchfsError):
            open_shard(str(path))
    else:
        with pytest.raises(ChangedError):
            list(shard)


@given(
    st.lists(
        st.tuples(st.binary(max_size=9), st.binary(max_size=9), st.lists(st.integers(0, 65535), max_size=4)), max_size=9
    ),
    st.integers(0, 60),
)
def test_any_shard_and_any_cut_of_it(
    tmp_path_factory: pytest.TempPathFactory, samples: list[tuple[bytes, bytes, list[int]]], cut: int
) -> None:
    path = tmp_path_factory.mktemp("shard")
    videos, images = [video for video, _, _ in samples], [image for _, image, _ in samples]
    tokens = [np.array(each, "<u2").tobytes() for _, _, each in samples]
    write_shard(path, video=(UINT8, videos), image=(UINT8, images), token=(UINT16, tokens))
    os.truncate(path / "video.bin", min(cut, sum(map(len, videos))))
    expected = []
    end = 0
    for i, (video, image, token) in enumerate(zip(videos, images, tokens, strict=True)):
        end += len(video)
        kept = {"video": video} if end <= cut else {}
        expected.append(Expected(f"{i:08d}", kept | {"image": image, "token": token}, damaged=not kept))
    check_shard(lambda: open_shard(str(path)), expected)
