"""Tables get the canonical types of reserved columns, and exactly those of a schema that is given."""

import datetime
import logging

import pyarrow as pa
import pytest

from touchfs.interleaved.items.schema import (
    INTERLEAVED_SCHEMA,
    RESERVED_COLUMNS,
    align_interleaved_table,
    align_table,
    reconcile_schema,
    resolve_schema,
)
from touchfs.interleaved.layout.columns import RESERVED_COLUMNS as FORMAT_COLUMNS


def test_the_schema():
    assert [(field.name, str(field.type), field.nullable) for field in INTERLEAVED_SCHEMA] == [
        ("sample_id", "string", False),
        ("position", "int32", False),
        ("modality", "string", False),
        ("content_type", "string", True),
        ("text_content", "string", True),
        ("binary_content", "large_binary", True),
        ("source_ref", "string", True),
        ("materialize_error", "string", True),
    ]


def test_reserved_columns_have_one_order():
    assert tuple(INTERLEAVED_SCHEMA.names) == RESERVED_COLUMNS == FORMAT_COLUMNS


def test_reconcile_gives_reserved_columns_their_types_and_keeps_the_order():
    found = reconcile_schema(
        pa.schema(
            [
                ("score", pa.float16()),
                ("position", pa.int64()),
                ("sample_id", pa.large_string()),
                ("binary_content", pa.binary()),
                pa.field("modality", pa.dictionary(pa.int8(), pa.string())),
                ("label", pa.dictionary(pa.int32(), pa.string())),
            ]
        )
    )
    assert [(field.name, str(field.type), field.nullable) for field in found] == [
        ("score", "halffloat", True),
        ("position", "int32", False),
        ("sample_id", "large_string", False),
        ("binary_content", "large_binary", True),
        ("modality", "string", False),
        ("label", "string", True),
    ]


def test_resolve():
    mine = pa.schema([("a", pa.int8())])
    assert resolve_schema(None, None) is None
    assert resolve_schema(None, {}) is None
    assert resolve_schema(mine, None) is mine
    found = resolve_schema(
        None, {"url": pa.string(), "text_content": pa.large_string(), "sample_id": pa.large_string()}
    )
    assert found.names == [*INTERLEAVED_SCHEMA.names, "url"]
    assert found.field("url").nullable
    assert found.field("text_content").type == pa.large_string()
    assert not found.field("sample_id").nullable


def test_both_a_schema_and_overrides_warn_and_the_schema_wins(caplog):
    mine = pa.schema([("a", pa.int8())])
    with caplog.at_level(logging.WARNING):
        assert resolve_schema(mine, {"b": pa.string()}) is mine
    assert [record.message for record in caplog.records] == [
        "schema_overrides is ignored because schema is given: use one of them"
    ]


def test_align_pads_drops_orders_and_casts():
    table = pa.table({"extra": [1], "b": [2], "a": pa.array([3], pa.int64())})
    target = pa.schema([("a", pa.int8()), ("c", pa.timestamp("us")), ("b", pa.float64())])
    found = align_table(table, target)
    assert found.schema.equals(target)
    assert found.to_pylist() == [{"a": 3, "c": None, "b": 2.0}]


def test_a_cast_of_a_passed_through_column_that_loses_is_an_error():
    with pytest.raises(pa.ArrowInvalid):
        align_table(pa.table({"a": [300]}), pa.schema([("a", pa.int8())]))
    with pytest.raises(pa.ArrowInvalid):
        align_table(pa.table({"position": [2**40]}), pa.schema([("position", pa.int32())]))
    with pytest.raises(pa.ArrowInvalid):
        align_table(pa.table({"a": [datetime.datetime(2020, 1, 1, 0, 0, 0, 1)]}), pa.schema([("a", pa.timestamp("s"))]))


def test_reserved_columns_may_become_small():
    table = pa.table(
        {"text_content": pa.array(["a"], pa.large_string()), "binary_content": pa.array([b"b"], pa.large_binary())}
    )
    target = pa.schema([("text_content", pa.string()), ("binary_content", pa.binary())])
    assert align_table(table, target).to_pylist() == [{"text_content": "a", "binary_content": b"b"}]


def test_align_without_a_schema_reconciles():
    table = pa.table({"position": [1], "label": pa.array(["x"]).dictionary_encode(), "sample_id": ["s"]})
    found = align_interleaved_table(table)
    assert found.to_pylist() == [{"position": 1, "label": "x", "sample_id": "s"}]
    assert found.schema.types == [pa.int32(), pa.string(), pa.string()]
    assert align_interleaved_table(table, pa.schema([("position", pa.int64())])).to_pylist() == [{"position": 1}]


def test_a_target_is_not_reconciled_again():
    target = pa.schema([("position", pa.int64()), ("label", pa.dictionary(pa.int32(), pa.string()))])
    table = pa.table({"position": [1], "label": ["x"]})
    assert align_table(table, target).schema.equals(target)
