import re
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from touchfs.errors import FormatError
from touchfs.format.offsets import (
    Grouping,
    bounds,
    build,
    build_pairs,
    find_grouping,
    find_stranger,
    parse,
    parse_lines,
)


def raw(*offsets: int) -> bytes:
    return struct.pack(f"<{len(offsets)}Q", *offsets)


def array(*offsets: int) -> np.ndarray:
    return np.array(offsets, np.int64)


ascending = st.lists(st.integers(0, 2**62), min_size=1, max_size=50).map(sorted)


@given(ascending, st.integers(0, 2**61))
def test_round_trip(offsets: list[int], more: int) -> None:
    size = offsets[-1] + more
    data = build(offsets, size)
    assert data == raw(*offsets, size)
    assert parse(memoryview(data), size).tolist() == [*offsets, size]
    assert build(np.array(offsets), size) == data


def test_of_empty_files() -> None:
    assert build([], 0) == build_pairs([], 0) == raw(0)
    assert parse_lines(raw(0), 0).tolist() == [0]
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


@pytest.mark.parametrize(
    ("data", "offset", "words"),
    [
        (raw(0, 5), 8, "made for a file of 5 bytes, this has 9"),
        (raw(1, 9), 0, "does not begin at byte 0"),
        (raw(0, 5, 5, 9), 8, "without any bytes"),
    ],
)
def test_lines_leave_no_doubt(data: bytes, offset: int, words: str) -> None:
    with pytest.raises(FormatError, match=words) as caught:
        parse_lines(data, 9)
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
    with pytest.raises(FormatError, match="3 members has not two a sample"):
        build_pairs([0, 1024, 2048], 10240)


def test_pairs() -> None:
    assert build_pairs([0, 1024, 2048, 3072], 10240) == raw(0, 2048, 10240)


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
    assert find_stranger(memoryview(head)) == name


def tar(*names: str) -> list[tuple[str, int, bool]]:
    """Members of one block of data; a name with a slash at its end is a directory."""
    return [(name, 1024 * i, not name.endswith("/")) for i, name in enumerate(names)]


SHAR = tar("a.wav", "a.json", "b.nodata", "b.nometa", "c.x.wav", "c.x.json")
PAIRS = array(0, 2048, 4096)
END = 6144


@pytest.mark.parametrize("last", [[], [END], [END + 1024], [10240], [20480], [END, 10240]])
def test_whatever_the_last_number_is(last: list[int]) -> None:
    """Energon, zero blocks, Lhotse's short read, Lhotse, and one repaired by hand."""
    offsets = np.append(PAIRS, array(*last))
    assert find_grouping(offsets, SHAR, END) is Grouping.PAIRS
    assert bounds(offsets, END).tolist() == [0, 2048, 4096, END]


def test_groupings() -> None:
    runs = tar("a.wav", "a.txt", "a.seg.json", "d/", "b.wav", "__meta__/x.json", "b.txt", "c.wav")
    webdataset = array(0, 4096, 7168, 20480)
    assert find_grouping(webdataset, runs, 8192) is Grouping.RUNS
    assert bounds(webdataset, 8192).tolist() == [0, 4096, 7168, 8192]
    assert find_grouping(array(0, 2048, 4096, 5120, 6144, 7168, 20480), runs, 8192) is Grouping.RUNS, "NeMo: a.seg"
    assert find_grouping(array(0, 1024, 2048, 4096, 5120, 6144, 7168), runs, 8192) is Grouping.MEMBERS
    assert find_grouping(array(0, 2048, 4096, 6144, 20480), runs, 8192) is None, "no pairs, though Lhotse made them"
    assert find_grouping(array(0, 1024, 2048, 10240), tar("a/1.wav", "a/2.wav", "b/3.wav"), 3072) is Grouping.RUNS
    assert find_grouping(array(0, 10240), tar("a.wav"), 1024) is Grouping.RUNS


def test_of_another_file() -> None:
    assert find_grouping(PAIRS[:2], SHAR, END) is None, "too few"
    assert find_grouping(np.append(PAIRS, array(5000, 10240)), SHAR, END) is None, "too many"
    assert find_grouping(array(0, 2048, 4608, 10240), SHAR, END) is None
    assert find_grouping(array(10240), [], 0) is Grouping.PAIRS


def test_the_first_members_tell() -> None:
    offsets = np.append(np.arange(0, 2048 * 500, 2048), 2048 * 500)
    assert find_grouping(offsets, SHAR) is find_grouping(offsets, SHAR[:5]) is Grouping.PAIRS
    assert find_grouping(np.arange(0, 1024 * 1000, 1024), SHAR) is Grouping.MEMBERS
    assert find_grouping(offsets, [(name, 512 + offset, True) for name, offset, _ in SHAR]) is None


@given(
    st.lists(st.sampled_from(["a.wav", "a.json", "b.wav", "b.c.json", ".x", "y", "d/", "d/a.wav", "", "__m__", "a./b"]))
)
def test_what_energon_would_write_is_known(names: list[str]) -> None:
    members = tar(*names)
    key = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$")
    starts: list[int] = []
    before = None
    for name, offset, is_file in members:
        if is_file and not name.startswith("__") and (found := key.match(name)):
            if found[1] != before:
                starts.append(offset)
            before = found[1]
    end = 1024 * len(members)
    grouping = find_grouping(array(*starts, end), members, end)
    assert grouping in (Grouping.RUNS, Grouping.PAIRS)
