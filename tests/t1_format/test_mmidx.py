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
    document_starts,
    parse_header,
    parse_index,
    scan_dtype,
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
        (header(0, 0, code=11), 17, "dtype code 11"),
        (header(3, 4), 18, "102 bytes, this has 34"),
        (header(2**64 - 1, 2**64 - 1), 18, "this has 34"),
        (GOLDEN + b"\0", 18, "this has 103"),
        (index_of([1, -2, 3], [0, 2, 9], []), 34 + 4, "sample 1 has a negative length, -2"),
        (index_of([1, 2], [0, -1], []), 34 + 8 + 8, "sample 1 begins at a negative byte"),
        (index_of([1, 2, 3], [0, 9, 8], []), 34 + 12 + 16, "sample 2 begins before sample 1"),
    ],
)
def test_refusals(data: bytes, offset: int, words: str) -> None:
    with pytest.raises(FormatError, match=words) as caught:
        parse_index(data)
    assert caught.value.offset == offset


@given(
    st.binary(max_size=200)
    | st.binary(max_size=150).map(lambda tail: header(2, 3) + tail)
    | st.binary(min_size=24, max_size=24).map(lambda tail: header(2, 0)[:26] + tail)
    | st.binary(min_size=26, max_size=26).map(lambda tail: header(2, 0) + tail)
)
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


def fairseq_of(code: int, lengths: list[int], offsets: list[int]) -> bytes:
    n = len(lengths)
    head = struct.pack("<9sQBQ", b"MMIDIDX\0\0", 1, code, n)
    return head + struct.pack(f"<{n}i{n}q", *lengths, *offsets)


@given(codes | st.sampled_from([9, 10]), st.lists(st.integers(0, 2**31 - 1), max_size=20), st.data())
def test_fairseq(code: int, lengths: list[int], data: st.DataObject) -> None:
    width = {**{code: dtype.itemsize for code, dtype in DTYPES.items()}, 7: 8, 9: 4, 10: 8}[code]
    offsets = [sum(lengths[:i]) * width for i in range(len(lengths))]
    built = fairseq_of(code, lengths, offsets)
    index = parse_index(built)
    assert (index.dtype.itemsize, index.dtype.kind == "f") == (width, code in (6, 7))
    assert index.lengths.tolist() == lengths
    assert index.offsets.tolist() == offsets
    assert index.modes is None and len(index.documents) == 0 and document_starts(index) is None
    header = parse_header(built[:HEADER_SIZE], len(built))
    assert header.count == len(lengths)
    first = data.draw(st.integers(0, len(lengths)))
    count = data.draw(st.integers(0, len(lengths) - first))
    found = drive(scan_entries(header, first, count), built)
    assert [array.tolist() for array in found] == [each[first : first + count] for each in (lengths, offsets)]


def test_fairseq_types() -> None:
    kinds = [parse_index(fairseq_of(code, [], [])).dtype.str for code in range(1, 11)]
    assert kinds == ["|u1", "|i1", "<i2", "<i4", "<i8", "<f8", "<f8", "<u2", "<u4", "<u8"]


@given(lengths, st.data())
def test_modes(lengths: list[int], data: st.DataObject) -> None:
    modes = data.draw(st.lists(st.integers(-128, 127), min_size=len(lengths), max_size=len(lengths)))
    built = build_index(4, lengths)
    index = parse_index(built + struct.pack(f"<{len(modes)}b", *modes))
    assert (index.modes is None) == (not modes)
    assert index.modes is None or index.modes.tolist() == modes
    assert index.lengths.tolist() == lengths


@given(lengths.filter(lambda lengths: len(lengths) > 2), st.integers(26, 34 + 12 * 20 + 8 * 21))
def test_a_cut_is_never_taken_for_the_whole(lengths: list[int], size: int) -> None:
    """Cut to 26 + 12N bytes it is as long as one of fairseq with as many samples."""
    whole = build_index(4, [length or 1 for length in lengths])
    for cut in (size, 26 + 12 * len(lengths)):
        if cut < len(whole):
            with pytest.raises(FormatError):
                parse_index(whole[:cut])


