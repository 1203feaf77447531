import pytest
from conformance import MemorySource, check_reads, check_source
from hypothesis import given
from hypothesis import strategies as st

from touchfs.core.errors import SourceError
from touchfs.core.extent import Content, Extent, Memory, Rope

DATA = bytes(range(251)) * 3


def test_the_tests_own_source() -> None:
    check_source(MemorySource)


@pytest.mark.parametrize(
    ("content", "data"),
    [
        (Memory(b""), b""),
        (Memory(DATA), DATA),
        (Extent(MemorySource(DATA), 0, len(DATA)), DATA),
        (Extent(MemorySource(DATA), 100, 50), DATA[100:150]),
        (Extent(MemorySource(DATA), len(DATA), 0), b""),
        (Rope([]), b""),
        (Rope([Memory(b"")]), b""),
        (Rope([Memory(b"header"), Extent(MemorySource(DATA), 3, 700)]), b"header" + DATA[3:703]),
        (Rope([Memory(b""), Memory(b"a"), Memory(b""), Memory(b""), Memory(b"bc"), Memory(b"")]), b"abc"),
        (Rope([Rope([Memory(b"ab"), Rope([])]), Extent(MemorySource(DATA), 9, 9)]), b"ab" + DATA[9:18]),
    ],
    ids=lambda value: f"{len(value)} bytes" if isinstance(value, bytes) else type(value).__name__,
)
def test_contents(content: Content, data: bytes) -> None:
    check_reads(content, data)


@given(st.lists(st.binary(max_size=9), max_size=9), st.data())
def test_a_rope_is_its_parts_end_to_end(parts: list[bytes], choose: st.DataObject) -> None:
    make = [lambda part: Memory(part), lambda part: Extent(MemorySource(b"<" + part + b">"), 1, len(part))]
    rope = Rope([choose.draw(st.sampled_from(make))(part) for part in parts])
    data = b"".join(parts)
    for offset in range(len(data) + 2):
        for length in range(len(data) + 2 - offset):
            assert rope.read(offset, length) == data[offset : offset + length]
    check_reads(rope, data)


def test_a_rope_waits_when_a_part_would() -> None:
    source = MemorySource(DATA)
    rope = Rope([Memory(b"header"), Extent(source, 0, 100)])
    answers = [rope.read_nowait(0, 50) for _ in range(4)]
    assert answers == [b"header" + DATA[:44], None] * 2
    assert [rope.read_nowait(0, 6) for _ in range(4)] == [b"header"] * 4, "it asked a part that was not needed"


def test_a_source_that_ends_early_is_an_error_and_not_fewer_bytes() -> None:
    extent = Extent(MemorySource(DATA), 700, 100)
    assert extent.read(0, 50) == DATA[700:750]
    for content in (extent, Rope([Memory(b"x"), extent])):
        with pytest.raises(SourceError):
            content.read(0, 101)


def test_an_extent_never_shows_its_neighbours() -> None:
    extent = Extent(MemorySource(DATA), 10, 5)
    assert extent.read(0, 2**62) == extent.read_nowait(0, 2**62) == DATA[10:15]
    assert extent.read(5, 1) == extent.read_nowait(5, 1) == extent.read(6, 1) == extent.read_nowait(2**70, 1) == b""
