"""What streams say about data that are not what they should be."""

import gzip
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from tars import write_tar

from touchfs.core.errors import FormatError
from touchfs.node import LazyManifestIterator, LazySharIterator
from touchfs.sample_set import SampleSet

LINES = b'\n{"id": "a"}\nnonsense\n{"id": "b"}\n[1]\n'


def read_lines(path: Path) -> LazyManifestIterator:
    return LazyManifestIterator(path)


def read_command(path: Path) -> LazyManifestIterator:
    return LazyManifestIterator(f"pipe:cat {path}")


def read_shar(path: Path) -> LazySharIterator:
    path.rename(path.with_name("cuts.000000.jsonl"))
    return LazySharIterator(in_dir=path.parent)


def read_compressed_shar(path: Path) -> LazySharIterator:
    path.with_name("cuts.000000.jsonl.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    path.unlink()
    return LazySharIterator(in_dir=path.parent)


def read_shar_of_commands(path: Path) -> LazySharIterator:
    return LazySharIterator({"cuts": [f"pipe:cat {path}"]})


READERS = [read_lines, read_command, read_shar, read_compressed_shar, read_shar_of_commands]
Reader = Callable[[Path], LazyManifestIterator | LazySharIterator]


@pytest.mark.parametrize("read", READERS)
def test_a_damaged_line_is_named_and_all_are_counted(
    read: Reader, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "x.jsonl").write_bytes(LINES)
    with caplog.at_level(logging.WARNING):
        samples = list(read(tmp_path / "x.jsonl"))
    assert [sample.key for sample in samples] == ["a", "00000001", "b", "00000003"]
    first, last = (record.getMessage() for record in caplog.records)
    assert str(tmp_path) in first and "the line at byte 13 is not JSON" in first
    assert str(tmp_path) in last and last.endswith(": 2 problems in all")
    assert "touchfs-shar-" not in first + last


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("data", "what"),
    [
        (gzip.compress(LINES, mtime=0), "is compressed by gzip, and not JSON lines"),
        (b"PAR1" + bytes(20), "is a Parquet file, and not JSON lines"),
        (b"\n\n\1\2\0\n", "is binary data in an unknown format, and not JSON lines"),
        ('{"id": "é"}\n'.encode("latin-1"), "is not UTF-8"),
    ],
)
def test_what_is_no_text_has_no_samples(read: Reader, data: bytes, what: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(data)
    with pytest.raises(FormatError, match=what) as caught:
        list(read(tmp_path / "x.jsonl"))
    assert "touchfs-shar-" not in str(caught.value)


def test_a_tar_is_not_json_lines(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar", {"a.txt": b"text"})
    for source in (LazyManifestIterator(f"pipe:cat {path}"), LazySharIterator({"cuts": [f"pipe:cat {path}"]})):
        with pytest.raises(FormatError, match="is a tar, and not JSON lines: let the command write JSON lines"):
            list(source)


def test_what_a_shard_cannot_show_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_tar(tmp_path / "x.tar", {"a.txt": b"text"})
    path.write_bytes(path.read_bytes()[:1024])
    with caplog.at_level(logging.WARNING):
        assert len(list(SampleSet.from_file(path, indexed=False))) == 1
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: the archive has no end mark: it may have been cut (at byte 1024)"
    ]
