import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from touchfs.containers.touchnet.layout import mmidx
from touchfs.containers.touchnet.layout.mmidx import (
    DTYPES,
    HEADER_SIZE,
    build_index,
    document_starts,
    has_sound_documents,
    parse_header,
    parse_index,
    scan_entries,
    scan_header,
)
from touchfs.containers.touchnet.layout.mmidx_entries import Entries, damage_text
from touchfs.core.errors import FormatError
from touchfs.core.extent import Reads, T

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
    index = parse_index(GOLDEN, 208_000)
    assert index.dtype == np.dtype("<i2")
    assert len(index) == 3
    assert shown(index.entries) == ([16000, 40000, 48000], [0, 32000, 112000], [0, 0, 0])
    assert index.sizes.tolist() == [32000, 80000, 96000]
    assert index.documents.tolist() == [0, 1, 2, 3]
    assert build_index(3, [16000, 40000, 48000]) == GOLDEN
    assert build_index(np.dtype(np.int16), [16000, 40000, 48000]) == GOLDEN


def shown(entries: Entries) -> tuple[list[int], list[int], list[int]]:
    return entries.lengths.tolist(), entries.offsets.tolist(), entries.damage.tolist()


def damaged(data: bytes, bin_size: int) -> list[int]:
    """The ordinals of the damaged samples, the whole index judged at once or a sample at a time."""
    entries = parse_index(data, bin_size).entries
    header = drive(scan_header(parse_header(data[:HEADER_SIZE], len(data)), bin_size), data)
    for count in (1, 2, 3):
        for first in range(0, len(entries), count):
            part = drive(scan_entries(header, first, min(count, len(entries) - first), bin_size), data)
            assert shown(part) == shown(entries[first : first + count])
    return np.flatnonzero(entries.damage).tolist()


def test_empty_shard_has_42_bytes() -> None:
    data = build_index(1, [])
    assert len(data) == 42
    assert len(parse_index(data, 0)) == len(parse_index(data, 7)) == 0
    assert parse_index(data, 0).documents.tolist() == [0]


@given(codes, lengths, st.none() | st.lists(st.integers(0, 2**40), max_size=5))
def test_round_trip(code: int, lengths: list[int], documents: list[int] | None) -> None:
    width = DTYPES[code].itemsize
    try:
        index = parse_index(memoryview(build_index(code, lengths, documents)), sum(lengths) * width)
    except FormatError:
        assert documents
        return
    assert index.dtype == DTYPES[code]
    begins = [sum(lengths[:i]) * width for i in range(len(lengths))]
    assert shown(index.entries) == (lengths, begins, [0] * len(lengths))
    assert index.documents.tolist() == (list(range(len(lengths) + 1)) if documents is None else documents)


def test_lenient_documents() -> None:
    assert parse_index(index_of([5], [0], [0]), 10).documents.tolist() == [0]
    assert parse_index(index_of([5, 5], [0, 10], [0, 2, 2]), 20).documents.tolist() == [0, 2, 2]


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
        (index_of([1, 2], [4, 6], []), 18, "its entries are not those of 2 samples"),
        (index_of([1, 2], [2, 2], [0, 2]), 18, "its entries are not those of 2 samples"),
        (index_of([1, 2], [0, 2], [0, 1]), 18, "its entries are not those of 2 samples"),
    ],
)
def test_refusals(data: bytes, offset: int, words: str) -> None:
    with pytest.raises(FormatError, match=words) as caught:
        parse_index(data, 999)
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
    """The value or a FormatError; and what is not damaged lies inside the .bin, each sample at a place of its own."""
    for bin_size in (0, 208_000, 2**62):
        try:
            index = parse_index(data, bin_size)
        except FormatError as error:
            assert error.offset is None or 0 <= error.offset <= len(data)
            continue
        end = 0
        columns = zip(index.entries.offsets.tolist(), index.sizes.tolist(), index.entries.damage.tolist(), strict=True)
        for offset, size, damage in columns:
            if not damage:
                assert end <= offset <= offset + size <= bin_size
                end = offset + size


def fairseq_of(code: int, lengths: list[int], offsets: list[int]) -> bytes:
    n = len(lengths)
    head = struct.pack("<9sQBQ", b"MMIDIDX\0\0", 1, code, n)
    return head + struct.pack(f"<{n}i{n}q", *lengths, *offsets)


