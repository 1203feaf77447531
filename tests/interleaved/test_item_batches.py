"""A batch is a table with its lineage: counted, checked, converted, and with its locators as columns."""

import logging
import pickle

import pandas as pd
import pyarrow as pa
import pytest
from item_rows import batch_of, image_row, text_row

from touchfs.interleaved.items.batch import InterleavedBatch
from touchfs.interleaved.items.schema import INTERLEAVED_SCHEMA
from touchfs.interleaved.layout.source_ref import SourceRef

ROWS = [text_row(0, "t"), image_row(1, "x.tar", "m", 5, 6, 2), image_row(0, "y", sample_id="s2")]


def test_samples_are_items_and_rows_are_counted_by_modality():
    batch = batch_of(ROWS)
    assert batch.num_items == 2
    assert (batch.count(), batch.count(modality="image"), batch.count("text"), batch.count("audio")) == (3, 2, 1, 0)


def test_an_empty_batch():
    batch = InterleavedBatch()
    assert batch.table.schema.equals(INTERLEAVED_SCHEMA)
    assert (batch.num_items, batch.count(), batch.count("image"), batch.validate()) == (0, 0, 0, False)


def test_a_data_frame_and_a_table_are_the_same():
    batch = batch_of(ROWS)
    frame = batch.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    of_frame = InterleavedBatch(frame)
    assert of_frame.to_pandas() is frame
    assert of_frame.table.to_pylist() == batch.table.to_pylist()
    assert (of_frame.num_items, of_frame.count("image"), of_frame.validate()) == (2, 2, True)


def test_an_index_of_pandas_is_no_column():
    frame = pd.DataFrame({"sample_id": ["a", "b"], "position": [0, 0], "modality": ["text", "text"]}, index=[7, 9])
    table = InterleavedBatch(frame).table
    assert table.column_names == ["sample_id", "position", "modality"]
    assert not table.schema.metadata


@pytest.mark.parametrize("data", [None, [], {"sample_id": ["a"]}, "table"])
def test_other_data_is_a_type_error(data):
    with pytest.raises(TypeError, match="Arrow table or a DataFrame"):
        InterleavedBatch(data)


def test_a_column_of_several_types_is_a_type_error():
    with pytest.raises(TypeError, match="several types"):
        InterleavedBatch(pd.DataFrame({"sample_id": ["a", "b"], "url": [1, "x"]}))


def test_validate_names_missing_columns(caplog):
    with caplog.at_level(logging.WARNING):
        assert not InterleavedBatch(pa.table({"sample_id": ["a"]}), task_id="t7").validate()
    assert caplog.records[0].message == "batch t7 has no column position, modality"
    assert batch_of(ROWS).validate()


def test_other_rows_keep_the_lineage():
    batch = batch_of(ROWS, "x.tar", task_id="t", dataset_name="d", storage_options={"s3://b": {"anon": True}})
    other = batch.replaced(batch.table.slice(0, 1))
    assert other.count() == 1
    assert (other.source_files, other.task_id, other.dataset_name) == (("x.tar",), "t", "d")
    assert other.storage_options == {"s3://b": {"anon": True}}


def test_locators_as_columns():
    found = batch_of(ROWS).with_parsed_source_ref_columns()
    names = [f"_src_{name}" for name in ("path", "member", "byte_offset", "byte_size", "frame_index")]
    assert found[names].astype(object).where(found[names].notna(), None).values.tolist() == [
        [None, None, None, None, None],
        ["x.tar", "m", 5, 6, 2],
        ["y", None, None, None, None],
    ]
    assert "p_path" in batch_of(ROWS).with_parsed_source_ref_columns(prefix="p_").columns


def test_locators_of_a_batch():
    assert batch_of(ROWS).source_refs() == [SourceRef(), SourceRef("x.tar", "m", 5, 6, 2), SourceRef("y")]
    assert InterleavedBatch(pa.table({"sample_id": ["a"]})).source_refs() == [SourceRef()]


def test_batches_go_to_other_processes():
    batch = batch_of(ROWS, "x.tar", task_id="t", storage_options={"s3://b": {"anon": True}})
    found = pickle.loads(pickle.dumps(batch))
    assert found.table.equals(batch.table)
    assert (found.source_files, found.task_id, found.storage_options) == (("x.tar",), "t", {"s3://b": {"anon": True}})


def test_secrets_are_not_shown():
    assert "hunter2" not in repr(batch_of(ROWS, storage_options={"s3://b": {"secret": "hunter2"}}))
