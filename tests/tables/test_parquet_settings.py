"""Payloads in our Parquet files are plain ranges of them; other columns are compressed."""

import pyarrow
import pyarrow.parquet as parquet
import pytest

from touchfs.core.errors import ArgumentValueError
from touchfs.tables.parquet.write_settings import payload_settings

IMAGE = pyarrow.struct({"bytes": pyarrow.binary(), "path": pyarrow.string()})
SCHEMA = pyarrow.schema(
    {
        "name": pyarrow.string(),
        "data": pyarrow.large_binary(),
        "image": IMAGE,
        "pages": pyarrow.list_(IMAGE),
        "map.of": pyarrow.map_(pyarrow.string(), pyarrow.binary()),
        "price": pyarrow.decimal128(30, 2),
    }
)
PAYLOADS = {"data", "image.bytes", "pages.list.element.bytes", "map.of.key_value.value"}


def rows(count: int) -> pyarrow.Table:
    image = {"bytes": bytes(70_000), "path": "a.png"}
    row = {"name": "a", "data": b"x" * 70_000, "image": image, "pages": [image, None], "map.of": [("k", b"v")]}
    return pyarrow.Table.from_pylist([row] * count, SCHEMA)


@pytest.mark.parametrize(("compression", "codec"), [("zstd", "ZSTD"), ("snappy", "SNAPPY"), (None, "UNCOMPRESSED")])
def test_payloads_are_plain_and_all_else_is_compressed(tmp_path, compression, codec):
    with parquet.ParquetWriter(tmp_path / "a.parquet", SCHEMA, **payload_settings(SCHEMA, compression)) as writer:
        writer.write_table(rows(10))
    group = parquet.ParquetFile(tmp_path / "a.parquet").metadata.row_group(0)
    columns = [group.column(i) for i in range(group.num_columns)]
    assert {column.path_in_schema for column in columns} >= PAYLOADS
    for column in columns:
        assert column.has_offset_index
        if column.path_in_schema in PAYLOADS:
            assert column.compression == "UNCOMPRESSED"
            assert not column.has_dictionary_page
            assert set(column.encodings) == {"PLAIN", "RLE"}
        else:
            assert column.compression == codec
            assert column.has_dictionary_page or column.total_compressed_size == 0
    assert (tmp_path / "a.parquet").read_bytes().count(b"x" * 70_000) == 10
    assert parquet.read_table(tmp_path / "a.parquet").equals(rows(10))


def test_a_codec_that_parquet_does_not_have():
    with pytest.raises(ArgumentValueError, match="no compression 'rar'"):
        payload_settings(SCHEMA, "rar")
