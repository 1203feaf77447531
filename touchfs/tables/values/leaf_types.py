"""Types of columns with other types in place of their leaves, and types of our own that mark leaves."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow


class MarkedType(pyarrow.ExtensionType):  # type: ignore[misc]
    """A type that says what its storage means where no type of pyarrow does. `mark` is one of the constants below."""

    def __init__(self, mark: str, storage: pyarrow.DataType) -> None:
        self.mark = mark
        super().__init__(storage, f"touchfs.{mark}")

    def __arrow_ext_serialize__(self) -> bytes:
        return self.mark.encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pyarrow.DataType, serialized: bytes) -> MarkedType:
        return cls(serialized.decode(), storage)


# Intervals that pyarrow has a type for, and no class of arrays: months as int32; days and milliseconds as two int32.
MONTHS, DAYS = MarkedType("months", pyarrow.int32()), MarkedType("days", pyarrow.int64())
# Timestamps of Parquet: nanoseconds of the day as int64, and the Julian day as int32
INT96 = MarkedType("int96", pyarrow.binary(12))
# Damaged values: the text says what is wrong.
DAMAGED = MarkedType("damaged", pyarrow.string())

_INTERVALS = {pyarrow.lib.Type_INTERVAL_MONTHS: MONTHS, pyarrow.lib.Type_INTERVAL_DAY_TIME: DAYS}


def with_leaves(kind: pyarrow.DataType, leaf: Callable[[pyarrow.DataType], pyarrow.DataType]) -> pyarrow.DataType:
    """A type in which `leaf` returned each leaf. Extension types are their storage."""
    types = pyarrow.types
    if isinstance(kind, pyarrow.BaseExtensionType):
        return with_leaves(kind.storage_type, leaf)
    if types.is_dictionary(kind):
        return pyarrow.dictionary(kind.index_type, with_leaves(kind.value_type, leaf), kind.ordered)
    if types.is_run_end_encoded(kind):
        return pyarrow.run_end_encoded(kind.run_end_type, with_leaves(kind.value_type, leaf))
    if not kind.num_fields:
        return leaf(kind)
    fields = (
        [kind.key_field, kind.item_field] if types.is_map(kind) else [kind.field(i) for i in range(kind.num_fields)]
    )
    fields = [field.with_type(with_leaves(field.type, leaf)) for field in fields]
    if types.is_struct(kind):
        return pyarrow.struct(fields)
    if types.is_map(kind):
        return pyarrow.map_(*fields, keys_sorted=kind.keys_sorted)
    if types.is_union(kind):
        return pyarrow.union(fields, kind.mode, kind.type_codes)
    if types.is_fixed_size_list(kind):
        return pyarrow.list_(*fields, kind.list_size)
    return _LISTS[kind.id](*fields)


_LISTS = {
    pyarrow.lib.Type_LIST: pyarrow.list_,
    pyarrow.lib.Type_LARGE_LIST: pyarrow.large_list,
    pyarrow.lib.Type_LIST_VIEW: pyarrow.list_view,
    pyarrow.lib.Type_LARGE_LIST_VIEW: pyarrow.large_list_view,
}


def readable(array: pyarrow.Array) -> pyarrow.Array:
    """The same values, intervals as types whose arrays have a class."""
    kind = with_leaves(array.type, lambda leaf: _INTERVALS.get(leaf.id, leaf))
    return array if kind == with_leaves(array.type, lambda leaf: leaf) else array.view(kind)


def unchecked(array: pyarrow.Array) -> pyarrow.Array:
    """The same buffers as types of which any value is valid, so that pyarrow checks their structure only.

    Lists with nulls of no type in them look damaged: `Array.view` makes these nulls too few.
    """
    return array.view(with_leaves(array.type, _unchecked))


def _unchecked(kind: pyarrow.DataType) -> pyarrow.DataType:
    types = pyarrow.types
    if kind.id in _BYTES:
        return _BYTES[kind.id]
    if types.is_decimal(kind):
        return pyarrow.binary(kind.byte_width)
    if types.is_date(kind) or types.is_time(kind):
        return pyarrow.int32() if kind.bit_width == 32 else pyarrow.int64()
    return kind


_BYTES = {
    pyarrow.lib.Type_STRING: pyarrow.binary(),
    pyarrow.lib.Type_LARGE_STRING: pyarrow.large_binary(),
    pyarrow.lib.Type_STRING_VIEW: pyarrow.binary_view(),
}
