"""What streams is what an index shows: the same samples, in the same order, with the same files of the same bytes."""

import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from megatron import INT32, packed, tokens, write_prefix
from shard.test_shar_shard import write_lines, write_shar
from touchnet import INT16, UINT8, UINT16, write_shard, write_speech

from touchfs.dataset.samples import DatasetSamples
from touchfs.indexing import open_dataset
from touchfs.stream.open import open_streams


def touchnet(path: Path) -> None:
    write_speech(path / "0", [({"key": "a/b", "sample_rate": 8000, "txt": "x"}, b"abcd"), (b"{nonsense", b"ef")])
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


def damaged(path: Path) -> None:
    touchnet(path)
    os.truncate(path / "0/audio.bin", 5)


def archive(path: Path) -> None:
    path.mkdir()
    with tarfile.open(path / "x.tar", "w") as tar:
        for name in ("a.wav", "a.json", "b/c.txt", "b/c.seg.json", "README"):
            info = tarfile.TarInfo(name)
            info.size = len(name)
            tar.addfile(info, io.BytesIO(name.encode()))


def lines(path: Path) -> None:
    write_lines(path / "x.jsonl", {"id": "a"}, b"\n", b"nonsense\n", {"key": "b"})


@pytest.mark.parametrize("make", [touchnet, megatron, shar, shar_of_strings, damaged, archive, lines])
def test_what_streams_is_what_is_indexed_field_by_field(make: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "dataset"
    make(path)
    indexed = list(DatasetSamples(open_dataset(str(path))))
    streamed = [made() for stream in open_streams(str(path)) for _, made in stream.samples([])]
    assert len(indexed) == len(streamed) > 0
    for one, other in zip(indexed, streamed, strict=True):
        assert (one.shard, one.key, one.ordinal) == (other.shard, other.key, other.ordinal)
        assert {extension: one[extension] for extension in one} == {extension: other[extension] for extension in other}
        assert one.fields == other.fields


def test_the_strings_with_escapes_are_the_texts(tmp_path: Path) -> None:
    shar_of_strings(tmp_path / "shar")
    (stream,) = open_streams(str(tmp_path / "shar"))
    samples = [made() for _, made in stream.samples([])]
    assert [sample["said.txt"] for sample in samples[:3]] == [b'say "hi"\n', b"plain", "\ufffd!".encode()]
    assert samples[3]["said.json"] == b'{"e": "\\t"}'
    assert np.array_equal([sample.ordinal for sample in samples], range(4))
