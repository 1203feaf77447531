import io
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from touchfs.containers.lines.layout import line_offsets, value_span
from touchfs.core.extent import Buffer


def offsets(*blocks: Buffer) -> list[int]:
    return [offset for found in line_offsets(blocks) for offset in found.tolist()]


def naive(data: bytes) -> list[int]:
    return list(accumulate(map(len, io.BytesIO(data).readlines()), initial=0))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", [0]),
        (b"\n", [0, 1]),
        (b"{}", [0, 2]),
        (b"{}\n", [0, 3]),
        (b"{}\n\n{}\n", [0, 3, 4, 7]),
        (b"{}\r\n{}", [0, 4, 6]),
        (b"\xef\xbb\xbf{}\n", [0, 6]),
    ],
)
def test_offsets(data: bytes, expected: list[int]) -> None:
    assert offsets(data) == expected
    assert offsets(*(data[i : i + 1] for i in range(len(data)))) == expected


texts = st.lists(st.sampled_from([b"\n", b"\r\n", b"a", b"{}", b"\xc2\x85", b"\x0b", b" "]), max_size=40).map(b"".join)


@given(texts, st.lists(st.integers(0, 60), max_size=6))
def test_any_blocks(data: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(data)]
    blocks = [data[a:b] for a, b in pairwise(places)]
    assert offsets(*(memoryview(block) for block in blocks)) == naive(data)


def test_a_file_is_never_kept_whole() -> None:
    line = b'{"a": 1}\n'
    most = 0
    count = 0
    for found in line_offsets(line * 1000 for _ in range(100)):
        most = max(most, len(found))
        count += len(found)
    assert count == 100_001
    assert most <= 1000


@pytest.mark.parametrize(
    ("line", "offset", "span"),
    [
        (b'{"a": 1}\n', 7, (7, 8)),
        (b'{"a": 1}\r\n', 7, (7, 8)),
        (b'{"a": 1}', 7, (7, 8)),
        (b' \t{"a": 1} \r\n', 7, (9, 8)),
        (b"\xef\xbb\xbf{}\n", 0, (3, 2)),
        (b"\xef\xbb\xbf{}\n", 9, (9, 5)),
        (b"\xef\xbb\xbf", 0, (3, 0)),
        (b"\n", 5, (5, 0)),
        (b"  \r\n", 5, (5, 0)),
        (b"", 5, (5, 0)),
    ],
)
def test_where_the_value_is(line: bytes, offset: int, span: tuple[int, int]) -> None:
    assert value_span(memoryview(line), offset) == span


@given(texts, st.integers(0, 3))
def test_the_value_is_in_the_line(line: bytes, offset: int) -> None:
    start, length = value_span(line, offset)
    assert offset <= start
    assert start + length <= offset + len(line)
    assert line[start - offset :][:length].strip() == line.strip(b" \t\r\n").strip()
