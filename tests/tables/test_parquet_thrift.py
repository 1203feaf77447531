"""Thrift's compact protocol: what is built is read again, and any other bytes are a FormatError."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from touchfs.core.errors import FormatError
from touchfs.tables.parquet.layout.thrift import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    I32,
    I64,
    LIST,
    MAP,
    SET,
    STRUCT,
    TRUE,
    CompactReader,
    TruncatedError,
    build_binary,
    build_integer,
    build_list,
    build_struct,
)

INTEGERS = st.integers(-(2**63), 2**63 - 1)


@given(INTEGERS, st.binary(max_size=200), st.lists(INTEGERS, max_size=40), st.booleans())
def test_a_struct_is_read_as_it_was_built(number: int, data: bytes, numbers: list[int], flag: bool) -> None:
    made = build_struct(
        [
            (1, I64, build_integer(number)),
            (2, BINARY, build_binary(data)),
            (40, LIST, build_list(I64, [build_integer(each) for each in numbers])),
            (41, TRUE if flag else FALSE, b""),
            (1000, STRUCT, build_struct([(3, I32, build_integer(-1))])),
        ]
    )
    reader = CompactReader(made + b"behind")
    found: dict[int, object] = {}
    for field, kind in reader.fields():
        match field:
            case 1:
                found[field] = reader.number(kind)
            case 2:
                found[field] = reader.binary(kind)
            case 40:
                found[field] = [reader.integer() for _ in range(reader.elements(kind, I64))]
            case 41:
                found[field] = reader.flag(kind)
            case _:
                found[field] = [(inner, reader.number(of)) for inner, of in reader.struct(kind)]
    assert found == {1: number, 2: data, 40: numbers, 41: flag, 1000: [(3, -1)]}
    assert reader.position == len(made)
    skipped = CompactReader(made)
    skipped.skip(STRUCT)
    assert skipped.position == len(made)
    for size in range(len(made)):
        with pytest.raises(TruncatedError):
            CompactReader(made[:size]).skip(STRUCT)


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    for kind in range(16):
        reader = CompactReader(data)
        try:
            reader.skip(kind)
        except FormatError:
            continue
        assert reader.position <= len(data)


def test_values_of_other_types_are_skipped() -> None:
    map_ = bytes([2, BINARY << 4 | BYTE, 1, 65, 7, 1, 66, 8])
    made = build_struct(
        [(1, DOUBLE, bytes(8)), (2, MAP, map_), (3, MAP, b"\0"), (4, SET, bytes([2 << 4 | TRUE, 1, 2]))]
    )
    reader = CompactReader(made)
    reader.skip(STRUCT)
    assert reader.position == len(made)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x1c" * 100, "nested over"),
        (b"\x19\x1c" * 100, "nested over|cut off"),
        (b"\x19\xf3" + b"\xff" * 8 + b"\x01", "cut off"),  # a list of more elements than bytes
        (b"\x18" + b"\xff" * 8 + b"\x01", "cut off"),  # bytes longer than the data
        (b"\x16" + b"\xff" * 10 + b"\x01\0", "64 bits"),
        (b"\x1e\0", "unknown type 14"),
    ],
)
def test_hostile_metadata(data: bytes, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        CompactReader(data).skip(STRUCT)


def test_values_of_wrong_types() -> None:
    for read in (CompactReader.number, CompactReader.flag, CompactReader.binary, CompactReader.text):
        with pytest.raises(FormatError, match="a value of type 12"):
            read(CompactReader(b"\0\0"), STRUCT)
    with pytest.raises(FormatError, match="a list of type 5 where one of type 12"):
        CompactReader(build_list(I32, [build_integer(1)])).elements(LIST, STRUCT)
    with pytest.raises(FormatError, match="a value of type 5 where a struct"):
        CompactReader(b"\0").struct(I32)
