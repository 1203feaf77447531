"""What streams is what an index shows: the same samples, in the same order, with the same files of the same bytes."""

import gzip
import io
import json
import lzma
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from containers.test_shar_shard import RATE, cut, missing, pair, told, wav, write_lines, write_shar, write_tar
from lilcom import compress
from megatron import INT32, packed, tokens, write_prefix
from touchnet import INT16, UINT8, UINT16, write_shard, write_speech

from touchfs.dataset.samples import DatasetSamples
from touchfs.indexing import open_dataset
from touchfs.source.scratch.store import DIRECTORY_VARIABLE
from touchfs.stream.open import open_streams


def touchnet(path: Path) -> None:
    write_speech(path / "0.tar", [({"key": "a/b", "sample_rate": 8000, "txt": "x"}, b"abcd"), (b"{nonsense", b"ef")])
    write_shard(
        path / "1", video=(UINT8, [b"fLaC", b""]), texttoken=(UINT16, [b"ab", b""]), audio=(INT16, [b"", b"ab"])
    )


def megatron(path: Path) -> None:
    image = b"\x89PNG\r\n\x1a\n" + bytes(13)
    write_prefix(path / "x", INT32, [tokens(1, 2), tokens(), packed(image)], [0, 2, 3], [0, 0, 1])


def shar(path: Path) -> None:
    write_shar(path, keys=["a", "b/c.d", "目录/录音"])


def shar_of_strings(path: Path) -> None:
    """Whose JSON has escapes, so that the text is no range of the file."""
    values = {"a": 'say "hi"\n', "b": "plain", "c": "\ud83d!", "d": {"e": "\t"}}
    write_lines(path / "cuts.jsonl", *({"id": key} for key in values))
    rows = "".join(json.dumps({"cut_id": key, "said": value}) + "\n" for key, value in values.items())
    write_lines(path / "said.jsonl", rows.encode())


def shar_of_codings(path: Path) -> None:
    """Recordings and arrays that are PCM, compressed, or missing."""
    write_lines(path / "cuts.jsonl", *map(cut, "abcd"))
    arrays = [np.random.default_rng(i).normal(size=(9 + i, 20)).astype("f4") for i in range(3)]
    features = [each for key, array in zip("abc", arrays, strict=True) for each in pair(key, "llc", compress(array))]
    write_tar(path / "features.tar", [*features, *missing("d")])
    flac = io.BytesIO()
    soundfile.write(flac, np.zeros(RATE), RATE, format="FLAC")
    recordings = {"wav": wav(1), "original": flac.getvalue(), "flac": flac.getvalue()}
    stereo = pair("d", "wav", wav(2, channels=2, subtype="PCM_24"), **told(channels=2))
    coded = [each for key, item in zip("abc", recordings.items(), strict=True) for each in pair(key, *item, **told())]
    write_tar(path / "recording.tar", [*coded, *stereo])


def damaged(path: Path) -> None:
    touchnet(path)
    os.truncate(path / "0.tar/audio.bin", 5)


def archive(path: Path) -> None:
    names = ("a.wav", "a.json", "b/c.txt", "b/c.seg.json", "README")
    path.mkdir()
    write_tar(path / "x.tar", [(name, name.encode()) for name in names])


def archive_of_holes(path: Path) -> None:
    """And of links."""
    path.mkdir()
    with (path / "a.bin").open("wb") as file:
        file.seek(1 << 20)
        file.write(b"data")
        file.truncate(3 << 20)
    (path / "a.txt").symlink_to("a.bin")
    subprocess.run(["tar", "--sparse", "-cf", "x.tar", "a.bin", "a.txt"], cwd=path, check=True)
    (path / "a.bin").unlink()
    (path / "a.txt").unlink()


def compressed_archive(path: Path) -> None:
    archive(path)
    (path / "x.tar.gz").write_bytes(gzip.compress((path / "x.tar").read_bytes()))
    (path / "x.tar").unlink()


def lines(path: Path) -> None:
    write_lines(path / "x.jsonl", {"id": "a"}, b"\n", b"nonsense\n", {"key": "b"})


def compressed_lines(path: Path) -> None:
    lines(path)
    (path / "x.jsonl.xz").write_bytes(lzma.compress((path / "x.jsonl").read_bytes()))
    (path / "x.jsonl").unlink()


def real_ones(path: Path) -> None:
    """Made by TouchNet and Megatron-LM, without the shards whose `audio.bin` is not kept."""
    without_audio = shutil.ignore_patterns("audio_meta", "empty")
    shutil.copytree(Path(__file__).parent.parent / "data" / "touchnet", path / "touchnet", ignore=without_audio)
    shutil.copytree(Path(__file__).parent.parent / "data" / "megatron", path / "megatron")


MAKERS = [
    *(touchnet, megatron, shar, shar_of_strings, shar_of_codings, damaged, real_ones),
    *(archive, archive_of_holes, compressed_archive, lines, compressed_lines),
]


@pytest.mark.parametrize("make", MAKERS)
def test_what_streams_is_what_is_indexed_field_by_field(
    make: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "scratch"))
    path = tmp_path / "dataset"
    make(path)
    indexed = list(DatasetSamples(open_dataset(str(path))))
    streamed = [made() for stream in open_streams(str(path)) for _, made in stream.samples([])]
    assert len(indexed) == len(streamed) > 0
    for one, other in zip(indexed, streamed, strict=True):
        assert (one.shard, one.key, one.ordinal) == (other.shard, other.key, other.ordinal)
        assert {extension: one[extension] for extension in one} == {extension: other[extension] for extension in other}
        assert {extension: one.content(extension).size for extension in one} == {
            extension: len(data) for extension, data in other.items()
        }
        assert one.fields == other.fields


def test_the_strings_with_escapes_are_the_texts(tmp_path: Path) -> None:
    shar_of_strings(tmp_path / "shar")
    (stream,) = open_streams(str(tmp_path / "shar"))
    samples = [made() for _, made in stream.samples([])]
    assert [sample["said.txt"] for sample in samples[:3]] == [b'say "hi"\n', b"plain", "\ufffd!".encode()]
    assert samples[3]["said.json"] == b'{"e": "\\t"}'
    assert np.array_equal([sample.ordinal for sample in samples], range(4))
