"""Damaged and hostile Arrow files get a FormatError, quickly, and no read is outside the file."""

import struct

import pyarrow as pa
import pytest
from arrow_files import FILES, all_cells, parse, walk
from hypothesis import given, settings
from hypothesis import strategies as st

from touchfs.core.errors import FormatError
from touchfs.format.arrow import flatbuffers, schema
from touchfs.format.arrow.flatbuffers import I16, I32, I64, U8, Fields, Scalar, Structs
from touchfs.format.arrow.metadata import BLOCK, BUFFER, CONTINUATION, NODE, PREFIX


def every(few: int, many: int) -> pytest.MarkDecorator:
    """At each place that is this many bytes after another one: more of them are met in a variant."""
    return pytest.mark.parametrize("step", [few, pytest.param(many, marks=pytest.mark.variant)])


@pytest.mark.parametrize("name", FILES)
@every(13, 3)
def test_a_file_cut_anywhere(name: str, step: int) -> None:
    data, file = FILES[name], parse(FILES[name])
    ends = {batch.offset for batch in file.batches} | {each.place.offset for each in file.dictionaries}
    ends |= {batch.offset + batch.metadata_size + batch.body_size for batch in file.batches}
    for size in range(0, len(data), step):
        if file.is_stream and (size in ends or size == len(data) - 4):
            continue
        with pytest.raises(FormatError) as raised:
            walk(data[:size])
        assert 0 <= (raised.value.offset or 0) <= size


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=2 * settings().max_examples)
@given(changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes(name: str, changes: list[tuple[float, int]]) -> None:
    data = bytearray(FILES[name])
    for place, byte in changes:
        data[int(place * len(data))] = byte
    try:
        walk(bytes(data))
    except FormatError as error:
        assert error.offset is None or 0 <= error.offset <= len(data)


@pytest.mark.parametrize("name", FILES)
@every(83, 29)  # all places take a minute; odd numbers meet each byte of a number
def test_every_part_changed(name: str, step: int) -> None:
    for place in range(0, len(FILES[name]), step):
        for byte in (0, 0xFF):
            data = bytearray(FILES[name])
            data[place] = byte
            try:
                walk(bytes(data))
            except FormatError as error:
                assert error.offset is None or 0 <= error.offset <= len(data)


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    for head in (b"", b"ARROW1\0\0", b"\xff\xff\xff\xff"):
        with pytest.raises(FormatError):
            walk(head + data)


# Hostile schemas and batches, built by hand

Pairs = list[tuple[int, int]]
KIND_INT, KIND_BINARY, KIND_STRUCT, KIND_NULL, KIND_FIXED, KIND_LIST = 2, 4, 13, 1, 15, 16


def field(name: str, kind: int, children: list[Fields] | None = None, type_: Fields | None = None) -> Fields:
    return {0: name, 2: Scalar(U8, kind), 3: type_ or {}, 5: children or []}


def message(kind: int, header: Fields, body: bytes = b"", claimed: int | None = None) -> bytes:
    size = len(body) if claimed is None else claimed
    table = flatbuffers.build({0: Scalar(I16, 4), 1: Scalar(U8, kind), 2: header, 3: Scalar(I64, size)})
    table += bytes(-len(table) % 8)
    return PREFIX.pack(CONTINUATION, len(table)) + table + body


def stream(fields: list[Fields], *messages: bytes) -> bytes:
    return message(1, {1: fields}) + b"".join(messages)


def batch(
    rows: int, nodes: list[tuple[int, int]], buffers: list[tuple[int, int]], body: bytes, **more: Fields
) -> bytes:
    header: Fields = {0: Scalar(I64, rows), 1: Structs(NODE, nodes), 2: Structs(BUFFER, buffers)}
    if "counts" in more:
        header = {**header, 4: Structs(I64, [(count,) for count in more["counts"]])}
    return message(3, header, body)


def offsets(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values).ljust(16, b"\0")


BINARY = [field("a", KIND_BINARY)]
BODY = offsets(0, 1, 3) + b"abc".ljust(16, b"\0")
GOOD = [(0, 0), (0, 12), (16, 3)]


def test_a_batch_that_is_built_by_hand() -> None:
    data = stream(BINARY, batch(2, [(2, 0)], GOOD, BODY))
    assert all_cells(data, (0,)) == [b"a", b"bc"]


@pytest.mark.parametrize(
    "bad, problem",
    [
        (batch(2, [(2, 0)], GOOD, offsets(0, 3, 1) + bytes(16)), "decrease"),
        (batch(2, [(2, 0)], GOOD, offsets(0, 1, 4) + bytes(16)), "outside its column"),
        (batch(2, [(2, 0)], GOOD, offsets(-1, 1, 3) + bytes(16)), "outside its column"),
        (batch(2, [(2, 0)], [(0, 0), (0, 8), (16, 3)], BODY), "only 8 bytes"),
        (batch(2, [(2, 0)], [(0, 0), (0, 12), (16, 17)], BODY), "outside its Arrow batch"),
        (batch(2, [(2, 0)], [(0, 0), (0, 12), (-8, 3)], BODY), "outside its Arrow batch"),
        (batch(2, [(2, 0)], [(0, 0), (0, 12), (16, -3)], BODY), "outside its Arrow batch"),
        (batch(2, [(2, 0)], [(0, 0), (0, 12), (2**63 - 1, 2**63 - 1)], BODY), "outside its Arrow batch"),
        (batch(2, [(2, 0)], GOOD[:2], BODY), "not those of the schema"),
        (batch(2, [(2, 0)] * 2, GOOD, BODY), "not those of the schema"),
        (batch(2, [(2, 0)], GOOD, BODY, counts=[1]), "columns of views"),
        (batch(2, [(3, 0)], GOOD, BODY), "other numbers of values"),
        (batch(2, [(2, 3)], GOOD, BODY), "other numbers of values"),
        (batch(2, [(2, -1)], GOOD, BODY), "other numbers of values"),
        (batch(2, [(2, 1)], GOOD, BODY), "only 0 bytes"),
        (batch(-2, [(-2, 0)], GOOD, BODY), "a batch of -2 rows|Arrow batch of -2"),
        (batch(2**62, [(2**62, 0)], GOOD, BODY), "rows in 32 bytes"),
        (message(3, {0: Scalar(I64, 0)}, b"", claimed=100), "cut short"),
        (message(3, {0: Scalar(I64, 0)}, b"", claimed=-8), "cut short"),
        (message(3, {0: Scalar(I64, 0)}, b"", claimed=2**63 - 1), "cut short"),
        (message(4, {}), "another Arrow message"),
        (message(1, {1: BINARY}), "schema first, and only there"),
    ],
)
def test_batches_that_lie(bad: bytes, problem: str) -> None:
    data = stream(BINARY, bad)
    with pytest.raises(FormatError, match=problem) as raised:
        walk(data)
    assert 0 <= (raised.value.offset or 0) <= len(data)


@pytest.mark.parametrize(
    "view, counts, problem",
    [
        (struct.pack("<iiii", 13, 0, 0, 0), [1], None),
        (struct.pack("<iiii", 13, 0, 0, 4), [1], "outside its column"),
        (struct.pack("<iiii", 13, 0, 0, -1), [1], "outside its column"),
        (struct.pack("<iiii", 13, 0, 1, 0), [1], "does not exist"),
        (struct.pack("<iiii", 13, 0, -2, 0), [1], "does not exist"),
        (struct.pack("<iiii", -1, 0, 0, 0), [1], "outside its column"),
        (struct.pack("<iiii", 2**31 - 1, 0, 0, 2**31 - 1), [1], "outside its column"),
        (struct.pack("<iiii", 13, 0, 0, 0), [2], "not those of the schema"),
        (struct.pack("<iiii", 13, 0, 0, 0), [-1], "columns of views"),
        (struct.pack("<iiii", 13, 0, 0, 0), [2**62, 2**62], "columns of views"),
        (struct.pack("<iiii", 13, 0, 0, 0), [2**63 - 1], "not those of the schema"),
        (struct.pack("<iiii", 13, 0, 0, 0), [], "columns of views"),
    ],
)
def test_views_that_lie(view: bytes, counts: list[int], problem: str | None) -> None:
    bad = batch(1, [(1, 0)], [(0, 0), (0, 16), (16, 16)], view + b"sixteen bytes in", counts=counts)
    data = stream([field("a", 23)], bad)
    if problem is None:
        assert all_cells(data, (0,)) == [b"sixteen bytes"]
        return
    with pytest.raises(FormatError, match=problem):
        walk(data)


def nested(depth: int) -> Fields:
    made = field("leaf", KIND_BINARY)
    for _ in range(depth - 1):
        made = field("s", KIND_STRUCT, [made])
    return made


def test_nesting() -> None:
    assert len(parse(stream([nested(64)])).schema.chain((0,) * 64)) == 64
    for depth in (65, 200):
        with pytest.raises(FormatError, match="over 64 deep"):
            parse(stream([nested(depth)]))


def test_offsets_of_a_schema_that_lead_anywhere() -> None:
    """Each word of it as each offset in it: some lead back to tables that were read, or into other values."""
    good = stream([nested(3), field("b", KIND_BINARY)])
    for place in range(PREFIX.size, len(good), 4):
        for offset in range(0, len(good), 4):
            data = good[:place] + struct.pack("<I", offset) + good[place + 4 :]
            try:
                parse(data)
            except FormatError as error:
                assert 0 <= (error.offset or 0) <= len(data)


@pytest.mark.parametrize("most", [1500, pytest.param(schema.FIELDS_MAX, marks=pytest.mark.variant)])
def test_too_many_columns(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "FIELDS_MAX", most)
    assert len(parse(stream(BINARY * 1000)).schema.fields) == 1000
    data = stream(BINARY * (most + 1))
    with pytest.raises(FormatError, match=f"over {most:,} fields"):
        parse(data)


def test_rows_without_bytes() -> None:
    null = [field("a", KIND_NULL)]
    assert [len(parse(stream(null, batch(10**6, [(10**6, 0)], [], b""))).batches)] == [1]
    walk(stream(null, batch(10**6, [(10**6, 0)], [], b"")))
    for rows in (2**21, 2**31, 2**62):
        with pytest.raises(FormatError, match="rows in 0 bytes"):
            walk(stream(null, batch(rows, [(rows, 0)], [], b"")))


def test_lists_that_are_too_long() -> None:
    size = 2**31 - 1
    inner = field("item", KIND_INT, type_={0: Scalar(I32, 64)})
    middle = field("item", KIND_LIST, [inner], {0: Scalar(I32, size)})
    outer = field("a", KIND_LIST, [middle], {0: Scalar(I32, size)})
    nodes = [(1, 0), (size, 0), (size * size, 0)]
    for claimed in (nodes, [(1, 0), (size, 1), (size * size, 1)], [(1, 0), (1, 0), (1, 0)]):
        with pytest.raises(FormatError):
            walk(stream([outer], batch(1, claimed, [(0, 8)] * 4, bytes(8))))
    with pytest.raises(FormatError, match="-1 bytes or elements"):
        parse(stream([field("a", KIND_FIXED, type_={0: Scalar(I32, -1)})]))


def test_dictionaries() -> None:
    coded: Fields = {**field("a", KIND_BINARY), 4: {0: Scalar(I64, 7)}}
    rows = batch(1, [(1, 0)], [(0, 0), (0, 4)], bytes(8))
    with pytest.raises(FormatError, match="lacks dictionary 7"):
        parse(stream([coded], rows))
    assert not parse(stream([coded])).batches
    values = {0: Scalar(I64, 7), 1: {0: Scalar(I64, 0)}}
    delta = {**values, 2: Scalar(U8, 1)}
    file = parse(stream([coded], message(2, values), rows, message(2, delta), rows))
    assert [(each.number, each.is_delta) for each in file.dictionaries] == [(7, False), (7, True)]
    assert len(file.batches) == 2


def test_footers_that_lie() -> None:
    good = FILES["file"]
    (start, metadata_size, body_size) = parse(good).batches[0]
    (size,) = struct.unpack_from("<i", good, len(good) - 10)
    footer = len(good) - 10 - size
    place = good.index(BLOCK.pack(start, metadata_size, body_size), footer)
    for block in (
        (footer - 8, metadata_size, body_size),
        (start, metadata_size, footer - start - metadata_size + 1),
        (start, metadata_size, 2**63 - 1),
        (2**63 - 1, metadata_size, 2**63 - 1),
        (-8, metadata_size, body_size),
        (start, -1, body_size),
        (start, 0, body_size),
        (start, metadata_size, -8),
        (start, 2**31 - 1, 0),
        (0, metadata_size, body_size),
        parse(good).batches[1],
    ):
        data = good[:place] + BLOCK.pack(*block) + good[place + BLOCK.size :]
        with pytest.raises(FormatError, match="cannot be at byte"):
            parse(data)
    for claimed in (-1, 0, len(good), 2**31 - 1):
        with pytest.raises(FormatError):
            parse(good[:-10] + struct.pack("<i", claimed) + b"ARROW1")


def packed(data: bytes, claimed: int) -> bytes:
    return struct.pack("<q", claimed) + pa.compress(data, "zstd", asbytes=True)


@pytest.mark.parametrize(
    "offsets_buffer, problem",
    [
        (packed(offsets(0, 1, 3)[:12], 12), None),
        (struct.pack("<q", -1) + offsets(0, 1, 3)[:12], None),
        (packed(bytes(2**27), 2**27), None),  # of which no more is decompressed than two rows need
        (packed(offsets(0, 1, 3)[:12], 2**40), "not read: decoded it has over"),
        (packed(offsets(0, 1, 3)[:8], 8), "only 8 bytes"),
        (packed(offsets(0, 1, 3)[:8], 12), "has 8 bytes"),
        (packed(offsets(0, 1, 3)[:12], -7), "buffer of -7 bytes"),
        (struct.pack("<q", 12) + b"no frame", "is damaged"),
        (b"\0\0", "lacks its size"),
    ],
)
def test_compressed_offsets_that_lie(offsets_buffer: bytes, problem: str | None) -> None:
    values = packed(b"abc", 3)
    size = len(offsets_buffer) + -len(offsets_buffer) % 8
    body = offsets_buffer.ljust(size, b"\0") + values
    header: Fields = {
        0: Scalar(I64, 2),
        1: Structs(NODE, [(2, 0)]),
        2: Structs(BUFFER, [(0, 0), (0, len(offsets_buffer)), (size, len(values))]),
        3: {0: Scalar(U8, 1)},
    }
    data = stream(BINARY, message(3, header, body))
    if problem is not None:
        with pytest.raises(FormatError, match=problem):
            walk(data)
    elif len(offsets_buffer) < 1000:
        assert all_cells(data, (0,)) == [b"a", b"bc"]
    else:
        assert all_cells(data, (0,), limit=10**9) == [b"", b""]
