"""All types of Arrow: the cells of what pyarrow writes are the values that pyarrow reads."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from arrow_files import CODES, EVERY, FILES, all_cells, as_array, leaves, parse, walk, write_file, write_stream
from hypothesis import given, settings
from hypothesis import strategies as st

BYTES = st.binary(max_size=20)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = [pa.int8(), pa.uint16(), pa.int32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()]
# Types with cells, and values of them
PLAIN: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    *((kind, BYTES) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    *((kind, TEXT) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.binary(0), st.just(b"")),
    *((kind, st.integers(0, 100)) for kind in NUMBERS),
]
# Types without, which stand between them and have other numbers of buffers
OTHERS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.null(), st.none()),
    (pa.bool_(), st.booleans()),
    (pa.list_(pa.int8()), st.lists(st.integers(0, 9), max_size=3)),
    (pa.large_list(pa.binary()), st.lists(BYTES, max_size=3)),
    (pa.list_view(pa.binary_view()), st.lists(BYTES, max_size=3)),
    (pa.large_list_view(pa.null()), st.lists(st.none(), max_size=3)),
    (pa.map_(pa.string(), pa.int8()), st.lists(st.tuples(TEXT, st.integers(0, 9)), max_size=3)),
    (pa.decimal128(5, 2), st.decimals(-9, 9, places=2)),
    (pa.decimal256(5, 2), st.decimals(-9, 9, places=2)),
    (pa.date32(), st.dates()),
    (pa.date64(), st.dates()),
    (pa.time32("ms"), st.integers(0, 99)),
    (pa.time64("ns"), st.integers(0, 99).map(lambda number: 1000 * number)),  # Python has microseconds
    (pa.timestamp("us", "UTC"), st.integers(0, 99)),
    (pa.duration("s"), st.integers(0, 99)),
    (pa.month_day_nano_interval(), st.tuples(*[st.integers(0, 9)] * 3)),
]


@st.composite
def types(draw: st.DrawFn, depth: int = 0) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    which = draw(st.integers(0, 9))
    if depth < 3 and which < 3:
        children = draw(st.lists(types(depth=depth + 1), max_size=3))
        fields = [pa.field(f"c{number}", kind) for number, (kind, _) in enumerate(children)]
        return pa.struct(fields), st.fixed_dictionaries(
            {field.name: with_nulls(values) for field, (_, values) in zip(fields, children, strict=True)}
        )
    if depth < 3 and which == 3:
        size = draw(st.integers(0, 3))
        kind, values = draw(st.sampled_from(NUMBERS)), st.integers(0, 100)
        if draw(st.booleans()):
            inner = draw(st.integers(0, 2))
            kind, values = pa.list_(kind, inner), st.lists(values, min_size=inner, max_size=inner)
        return pa.list_(kind, size), st.lists(values, min_size=size, max_size=size)
    return draw(st.sampled_from(PLAIN if which < 8 else OTHERS))


def with_nulls(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values, values, values)


@st.composite
def batches(draw: st.DrawFn) -> list[pa.RecordBatch]:
    """Batches of the same columns, some of them slices."""
    columns = draw(st.lists(st.one_of(types(), st.just((CODES, st.integers(0, 2)))), min_size=1, max_size=4))
    made = []
    for _ in range(draw(st.integers(1, 3))):
        rows = draw(st.integers(0, 9))
        arrays = []
        for kind, values in columns:
            nulls = draw(st.booleans())
            column = draw(st.lists(with_nulls(values) if nulls else values, min_size=rows, max_size=rows))
            arrays.append(as_array(column, kind))
        batch = pa.record_batch(arrays, names=[f"f{number}" for number in range(len(columns))])
        start = draw(st.integers(0, rows))
        made.append(batch.slice(start, draw(st.integers(0, rows - start))))
    return made


def values_at(batch: pa.RecordBatch, path: tuple[int, ...]) -> list[bytes | None]:
    """What pyarrow says about the column at a path, as bytes."""
    array, chain = batch.column(path[0]), [batch.column(path[0])]
    for number in path[1:]:
        array = array.field(number)
        chain.append(array)
    made: list[bytes | None] = []
    for row in range(batch.num_rows):
        value = batch.column(path[0])[row].as_py()
        for number, parent in zip(path[1:], chain, strict=False):
            value = None if value is None else value[parent.type.field(number).name]
        made.append(None if value is None else as_bytes(value, array.type))
    return made


def as_bytes(value: Any, kind: pa.DataType) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if pa.types.is_fixed_size_list(kind):
        return b"".join(as_bytes(each, kind.value_type) for each in value)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return np.array(value, kind.to_pandas_dtype()).tobytes()
    scalar = pa.array([value], kind)
    return bytes(scalar.buffers()[1])[: kind.bit_width // 8]


WRITERS = st.sampled_from([write_file, write_stream])
CODECS = st.sampled_from([None, None, "zstd", "lz4"])


@settings(max_examples=2 * settings().max_examples)
@given(batches(), WRITERS, CODECS)
def test_cells_of_all_types(made: list[pa.RecordBatch], write: Any, codec: str | None) -> None:
    data = write(made, compression=codec)
    file = parse(data)
    assert len(file.batches) == len(made)
    assert [field.name for field in file.schema.fields] == made[0].schema.names
    for path in leaves(file.schema.fields):
        assert all_cells(data, path) == [value for batch in made for value in values_at(batch, path)], path


@pytest.mark.parametrize("name", FILES)
def test_types_without_cells_are_passed_over(name: str) -> None:
    data = FILES[name]
    walk(data)
    expected = [b"one", None, b"three"]
    assert all_cells(data, parse(data).schema.path("last"))[:3] == expected
    assert all_cells(data, parse(data).schema.path("struct", "a"))[:3] == [b"one", None, None]


@pytest.mark.parametrize("options", [{"use_legacy_format": True}, {"metadata_version": pa.ipc.MetadataVersion.V4}])
@pytest.mark.parametrize("write", [write_file, write_stream])
def test_older_versions(write: Any, options: dict[str, Any]) -> None:
    data = write([EVERY.drop_columns(["union", "sparse", "runs", "view", "list"])] * 2, **options)
    assert all_cells(data, parse(data).schema.path("last")) == [b"one", None, b"three"] * 2


def test_unions_and_runs_of_version_4() -> None:
    """The footer of a file has the version of its writer, which does not count: messages have their own."""
    options = {"metadata_version": pa.ipc.MetadataVersion.V4}
    for data in (write_stream([EVERY], **options), write_file([EVERY], **options)):
        assert all_cells(data, parse(data).schema.path("last")) == [b"one", None, b"three"]
