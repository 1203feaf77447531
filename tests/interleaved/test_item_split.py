"""Batches have at most so many bytes, as measured, and a sample is never split."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from item_rows import batch_of, image_row

from touchfs.interleaved.items.policy import apply_policy
from touchfs.interleaved.items.sizes import UNKNOWN_SIZE, located_bytes, row_bytes
from touchfs.interleaved.items.split import split_by_size
from touchfs.interleaved.layout.source_ref import SourceRef, format_source_ref


def table_of(samples):
    ids, contents = zip(*samples, strict=True) if samples else ((), ())
    return pa.table({"sample_id": pa.array(ids, pa.string()), "binary_content": pa.array(contents, pa.large_binary())})


def ids(tables):
    return [table["sample_id"].to_pylist() for table in tables]


def test_no_limit_is_one_table():
    table = table_of([("a", b"1"), ("b", b"2"), ("a", b"3")])
    assert list(split_by_size(table, None)) == [table]


def test_an_empty_table_is_one_table():
    table = table_of([])
    assert list(split_by_size(table, 10)) == [table]


@pytest.mark.parametrize("limit", [0, -1])
def test_limits_are_positive(limit):
    with pytest.raises(ValueError, match=f"max_batch_bytes must be > 0, got {limit}"):
        split_by_size(table_of([("a", b"")]), limit)
    with pytest.raises(ValueError, match="max_batch_rows must be > 0"):
        split_by_size(table_of([("a", b"")]), None, limit)


def test_a_missing_column():
    with pytest.raises(ValueError, match="Group column 'sample_id' not found in table"):
        split_by_size(pa.table({"a": [1]}), 10)


def test_null_ids():
    with pytest.raises(ValueError, match="Group column 'sample_id' contains null values"):
        split_by_size(table_of([("a", b""), (None, b"")]), 10)


def test_a_large_sample_is_a_table_of_its_own():
    table = table_of([("a", b"1"), ("b", bytes(1000)), ("b", bytes(1000)), ("c", b"2")])
    assert ids(split_by_size(table, 100)) == [["a"], ["b", "b"], ["c"]]


def test_uneven_samples_do_not_overshoot():
    """The original estimates by the mean of all rows: its second batch has 100,000 bytes here."""
    table = table_of([(f"s{i}", bytes(10)) for i in range(100)] + [("l1", bytes(50_000)), ("l2", bytes(50_000))])
    tables = list(split_by_size(table, 60_000))
    assert [len(part) for part in tables] == [101, 1]
    assert all(row_bytes(part).sum() <= 60_000 for part in tables)


def test_rows_of_a_sample_that_are_apart_stay_together():
    """The original tears them apart."""
    table = table_of([("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4"), ("b", b"5")])
    tables = list(split_by_size(table, 1))
    assert ids(tables) == [["a", "a"], ["b", "b"], ["c"]]
    assert [part["binary_content"].to_pylist() for part in tables] == [[b"1", b"3"], [b"2", b"5"], [b"4"]]


def test_a_limit_of_rows():
    table = table_of([("a", b""), ("a", b""), ("b", b""), ("c", b""), ("c", b""), ("c", b"")])
    assert ids(split_by_size(table, None, 3)) == [["a", "a", "b"], ["c", "c", "c"]]
    assert ids(split_by_size(table, None, 1)) == [["a", "a"], ["b"], ["c", "c", "c"]]


def test_null_contents_take_no_bytes():
    table = table_of([("a", None), ("b", b"12345678")])
    assert np.diff(row_bytes(table)).tolist() == [8]


def test_sizes_of_nested_columns_follow_their_values():
    short, long = [{"x": "a", "y": [1]}], [{"x": "b" * 100, "y": [1, 2, 3]}, {"x": "c" * 50, "y": None}]
    for kind in (pa.list_, pa.large_list):
        column = pa.array([short, None, long], kind(pa.struct([("x", pa.string()), ("y", pa.list_(pa.int64()))])))
        sizes = row_bytes(pa.table({"a": column}))
        assert sizes[1] <= 16 < sizes[0] < 60 and 150 + 24 < sizes[2] < 250
        assert row_bytes(pa.table({"a": pa.chunked_array([column, column])}).slice(1, 4)).tolist() == [
            *sizes.tolist()[1:],
            *sizes.tolist()[:2],
        ]


def test_other_types_have_a_size():
    table = pa.table(
        {
            "a": pa.array(["x", "y"]).dictionary_encode(),
            "b": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int8())),
            "c": pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
            "d": [True, None],
            "e": pa.nulls(2),
        }
    )
    assert (row_bytes(table) > 0).all()
    assert row_bytes(table.slice(0, 0)).tolist() == []


def test_sizes_that_locators_declare():
    rows = [
        image_row(0, "x", "m", 0, 500),
        image_row(1, "x", "m", 0, 500),
        image_row(2, "x", "n", 0, 500, 1),
        image_row(3, "x", "n", 0, 500, 0),
        image_row(4, "x", "m", 0, 500, binary_content=b"there"),
        image_row(5),
        image_row(6, "x"),
        image_row(7) | {"source_ref": "no JSON"},
        image_row(8, "x", "m", 0, 500) | {"modality": "metadata"},
    ]
    assert located_bytes(batch_of(rows).table).tolist() == [500, 500, 500, 0, 0, 0, UNKNOWN_SIZE, 0, 0]


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.none() | st.integers(0, 200).map(bytes)), min_size=1),
    st.integers(1, 600),
)
def test_all_rows_once_in_order_of_samples_within_the_limit(samples, limit):
    table = table_of(samples)
    tables = list(split_by_size(table, limit))
    rows = [row for part in tables for row in part.to_pylist()]
    first = {row["sample_id"]: i for i, row in reversed(list(enumerate(table.to_pylist())))}
    assert rows == sorted(table.to_pylist(), key=lambda row: first[row["sample_id"]])
    for part in tables:
        assert row_bytes(part).sum() <= limit or len(set(part["sample_id"].to_pylist())) == 1
    together = [set(part["sample_id"].to_pylist()) for part in tables]
    assert sum(map(len, together)) == len(set().union(*together))
    totals = [row_bytes(part).sum() for part in tables]
    firsts = [
        row_bytes(part.filter(pa.compute.equal(part["sample_id"], part["sample_id"][0]))).sum() for part in tables
    ]
    assert all(total + following > limit for total, following in zip(totals, firsts[1:], strict=False))


def with_errors():
    rows = [
        image_row(0, sample_id="a"),
        image_row(1, sample_id="a", materialize_error="bad"),
        image_row(0, sample_id="b"),
    ]
    return batch_of(rows).table


def test_policy_error():
    with pytest.raises(RuntimeError, match=r"Materialization failed \(1 errors\)\. First: bad"):
        apply_policy(with_errors(), "error")
    with pytest.raises(RuntimeError):
        apply_policy(with_errors())


def test_policy_error_names_the_file_and_the_sample():
    ref = format_source_ref(SourceRef("/data/x.tar", "a.png"))
    table = batch_of([image_row(3, sample_id="a", materialize_error="failed to read path", source_ref=ref)]).table
    with pytest.raises(RuntimeError) as caught:
        apply_policy(table)
    assert str(caught.value).endswith("failed to read path: /data/x.tar: a.png, at position 3 (sample 'a')")


def test_policy_warn(caplog):
    assert apply_policy(with_errors(), "warn").to_pylist() == with_errors().to_pylist()
    assert caplog.records[0].message == "materialize: 1 errors (mode=warn, keeping rows)"


def test_policy_drop_row(caplog):
    found = apply_policy(with_errors(), "drop_row")
    assert caplog.records[0].message == "materialize: dropped 1 error rows"
    assert list(zip(found["sample_id"].to_pylist(), found["position"].to_pylist(), strict=True)) == [("a", 0), ("b", 0)]


def test_policy_drop_sample(caplog):
    assert apply_policy(with_errors(), "drop_sample")["sample_id"].to_pylist() == ["b"]
    assert caplog.records[0].message == "materialize: dropped 1 samples with errors"


@pytest.mark.parametrize("policy", ["error", "warn", "drop_row", "drop_sample"])
def test_policies_without_errors(policy):
    table = with_errors()
    for each in (table.slice(0, 1), table.drop_columns(["materialize_error"]), table.slice(0, 0)):
        assert apply_policy(each, policy) is each


def test_policy_that_is_none():
    with pytest.raises(ValueError, match="on_materialize_error is one of error, warn, drop_row, drop_sample"):
        apply_policy(with_errors(), "ignore")


def test_all_rows_with_errors_may_be_dropped():
    table = with_errors().slice(1, 1)
    assert apply_policy(table, "drop_row").num_rows == apply_policy(table, "drop_sample").num_rows == 0