@given(codes | st.sampled_from([9, 10]), st.lists(st.integers(0, 2**31 - 1), max_size=20), st.data())
def test_fairseq(code: int, lengths: list[int], data: st.DataObject) -> None:
    width = {**{code: dtype.itemsize for code, dtype in DTYPES.items()}, 7: 8, 9: 4, 10: 8}[code]
    offsets = [sum(lengths[:i]) * width for i in range(len(lengths))]
    built = fairseq_of(code, lengths, offsets)
    index = parse_index(built, sum(lengths) * width)
    if not any(lengths):
        return  # nothing tells a float's size, and nothing depends on it
    assert (index.dtype.itemsize, index.dtype.kind == "f") == (width, code in (6, 7))
    assert shown(index.entries) == (lengths, offsets, [0] * len(lengths))
    assert index.modes is None and len(index.documents) == 0 and document_starts(index) is None
    header = parse_header(built[:HEADER_SIZE], len(built))
    assert header.count == len(lengths)
    first = data.draw(st.integers(0, len(lengths)))
    count = data.draw(st.integers(0, len(lengths) - first))
    header = drive(scan_header(header, sum(lengths) * width), built)
    found = shown(drive(scan_entries(header, first, count, sum(lengths) * width), built))
    assert found == (lengths[first : first + count], offsets[first : first + count], [0] * count)


def test_fairseq_types() -> None:
    kinds = [parse_index(fairseq_of(code, [], []), 0).dtype.str for code in range(1, 11)]
    assert kinds == ["|u1", "|i1", "<i2", "<i4", "<i8", "<f8", "<f8", "<u2", "<u4", "<u8"]


@given(lengths, st.data())
def test_modes(lengths: list[int], data: st.DataObject) -> None:
    modes = data.draw(st.lists(st.integers(-128, 127), min_size=len(lengths), max_size=len(lengths)))
    built = build_index(4, lengths)
    index = parse_index(built + struct.pack(f"<{len(modes)}b", *modes), 4 * sum(lengths))
    assert (index.modes is None) == (not modes)
    assert index.modes is None or index.modes.tolist() == modes
    assert index.entries.lengths.tolist() == lengths


@given(lengths.filter(lambda lengths: len(lengths) > 2), st.integers(26, 34 + 12 * 20 + 8 * 21))
def test_a_cut_is_never_taken_for_the_whole(lengths: list[int], size: int) -> None:
    """Cut to 26 + 12N bytes it is as long as one of fairseq with as many samples."""
    whole = build_index(4, [length or 1 for length in lengths])
    for cut in (size, 26 + 12 * len(lengths)):
        if cut < len(whole):
            with pytest.raises(FormatError):
                parse_index(whole[:cut], 4 * sum(length or 1 for length in lengths))


@pytest.mark.parametrize("code", [6, 7])
@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("lengths", [[5, 6], [0, 0, 3, 0], [0] * 3000 + [2, 1], [7]])
def test_the_offsets_tell_which_float_it_is(code: int, width: int, lengths: list[int]) -> None:
    offsets = [sum(lengths[:i]) * width for i in range(len(lengths))]
    built = bytearray(index_of(lengths, offsets, []))
    built[17] = code
    bin_size = sum(lengths) * width
    index = parse_index(built, bin_size)
    assert index.dtype == np.dtype(f"<f{width}")
    assert not index.entries.damage.any()
    header = parse_header(built[:HEADER_SIZE], len(built))
    assert drive(scan_header(header, bin_size), bytes(built)).dtype == np.dtype(f"<f{width}")


@pytest.mark.parametrize("damage", [1, 5])
def test_one_damaged_length_does_not_make_it_another_float(damage: int) -> None:
    """Half of the length would be right for elements twice as wide: the other samples outvote it."""
    lengths = [10, 3, 4, 10, 7, 10]
    offsets = [sum(lengths[:i]) * 4 for i in range(6)]
    built = bytearray(index_of([5 if i == damage - 1 else n for i, n in enumerate(lengths)], offsets, []))
    built[17] = 7
    assert parse_index(built, 4 * sum(lengths)).dtype == np.dtype("<f4")


@pytest.mark.parametrize("code", [6, 7])
def test_nothing_tells_which_float_it_is(code: int) -> None:
    built = bytearray(index_of([0, 3], [0, 0], []))
    built[17] = code
    for bin_size in (0, 3, 1000):
        assert parse_index(built, bin_size).dtype == DTYPES[code]


LONG = st.integers(0, 5) | st.integers(2**31 - 2, 2**31 + 2) | st.integers(2**32 - 2, 2**32 - 1)


