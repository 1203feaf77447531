"""The layout of the Parquet files that we write: payloads (images, sounds, arrays) can be read one by one.

By default pyarrow puts payloads into one compressed dictionary page: about 20 MB, or all of a small row group, are
decompressed to read one of them. Here a leaf column of plain bytes is stored uncompressed, without a dictionary, in
small pages, so a value is a range of the file. All other columns are compressed and have dictionaries. The page index
says where pages are.

Source: parquet.apache.org/docs/file-format: Encodings (PLAIN), and PageIndex.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from touchfs.core.errors import ArgumentValueError
from touchfs.core.extras import load_pyarrow

if TYPE_CHECKING:
    import pyarrow

# Writers collect this many bytes of rows for a row group. A reader of columns holds one chunk of a row group at a time.
ROW_GROUP_BYTES = 64 * 2**20
# A page ends with the value that reaches this size. Smaller pages would have more headers; one costs about 30 bytes.
_PAGE_BYTES = 128 * 1024
# pyarrow looks at the size of a page after this many values. Its default, 1024, gives pages of 20 MB for images of 20
# kB. 1 costs 0.7 µs a row.
_VALUES_PER_CHECK = 1


def payload_settings(schema: pyarrow.Schema, compression: str | None = "zstd") -> dict[str, Any]:
    """Return the arguments of `pyarrow.parquet.ParquetWriter` for files of this schema.

    `compression` is the codec of all columns but payloads; None for none. Raises ArgumentValueError if pyarrow has no
    such codec, and MissingExtraError without pyarrow.
    """
    pa = load_pyarrow()
    if compression is not None and not _is_codec(pa, compression):
        raise ArgumentValueError(f"Parquet has no compression {compression!r}: choose zstd, snappy, gzip, lz4 or none")
    payloads, others = _leaves(pa, schema)
    return {
        "compression": dict.fromkeys(payloads, "none") | dict.fromkeys(others, compression or "none"),
        "use_dictionary": others,
        "write_statistics": others,
        "write_page_index": True,
        "data_page_size": _PAGE_BYTES,
        "write_batch_size": _VALUES_PER_CHECK,
    }


def _is_codec(pa: Any, name: str) -> bool:
    try:
        return name.lower() == "none" or bool(pa.Codec.is_available(name))
    except ValueError:
        return False


def _leaves(pa: Any, schema: pyarrow.Schema) -> tuple[list[str], list[str]]:
    """Return the paths of the leaf columns: payloads, and others. pyarrow itself says what paths a file has."""
    import pyarrow.parquet as parquet

    empty = pa.BufferOutputStream()
    parquet.write_table(schema.empty_table(), empty)
    columns = parquet.ParquetFile(pa.BufferReader(empty.getvalue())).schema
    payloads: list[str] = []
    others: list[str] = []
    for i in range(len(columns)):
        column = columns.column(i)
        is_payload = column.physical_type == "BYTE_ARRAY" and column.logical_type.type == "NONE"
        (payloads if is_payload else others).append(column.path)
    return payloads, others
