import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from touchfs.errors import FormatError
from touchfs.extent import Plan, T
from touchfs.format.mmidx import (
    DTYPES,
    HEADER_SIZE,
    build_index,
    complete,
    parse_header,
    parse_index,
    scan_entries,
)

# audio.idx as TouchNet wrote it for samples of 16000, 40000 and 48000 elements
GOLDEN = bytes.fromhex(
    """
    4d4d 4944 4944 5800 0001 0000 0000 0000
    0003 0300 0000 0000 0000 0400 0000 0000
    0000 803e 0000 409c 0000 80bb 0000 0000
    0000 0000 0000 007d 0000 0000 0000 80b5
    0100 0000 0000 0000 0000 0000 0000 0100
    0000 0000 0000 0200 0000 0000 0000 0300
    0000 0000 0000
    """
)

codes = st.sampled_from(sorted(DTYPES))
lengths = st.lists(st.integers(0, 2**31 - 1), max_size=20)


def header(count: int, documents: int, magic: bytes = b"MMIDIDX\0\0", version: int = 1, code: int = 3) -> bytes:
    return struct.pack("<9sQBQQ", magic, version, code, count, documents)


def index_of(lengths: list[int], offsets: list[int], documents: list[int]) -> bytes:
    n, m = len(lengths), len(documents)
    return header(n, m) + struct.pack(f"<{n}i{n}q{m}q", *lengths, *offsets, *documents)


def test_golden() -> None:
    index = parse_index(GOLDEN)
    assert index.dtype == np.dtype("<i2")
    assert len(index) == 3
    assert index.lengths.tolist() == [16000, 40000, 48000]
    assert index.sizes.tolist() == [32000, 80000, 96000]
    assert index.offsets.tolist() == [0, 32000, 112000]
    assert index.documents.tolist() == [0, 1, 2, 3]
    assert build_index(3, [16000, 40000, 48000]) == GOLDEN
    assert build_index(np.dtype(np.int16), [16000, 40000, 48000]) == GOLDEN


def test_empty_shard_has_42_bytes() -> None:
    data = build_index(1, [])
    assert len(data) == 42
    assert len(parse_index(data)) == 0
    assert parse_index(data).documents.tolist() == [0]


@given(codes, lengths, st.none() | st.lists(st.integers(0, 2**40), max_size=5))
def test_round_trip(code: int, lengths: list[int], documents: list[int] | None) -> None:
    index = parse_index(memoryview(build_index(code, lengths, documents)))
    assert index.dtype == DTYPES[code]
    assert index.lengths.tolist() == lengths
    assert index.offsets.tolist() == [sum(lengths[:i]) * index.dtype.itemsize for i in range(len(lengths))]
    assert index.documents.tolist() == (list(range(len(lengths) + 1)) if documents is None else documents)


def test_lenient_documents() -> None:
    assert parse_index(index_of([5], [0], [0])).documents.tolist() == [0]
    assert parse_index(index_of([5, 5], [0, 10], [0, 2, 2])).documents.tolist() == [0, 2, 2]


@pytest.mark.parametrize(
    ("data", "offset", "words"),
    [
        (b"", 0, "ends inside"),
        (b"MMIDI", 5, "ends inside"),
        (header(0, 0)[:33], 33, "ends inside"),
        (b"NOTANIDX" * 9, 0, "not an index"),
        (b"TNTIDX\0\0" + bytes(50), 0, "TNTIDX"),
        (b"v1.2 3\nwav 512 7 a.wav\n" * 3, 0, "DALI"),
        (header(0, 0, version=2), 9, "version 2"),
        (header(0, 0, code=9), 17, "dtype code 9"),
        (header(3, 4), 18, "102 bytes, this has 34"),
        (header(2**64 - 1, 2**64 - 1), 18, "this has 34"),
        (GOLDEN + b"\0", 18, "this has 103"),
        (index_of([1, -2], [0, 2], []), 34 + 4, "sample 1 has a negative length, -2"),
        (index_of([1, 2], [0, -1], []), 34 + 8 + 8, "sample 1 begins at a negative byte"),
        (index_of([1, 2, 3], [0, 9, 8], []), 34 + 12 + 16, "sample 2 begins before sample 1"),
    ],
)
def test_refusals(data: bytes, offset: int, words: str) -> None:
    with pytest.raises(FormatError, match=words) as caught:
        parse_index(data)
    assert caught.value.offset == offset