@given(st.lists(LONG, min_size=1, max_size=8), st.sampled_from([1, 3, 4]), st.data())
def test_lengths_that_overflowed(lengths: list[int], code: int, data: st.DataObject) -> None:
    width = DTYPES[code].itemsize
    stored = [length - 2**32 if length >= 2**31 else length for length in lengths]
    offsets = [sum(lengths[:i]) * width for i in range(len(lengths))]
    built = bytearray(index_of(stored, offsets, []))
    built[17] = code
    assert shown(parse_index(built, sum(lengths) * width).entries) == (lengths, offsets, [0] * len(lengths))
    assert set(range(len(lengths))) - set(damaged(bytes(built), 5)) <= {
        i for i, (offset, length) in enumerate(zip(offsets, lengths, strict=True)) if offset + length * width <= 5
    }
    header = parse_header(built[:HEADER_SIZE], len(built))
    first = data.draw(st.integers(0, len(lengths) - 1))
    count = data.draw(st.integers(0, len(lengths) - first))
    found = shown(drive(scan_entries(header, first, count, sum(lengths) * width), bytes(built)))
    assert found == (lengths[first : first + count], offsets[first : first + count], [0] * count)


def test_a_length_that_overflowed_twice() -> None:
    """The last sample's end is the .bin's; the other's is the next one's beginning."""
    stored = 2**32 + 2**31 - 2**33
    length = 2**32 + 2**31
    for index, bin_size in (
        (index_of([stored, 1], [0, 2 * length], []), 2 * length + 2),
        (index_of([stored], [0], []), 2 * length),
    ):
        entries = parse_index(index, bin_size).entries
        assert entries.lengths[0] == length
        assert not entries.damage.any()


def test_an_offset_with_a_high_bit_flipped_is_no_overflow() -> None:
    """It fits the length modulo 2**32, but contradicts the sample behind it."""
    for bit in range(33, 62):
        offset = 6 + (1 << bit)
        assert damaged(index_of([1, 2, 3, 4], [0, 2, offset, 12], []), 20) == [1, 2, 3]
        assert damaged(index_of([1, 2, 3, 4], [0, 2, offset, 12], []), 1 << 62)[:3] == [1, 2, 3]


# Lengths and offsets that contradict each other


@pytest.mark.parametrize(
    ("lengths", "offsets", "ordinals"),
    [
        ([1, 2, 0, 3, 4], [0, 2, 6, 6, 12], []),
        ([1, 3, 0, 3, 4], [0, 2, 6, 6, 12], [1, 2]),
        ([1, 2, 1, 3, 4], [0, 2, 6, 6, 12], [2, 3]),
        ([1, 2, 0, -1, 4], [0, 2, 6, 6, 12], [3, 4]),
        ([9, 2, 0, 3, 4], [0, 2, 6, 6, 12], [0, 1]),
        ([1, 2, 0, 3, 5], [0, 2, 6, 6, 12], [4]),
        ([1, 2, 0, 3, 3], [0, 2, 6, 6, 12], [4]),
        ([1, 2, 0, 3, 4], [0, 2, 4, 6, 12], [1, 2, 3]),
        ([1, 2, 0, 3, 4], [0, 2, 6, 6, 13], [3, 4]),
        ([1, 2, 0, 3, 4], [0, 2, 6, 6, -12], [3, 4]),
        ([1, 2, 0, 3, 4], [1, 2, 6, 6, 12], [0, 1]),
        ([1, 2, 0, 3, 4], [-2, 2, 6, 6, 12], [0, 1]),
    ],
)
def test_both_samples_at_a_seam_that_does_not_fit_are_damaged(
    lengths: list[int], offsets: list[int], ordinals: list[int]
) -> None:
    assert damaged(index_of(lengths, offsets, []), 20) == ordinals
    assert damaged(fairseq_of(3, lengths, offsets), 20) == ordinals


def test_offsets_that_pass_the_largest_integer_are_damaged() -> None:
    limit = 2**63
    assert damaged(index_of([1, 2, 2, 1], [0, 2, limit - 4, 4 - limit + 4 - 8], []), 8) == [1, 2, 3]