@pytest.mark.parametrize("code", [6, 7])
@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("lengths", [[5, 6], [0, 0, 3, 0], [0] * 3000 + [2, 1], [7]])
def test_the_offsets_tell_which_float_it_is(code: int, width: int, lengths: list[int]) -> None:
    offsets = [sum(lengths[:i]) * width for i in range(len(lengths))]
    built = bytearray(index_of(lengths, offsets, []))
    built[17] = code
    bin_size = sum(lengths) * width
    assert parse_index(built, bin_size).dtype == np.dtype(f"<f{width}")
    header = parse_header(built[:HEADER_SIZE], len(built))
    assert drive(scan_dtype(header, bin_size), bytes(built)).dtype == np.dtype(f"<f{width}")


@pytest.mark.parametrize("code", [6, 7])
def test_nothing_tells_which_float_it_is(code: int) -> None:
    built = bytearray(index_of([0, 3], [0, 0], []))
    built[17] = code
    for bin_size in (None, 3, 1000):
        assert parse_index(built, bin_size).dtype == DTYPES[code]


LONG = st.integers(0, 5) | st.integers(2**31 - 2, 2**31 + 2) | st.integers(2**32 - 2, 2**32 - 1)


@given(st.lists(LONG, min_size=1, max_size=8), st.sampled_from([1, 3, 4]), st.data())
def test_lengths_that_overflowed(lengths: list[int], code: int, data: st.DataObject) -> None:
    width = DTYPES[code].itemsize
    stored = [length - 2**32 if length >= 2**31 else length for length in lengths]
    offsets = [sum(lengths[:i]) * width for i in range(len(lengths))]
    built = bytearray(index_of(stored, offsets, []))
    built[17] = code
    for bin_size in (sum(lengths) * width, None):
        index = parse_index(built, bin_size)
        assert index.lengths.tolist() == lengths
    assert complete(parse_index(built, 5), 5).tolist() == [
        offset + length * width <= 5 for offset, length in zip(offsets, lengths, strict=True)
    ]
    header = parse_header(built[:HEADER_SIZE], len(built))
    first = data.draw(st.integers(0, len(lengths) - 1))
    count = data.draw(st.integers(0, len(lengths) - first))
    found = drive(scan_entries(header, first, count, sum(lengths) * width), bytes(built))
    assert [array.tolist() for array in found] == [each[first : first + count] for each in (lengths, offsets)]


def test_a_length_that_overflowed_twice() -> None:
    """The last sample's end is the .bin's; the other's is the next one's beginning."""
    stored = 2**32 + 2**31 - 2**33
    length = 2**32 + 2**31
    assert parse_index(index_of([stored, 1], [0, 2 * length], [])).lengths.tolist() == [length, 1]
    assert parse_index(index_of([stored], [0], []), 2 * length).lengths.tolist() == [length]


@pytest.mark.parametrize(
    ("documents", "starts"),
    [
        ([0, 1, 2, 3, 4], None),
        ([0, 4], [0, 4]),
        ([0, 0, 4, 4], [0, 0, 4, 4]),
        ([], None),
        ([0], None),
        ([4], None),
        ([0, 3], [0, 3, 4]),
        ([1, 4], [0, 1, 4]),
        ([1, 2, 3], None),
        ([0, 3, 2, 4], None),
        ([0, 5], None),
        ([-1, 4], None),
    ],
)
def test_document_starts(documents: list[int], starts: list[int] | None) -> None:
    found = document_starts(parse_index(index_of([1] * 4, [0, 2, 4, 6], documents)))
    assert (None if found is None else found.tolist()) == starts


@given(st.lists(st.integers(-3, 9), max_size=6), st.integers(0, 6))
def test_whatever_the_documents_are_they_cover_all_samples(documents: list[int], count: int) -> None:
    starts = document_starts(parse_index(index_of([0] * count, [0] * count, documents)))
    if starts is not None:
        assert (starts[0], starts[-1]) == (0, count)
        assert (np.diff(starts) >= 0).all()


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
