"""FILE groups of Parquet and JSON locators are converted into each other, also by real Parquet files."""

import hashlib
import io

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from item_rows import batch_of, contents, errors, image_row, text_row

from touchfs.interleaved.items.batch import InterleavedBatch
from touchfs.interleaved.items.file_column import FILE_TYPE, from_file_columns, is_file_type, to_file_columns
from touchfs.interleaved.items.materialize import materialize
from touchfs.interleaved.items.schema import align_interleaved_table, align_table, resolve_schema
from touchfs.interleaved.layout.source_ref import SourceRef, format_source_ref

OVERRIDES = {"source_ref": FILE_TYPE, "source_member": pa.string(), "source_frame_index": pa.int32()}


def file_table(*groups, **columns):
    """A table of images as FILE groups."""
    count = len(groups)
    rows = {
        "sample_id": ["s"] * count,
        "position": list(range(count)),
        "modality": ["image"] * count,
        "source_ref": pa.array(groups, FILE_TYPE),
    }
    return pa.table(rows | columns)


def through_parquet(table):
    stream = io.BytesIO()
    pyarrow.parquet.write_table(table, stream)
    return pyarrow.parquet.read_table(stream)


def test_file_groups_are_written_by_overrides_and_read_back():
    rows = [image_row(0, "x.tar", "a.tiff", 512, 20, 3), image_row(1, "b.png"), text_row(2, "t"), image_row(3)]
    table = batch_of(rows).table
    written = through_parquet(align_table(table, resolve_schema(None, OVERRIDES)))
    assert written["source_ref"].to_pylist()[:2] == [
        {"uri": "x.tar", "offset": 512, "size": 20, "content_type": "image/png", "checksum": None, "inline": None},
        {"uri": "b.png", "offset": None, "size": None, "content_type": "image/png", "checksum": None, "inline": None},
    ]
    assert written["source_ref"].null_count == 2
    assert written["source_member"].to_pylist() == ["a.tiff", None, None, None]
    assert written["source_frame_index"].to_pylist() == [3, None, None, None]
    read = align_interleaved_table(written)
    assert read.column_names == table.column_names
    expected = [{**row, "source_ref": None} if row["position"] == 3 else row for row in table.to_pylist()]
    assert read.to_pylist() == expected


def test_resolution(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"0123456789")
    table = file_table(
        {"uri": "a.bin"},
        {"uri": "a.bin", "size": 4},
        {"uri": "a.bin", "offset": 2, "size": 3},
        {"uri": "a.bin", "offset": 2},
        {"inline": b"inline"},
        {"uri": "gone", "inline": b"inline wins"},
        {"content_type": "image/png"},
        {},
        None,
    )
    found = materialize(InterleavedBatch(table, source_files=(str(tmp_path / "x.parquet"),)))
    assert contents(found) == [b"0123456789", b"0123", b"234", None, b"inline", b"inline wins", None, None, None]
    assert errors(found)[3] == "an offset without a size: 'a.bin'"
    assert errors(found)[6:] == ["missing path"] * 3


def test_what_is_wrong_with_a_group_is_the_error_of_its_row():
    found = from_file_columns(file_table({"uri": "a", "offset": 5}, {"size": 5}, {"uri": "a", "size": -5}))
    assert [error and error[:12] for error in found["materialize_error"].to_pylist()] == ["a FILE group"] * 3


def test_checksums_are_verified(tmp_path, caplog):
    (tmp_path / "a.bin").write_bytes(b"0123456789")
    digest = hashlib.sha256(b"0123").hexdigest()
    table = file_table(
        {"uri": "a.bin", "size": 4, "checksum": f"SHA-256:{digest}"},
        {"uri": "a.bin", "size": 5, "checksum": f"SHA-256:{digest}"},
        {"uri": "a.bin", "size": 5, "checksum": "ETAG:whatever"},
    )
    found = materialize(InterleavedBatch(table, source_files=(str(tmp_path / "x.parquet"),)))
    assert contents(found) == [b"0123", None, b"01234"]
    assert "SHA-256" in str(errors(found)[1])
    assert caplog.messages == ["1 checksums of images are not checked: they are of ETAG or CRC32C"]


def test_bytes_of_a_row_are_not_replaced_by_inline_ones():
    found = from_file_columns(file_table({"inline": b"in"}, binary_content=pa.array([b"had"], pa.large_binary())))
    assert found["binary_content"].to_pylist() == [b"had"]


def test_content_types_of_groups_go_to_rows_that_have_none():
    group = {"uri": "a", "content_type": "image/png"}
    found = from_file_columns(file_table(group, group, content_type=["image/jpeg", None]))
    assert found["content_type"].to_pylist() == ["image/jpeg", "image/png"]


def test_groups_with_some_of_the_fields_and_other_structs():
    assert is_file_type(pa.struct([("uri", pa.string()), ("size", pa.int64())]))
    assert is_file_type(FILE_TYPE)
    assert not is_file_type(pa.struct([("path", pa.string()), ("uri", pa.string())]))
    assert not is_file_type(pa.string())
    table = file_table(None).set_column(3, "source_ref", pa.array([{"uri": "a"}], pa.struct([("uri", pa.string())])))
    assert from_file_columns(table)["source_ref"].to_pylist() == [format_source_ref(SourceRef("a"))]


@pytest.mark.parametrize("convert", [from_file_columns, to_file_columns])
def test_tables_without_locators_stay(convert):
    table = pa.table({"a": [1]})
    assert convert(table) is table


NAMES = st.none() | st.text(min_size=1)
SIZES = st.none() | st.integers(0, 2**40)


@given(
    st.lists(st.builds(SourceRef, st.text(min_size=1), NAMES, SIZES, SIZES, SIZES.map(lambda n: n and n % 100), NAMES))
)
def test_locators_survive_as_file_groups(refs):
    """But an offset without a size, which is invalid in a group, and a size without an offset, which begins at 0."""
    rows = [image_row(i) | {"source_ref": format_source_ref(ref)} for i, ref in enumerate(refs)]
    found = InterleavedBatch(from_file_columns(to_file_columns(batch_of(rows).table))).source_refs()
    for ref, after in zip(refs, found, strict=True):
        offset = None if ref.byte_size is None else ref.byte_offset or 0
        assert after == ref._replace(byte_offset=offset)