def test_damage_is_one_line() -> None:
    short = parse_index(index_of([1, 2], [0, 2], []), 5).entries.damage.tolist()
    assert [damage and damage_text(damage, "audio") for damage in short] == [
        0,
        "audio.bin ends before this sample does",
    ]
    lengths, offsets = [1, 3, 4, 5], [0, 2, 6, 14]
    assert [
        damage and damage_text(damage, "x") for damage in parse_index(index_of(lengths, offsets, []), 30).entries.damage
    ] == [
        0,
        "x.idx says that this sample does not end where the next one begins",
        "x.idx says that this sample does not begin where the one before it ends",
        "x.idx says that this last sample does not end where x.bin does",
    ]


@pytest.mark.parametrize("lengths", [[3] * 4, [3] * 26, [3] * 104, [0] * 9 + [3] * 95, [5, 4] * 13 + [3] * 78])
def test_a_damaged_count_is_never_taken_for_another_layout(lengths: list[int]) -> None:
    """A count may be wrong in such a way that the size of the file is right for one of the other layouts."""
    n, m = len(lengths), len(lengths) + 1
    offsets = [sum(lengths[:i]) * 4 for i in range(n)]
    plain = bytearray(build_index(4, lengths))
    modes = plain + bytes(n)
    for good, at, most in ((plain, 18, 2 * n), (plain, 26, m), (modes, 18, 2 * n), (modes, 26, 2 * m)):
        for count in range(most):
            data = bytearray(good)
            data[at : at + 8] = struct.pack("<Q", count)
            if data == good:
                continue
            try:
                index = parse_index(data, 4 * sum(lengths))
            except FormatError:
                continue
            assert at == 26 and not has_sound_documents(index), "only the modes are lost, or bytes of documents"
            assert shown(index.entries) == (lengths, offsets, [0] * n)
    fairseq = bytearray(fairseq_of(4, lengths, offsets))
    for count in range(2 * n):
        data = bytearray(fairseq)
        data[18:26] = struct.pack("<Q", count)
        if data != fairseq:
            with pytest.raises(FormatError):
                parse_index(data, 4 * sum(lengths))


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
    index = parse_index(index_of([1] * 4, [0, 2, 4, 6], documents), 8)
    found = document_starts(index)
    assert (None if found is None else found.tolist()) == starts
    assert has_sound_documents(index) == (documents in ([], [0], [4], [0, 1, 2, 3, 4], [0, 4], [0, 0, 4, 4]))


@given(st.lists(st.integers(-3, 9), max_size=6), st.integers(0, 6))
def test_whatever_the_documents_are_they_cover_all_samples(documents: list[int], count: int) -> None:
    starts = document_starts(parse_index(index_of([0] * count, [0] * count, documents), 0))
    if starts is not None:
        assert (starts[0], starts[-1]) == (0, count)
        assert (np.diff(starts) >= 0).all()


def test_a_short_bin() -> None:
    for bin_size, ordinals in ((208_000, []), (207_999, [2]), (111_999, [1, 2]), (0, [0, 1, 2])):
        assert damaged(GOLDEN, bin_size) == ordinals


def test_a_length_that_does_not_fit_names_its_sample() -> None:
    with pytest.raises(FormatError, match="sample 1 has 2147483648 elements"):
        build_index(1, [0, 2**31, 2**31])
    with pytest.raises(FormatError, match="sample 2 "):
        build_index(1, [0, 1, 2**70])
    assert parse_index(build_index(1, [2**31 - 1]), 2**31 - 1).entries.lengths.tolist() == [2**31 - 1]


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
    bin_size = sum(lengths) * DTYPES[code].itemsize
    header = drive(scan_header(header, bin_size), built)
    first = data.draw(st.integers(0, len(lengths)))
    count = data.draw(st.integers(0, len(lengths) - first))
    found = drive(scan_entries(header, first, count, bin_size), built)
    assert shown(found) == shown(parse_index(built, bin_size).entries[first : first + count])


def drive(plan: Reads[T], data: bytes) -> T:
    """A source is for another floor: here the bytes are at hand."""
    try:
        offset, length = next(plan)
        while True:
            offset, length = plan.send(data[offset : offset + length])
    except StopIteration as end:
        result: T = end.value
        return result


def test_counts_that_cost_nothing_are_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with holes may claim any number of samples. Some empty ones are ordinary."""
    monkeypatch.setattr(mmidx, "EMPTY_MAX", 100)
    for count, bin_size, is_believed in ((101, 1, False), (100, 1, True), (101, 51, True)):
        data = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 1, count, 0) + bytes(12 * count)
        if is_believed:
            assert len(parse_index(data, bin_size)) == count
        else:
            with pytest.raises(FormatError, match=r"101 samples .* nearly all would be empty"):
                parse_index(data, bin_size)
