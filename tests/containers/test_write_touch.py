import os
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from touchfs.containers.touchnet.writer import TouchNetWriter
from touchfs.core.errors import FormatError, UsageError

MODALITIES = {"audio": np.dtype("<i2"), "metainfo": np.dtype("u1")}


def index_of(code: int, width: int, samples: Sequence[bytes]) -> bytes:
    """As the layout in TouchNet's documentation, entry by entry."""
    data = b"MMIDIDX\0\0" + struct.pack("<Q", 1) + struct.pack("<B", code)
    data += struct.pack("<Q", len(samples)) + struct.pack("<Q", len(samples) + 1)
    for sample in samples:
        data += struct.pack("<i", len(sample) // width)
    offset = 0
    for sample in samples:
        data += struct.pack("<q", offset)
        offset += len(sample)
    for document in range(len(samples) + 1):
        data += struct.pack("<q", document)
    return data


@pytest.mark.parametrize(
    "samples", [[], [(b"", b"")], [(b"12", b"{}"), (b"", b'{"key": 1}'), (b"123456", b""), (b"ab" * 70_000, b"x")]]
)
def test_the_layout_of_touchnet(tmp_path: Path, samples: list[tuple[bytes, bytes]]) -> None:
    path = tmp_path / "000000000"
    with TouchNetWriter(path, MODALITIES) as writer:
        for audio, metainfo in samples:
            writer.add({"audio": memoryview(audio), "metainfo": metainfo})
        assert len(writer) == len(samples)
        assert not path.exists()
    audios, metainfos = [audio for audio, _ in samples], [metainfo for _, metainfo in samples]
    assert {name: (path / name).read_bytes() for name in os.listdir(path)} == {
        "audio.bin": b"".join(audios),
        "audio.idx": index_of(3, 2, audios),
        "metainfo.bin": b"".join(metainfos),
        "metainfo.idx": index_of(1, 1, metainfos),
    }
    assert os.listdir(tmp_path) == ["000000000"]


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), TouchNetWriter(tmp_path / "shard", MODALITIES) as writer:
        writer.add({"audio": b"12", "metainfo": b"{}"})
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


def test_a_sample_that_does_not_fit_is_not_written(tmp_path: Path) -> None:
    with TouchNetWriter(tmp_path / "shard", MODALITIES) as writer:
        writer.add({"audio": b"12", "metainfo": b"a"})
        with pytest.raises(FormatError, match="sample 1 has 3 bytes of audio"):
            writer.add({"metainfo": b"b", "audio": b"123"})
        with pytest.raises(FormatError, match="sample 1 has audio, the shard audio, metainfo"):
            writer.add({"audio": b"12"})
        writer.add({"audio": b"34", "metainfo": b"c"})
    assert (tmp_path / "shard" / "audio.bin").read_bytes() == b"1234"
    assert (tmp_path / "shard" / "metainfo.bin").read_bytes() == b"ac"


def test_what_cannot_be_a_shard(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot hold >i2"):
        TouchNetWriter(tmp_path / "shard", {"audio": np.dtype(">i2")})
    with pytest.raises(UsageError, match="cannot be named"):
        TouchNetWriter(tmp_path / "shard", {"../audio": np.dtype("<i2")})
    (tmp_path / "shard").mkdir()
    with pytest.raises(UsageError, match="already exists"), TouchNetWriter(tmp_path / "shard", MODALITIES):
        pass
