import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from touchfs.core.errors import FormatError
from touchfs.format.idx.offsets import build, foreign_format, parse


def raw(*offsets: int) -> bytes:
    return struct.pack(f"<{len(offsets)}Q", *offsets)


ascending = st.lists(st.integers(0, 2**62), min_size=1, max_size=50).map(sorted)


@given(ascending, st.integers(0, 2**61))
def test_round_trip(offsets: list[int], more: int) -> None:
    size = offsets[-1] + more
    data = build(offsets, size)
    assert data == raw(*offsets, size)
    assert parse(memoryview(data), size).tolist() == [*offsets, size]
    assert build(np.array(offsets), size) == data


def test_of_empty_files() -> None:
    assert build([], 0) == raw(0)
    assert parse(raw(0), 0).tolist() == [0]
    assert parse(raw(10240), 10240).tolist() == [10240]


@pytest.mark.parametrize(
    ("data", "size", "offset", "words"),
    [
        (b"", 9, 0, "0 bytes"),
        (raw(0, 9)[:-1], 9, 15, "15 bytes"),
        (raw(0, 5, 4, 9), 9, 16, "offset 4 comes after 5"),
        (raw(0, 5, 10), 9, 16, "offset 10 is past the end"),
        (raw(0, 9, 2**64 - 1), 9, 16, "past the end"),
        (raw(0, 5 << 56), 9, 8, "past the end"),
        (b"v1.2 3\nwav 512 7 a.wav\n", 9999, 0, "DALI"),
        (b"MMIDIDX\0\0\1" + bytes(30), 9999, 0, "MMIDIDX"),
    ],
)
def test_refusals(data: bytes, size: int, offset: int, words: str) -> None:
    with pytest.raises(FormatError, match=words) as caught:
        parse(data, size)
    assert caught.value.offset == offset


@given(st.binary(max_size=80) | ascending.map(lambda offsets: raw(*offsets)), st.integers(0, 2**63 - 1))
def test_any_bytes(data: bytes, size: int) -> None:
    try:
        offsets = parse(data, size).tolist()
    except FormatError as error:
        assert error.offset is not None
        assert 0 <= error.offset <= len(data)
        return
    assert offsets == sorted(offsets)
    assert raw(*offsets) == data
    assert offsets[-1] <= size


def test_what_cannot_be_an_index() -> None:
    with pytest.raises(FormatError, match="offset 5 cannot be followed by 4") as caught:
        build([0, 5, 4], 9)
    assert caught.value.offset == 8
    with pytest.raises(FormatError, match="cannot be followed"):
        build([-1], 9)
    with pytest.raises(FormatError, match="cannot be followed"):
        build([0, 10], 9)


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"MMIDIDX\0\0\1\0\0\0\0\0\0", "MMIDIDX"),
        (b"TNTIDX\0\0", "TNTIDX"),
        (b"IDXPACK2\2\0\0\0", "IDXPACK"),
        (b"SQLite format 3\0", "SQLite"),
        (b"JIDX0001", "JIDX"),
        (b"v1.2 1000\n", "DALI"),
        (b"v1.", None),
        (b"", None),
        (raw(0, 1024), None),
    ],
)
def test_strangers(head: bytes, name: str | None) -> None:
    assert foreign_format(memoryview(head)) == name
