"""Levels, indices, differences and plain values of Parquet pages."""

from __future__ import annotations

import struct
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from parquet_files import ParquetSource

from touchfs.core.errors import FormatError
from touchfs.core.extent import drive
from touchfs.tables.parquet.layout.delta import parse_delta
from touchfs.tables.parquet.layout.levels import parse_hybrid
from touchfs.tables.parquet.layout.plain_values import plain_ranges


def varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def packed(numbers: list[int], width: int) -> bytes:
    value = sum(number << (i * width) for i, number in enumerate(numbers))
    return value.to_bytes(len(numbers) * width // 8, "little")


@st.composite
def runs(draw: st.DrawFn) -> tuple[bytes, int, list[int]]:
    """Encoded numbers, their width and the numbers."""
    width = draw(st.integers(0, 20))
    numbers, data = [], b""
    for _ in range(draw(st.integers(0, 6))):
        one = st.integers(0, 2**width - 1)
        if draw(st.booleans()):
            count, value = draw(st.integers(1, 300)), draw(one)
            numbers += [value] * count
            data += varint(count << 1) + value.to_bytes((width + 7) // 8, "little")
        else:
            part = draw(st.lists(one, min_size=8, max_size=24).map(lambda found: found[: len(found) // 8 * 8]))
            numbers += part
            data += varint(len(part) // 8 << 1 | 1) + packed(part, width)
    return data, width, numbers


@given(runs(), st.integers(0, 700))
def test_runs_and_packed_numbers(made: tuple[bytes, int, list[int]], count: int) -> None:
    data, width, numbers = made
    if count <= len(numbers):
        assert parse_hybrid(data + b"behind", width, count).tolist() == numbers[:count]
    elif width:
        with pytest.raises(FormatError, match="cut off"):
            parse_hybrid(data, width, count)


@given(st.binary(max_size=100), st.integers(-1, 40), st.integers(0, 1000))
def test_any_bytes_as_levels(data: bytes, width: int, count: int) -> None:
    with suppress(FormatError):
        assert len(parse_hybrid(data, width, count)) == count


def zigzag(value: int) -> bytes:
    return varint(value << 1 if value >= 0 else -value * 2 - 1)


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=300))
def test_differences(numbers: list[int]) -> None:
    block, minis = 128, 4
    data = varint(block) + varint(minis) + varint(len(numbers)) + zigzag(numbers[0])
    deltas = np.diff(numbers).tolist()
    for first in range(0, len(deltas), block):
        part = deltas[first : first + block]
        least = min(part)
        each = [part[i : i + block // minis] for i in range(0, block, block // minis)]
        widths = [max((delta - least for delta in mini), default=0).bit_length() for mini in each]
        data += zigzag(least) + bytes(widths)
        for mini, width in zip(each, widths, strict=True):
            if mini:
                padded = [delta - least for delta in mini] + [0] * (block // minis - len(mini))
                data += packed(padded, width)
    assert parse_delta(data + b"values", len(numbers)).tolist() == numbers
    with pytest.raises(FormatError):
        parse_delta(data, len(numbers) - 1)


@given(st.binary(max_size=60))
def test_any_bytes_as_differences(data: bytes) -> None:
    with suppress(FormatError):
        found = parse_delta(data, 1000)
        assert len(found) <= 1000 and (found >= 0).all()


@given(st.lists(st.binary(max_size=9000), max_size=12), st.integers(0, 20))
def test_values_with_lengths(values: list[bytes], before: int) -> None:
    page = b"".join(struct.pack("<I", len(value)) + value for value in values)
    source = ParquetSource(bytes(before) + page + b"behind")
    starts, lengths = drive(plain_ranges(before, len(page), len(values), 0), source)
    assert [source.data[a : a + b] for a, b in zip(starts.tolist(), lengths.tolist(), strict=True)] == values
    with pytest.raises(FormatError, match="outside its page"):
        drive(plain_ranges(before, len(page), len(values) + 1, 0), source)
    if values:
        with pytest.raises(FormatError, match="outside its page"):
            drive(plain_ranges(before, len(page) - 1, len(values), 0), source)


def test_only_the_lengths_before_long_values_are_read() -> None:
    values = [bytes(100_000)] * 20
    page = b"".join(struct.pack("<I", len(value)) + value for value in values)
    source = ParquetSource(page)
    drive(plain_ranges(0, len(page), 20, 0), source)
    assert source.read_bytes == 80


def test_values_of_a_width() -> None:
    starts, lengths = drive(plain_ranges(10, 24, 3, 8), ParquetSource(b""))
    assert starts.tolist() == [10, 18, 26] and lengths.tolist() == [8] * 3
    with pytest.raises(FormatError, match="outside its page"):
        drive(plain_ranges(10, 23, 3, 8), ParquetSource(b""))