@given(st.binary(max_size=200) | st.binary(max_size=150).map(lambda tail: header(2, 3) + tail))
def test_any_bytes(data: bytes) -> None:
    check_hostile(data)


@given(st.integers(0, len(GOLDEN) - 1), st.integers(1, 255), st.integers(0, len(GOLDEN)))
def test_any_flipped_byte_or_cut(position: int, change: int, size: int) -> None:
    data = bytearray(GOLDEN)
    data[position] ^= change
    check_hostile(bytes(data))
    check_hostile(bytes(data[:size]))


def check_hostile(data: bytes) -> None:
    try:
        index = parse_index(data)
    except FormatError as error:
        assert error.offset is not None
        assert 0 <= error.offset <= len(data)
        return
    for bin_size in (0, 208_000, 2**62):
        inside = complete(index, bin_size).tolist()
        assert inside == [
            offset + size <= bin_size for offset, size in zip(index.offsets.tolist(), index.sizes.tolist(), strict=True)
        ]


def test_complete() -> None:
    index = parse_index(GOLDEN)
    assert complete(index, 208_000).tolist() == [True, True, True]
    assert complete(index, 207_999).tolist() == [True, True, False]
    assert complete(index, 0).tolist() == [False, False, False]


def test_a_length_that_does_not_fit_names_its_sample() -> None:
    with pytest.raises(FormatError, match="sample 1 has 2147483648 elements"):
        build_index(1, [0, 2**31, 2**31])
    with pytest.raises(FormatError, match="sample 2 "):
        build_index(1, [0, 1, 2**70])
    assert parse_index(build_index(1, [2**31 - 1])).lengths.tolist() == [2**31 - 1]


def test_a_dtype_that_does_not_fit() -> None:
    for dtype in (np.dtype(">i2"), np.dtype("u8"), np.dtype("U3")):
        with pytest.raises(FormatError, match="cannot hold"):
            build_index(dtype, [])
    with pytest.raises(FormatError, match="code 0"):
        build_index(0, [])


@given(codes, lengths, st.data())
def test_some_entries(code: int, lengths: list[int], data: st.DataObject) -> None:
    built = build_index(code, lengths)
    header = parse_header(built[:HEADER_SIZE], len(built))
    assert (header.dtype, header.count, header.documents) == (DTYPES[code], len(lengths), len(lengths) + 1)
    first = data.draw(st.integers(0, len(lengths)))
    count = data.draw(st.integers(0, len(lengths) - first))
    found = drive(scan_entries(header, first, count), built)
    index = parse_index(built)
    assert found[0].tolist() == index.lengths[first : first + count].tolist()
    assert found[1].tolist() == index.offsets[first : first + count].tolist()


def test_some_entries_that_no_writer_wrote() -> None:
    built = index_of([1, 2, -3, 4, 5], [0, 2, 6, 5, -1], [])
    header = parse_header(built, len(built))
    assert [array.tolist() for array in drive(scan_entries(header, 0, 2), built)] == [[1, 2], [0, 2]]
    for first, words, offset in (
        (2, "sample 2 has a negative length, -3", 34 + 2 * 4),
        (3, "sample 4 begins at a negative byte, -1", 34 + 5 * 4 + 4 * 8),
    ):
        with pytest.raises(FormatError, match=words) as caught:
            drive(scan_entries(header, first, 5 - first), built)
        assert caught.value.offset == offset


def drive(plan: Plan[T], data: bytes) -> T:
    """A source is for another floor: here the bytes are at hand."""
    try:
        offset, length = next(plan)
        while True:
            offset, length = plan.send(data[offset : offset + length])
    except StopIteration as end:
        result: T = end.value
        return result
