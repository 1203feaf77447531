import os
from pathlib import Path

import pytest
from conformance import check_source

from touchfs.core.errors import ChangedError, SourceError
from touchfs.source.concat import SplitFile
from touchfs.source.fingerprint import Fingerprint


def pieces(directory: Path, *contents: bytes) -> SplitFile:
    identities = {}
    for number, data in enumerate(contents):
        path = directory / str(number)
        path.write_bytes(data)
        identities[str(path)] = Fingerprint.of(path.stat())
    return SplitFile(identities)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_pieces_are_a_source(tmp_path_factory: pytest.TempPathFactory, count: int) -> None:
    def make(data: bytes) -> SplitFile:
        """Of odd sizes, among them none."""
        size = len(data) // count
        cut = [data[i * size : (i + 1) * size] for i in range(count - 1)]
        return pieces(tmp_path_factory.mktemp("pieces"), b"", *cut, b"", data[(count - 1) * size :], b"")

    check_source(make)


def test_no_pieces() -> None:
    none = SplitFile({})
    assert none.size == 0
    assert none.read(0, 0) == b""
    with pytest.raises(SourceError):
        none.read(0, 1)


def test_into_memory_that_is_there(tmp_path: Path) -> None:
    source = pieces(tmp_path, b"abc", b"def", b"ghi")
    assert source.size == 9
    for offset in range(9):
        for length in range(9 - offset):
            buffer = bytearray(length)
            source.read_into(offset, memoryview(buffer))
            assert bytes(buffer) == b"abcdefghi"[offset : offset + length]
    with pytest.raises(SourceError, match="the last piece ends here"):
        source.read_into(8, memoryview(bytearray(2)))


def test_opening_sees_a_piece_that_is_gone_or_another(tmp_path: Path) -> None:
    source = pieces(tmp_path, b"abc", b"def")
    source.open()
    source.close()
    (tmp_path / "1").write_bytes(b"longer")
    with pytest.raises(ChangedError):
        source.open()
    assert source.read(0, 3) == b"abc"
    os.unlink(tmp_path / "1")
    with pytest.raises(ChangedError):
        source.read(2, 2)
