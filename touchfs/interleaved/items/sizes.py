"""Sizes of rows in memory, measured value by value."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.interleaved.items.columns import column_values
from touchfs.interleaved.layout.columns import IMAGE
from touchfs.interleaved.layout.source_ref import SourceRef, parse_source_ref

_VARIABLE = (pa.StringArray, pa.BinaryArray, pa.LargeStringArray, pa.LargeBinaryArray)

# Images of MINT-1T have 0.5 MB on average, and a frame of its TIFF files as much.
UNKNOWN_SIZE = 1 << 20


def row_bytes(table: pa.Table) -> NDArray[np.int64]:
    """Return the bytes that each row takes, without validity bits; shape (rows,)."""
    sizes = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        start = 0
        for chunk in column.chunks:
            sizes[start : start + len(chunk)] += _value_bytes(chunk)
            start += len(chunk)
    return sizes


def located_bytes(table: pa.Table) -> NDArray[np.int64]:
    """Return the bytes that rows without content will have once they are read, as far as their locators say; shape
    (rows,). An image whose size is not said is taken for `UNKNOWN_SIZE` bytes. Frames of a TIFF share its bytes.
    """
    sizes = np.zeros(table.num_rows, np.int64)
    has_content = table["binary_content"].is_valid().to_pylist() if "binary_content" in table.column_names else None
    modalities = column_values(table, "modality")
    seen: set[SourceRef] = set()
    for row, text in enumerate(column_values(table, "source_ref")):
        if modalities[row] != IMAGE or (has_content is not None and has_content[row]):
            continue
        try:
            ref = parse_source_ref(text)
        except FormatError:
            continue
        file = ref._replace(frame_index=None)
        if ref.path and not (ref.frame_index is not None and file in seen):
            sizes[row] = UNKNOWN_SIZE if ref.byte_size is None else ref.byte_size
            seen.add(file)
    return sizes


def _value_bytes(array: pa.Array) -> NDArray[np.int64]:
    """Return the bytes of each value of an array, nested ones included. They do not depend on how rows are chunked."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _value_bytes(array.storage)
    if pa.types.is_dictionary(kind):
        return _value_bytes(array.indices)
    if pa.types.is_map(kind):  # Arrow computes nothing of maps
        return _value_bytes(array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))))
    if pa.types.is_struct(kind):
        return sum((_value_bytes(child) for child in array.flatten()), np.zeros(len(array), np.int64))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        lengths = _numbers(pc.list_value_length(array))
        ends = np.cumsum(lengths)
        totals = np.concatenate(([0], np.cumsum(_value_bytes(array.flatten()))))
        sizes: NDArray[np.int64] = totals[ends] - totals[ends - lengths] + 8
        return sizes
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        array = array.cast(pa.large_binary())
    if isinstance(array, _VARIABLE):
        return _numbers(pc.binary_length(array)) + 8
    width = 0 if pa.types.is_null(kind) else max(kind.bit_width // 8, 1)
    return np.full(len(array), width, np.int64)


def _numbers(lengths: pa.Array) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers
