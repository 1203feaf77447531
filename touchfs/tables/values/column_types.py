"""Which columns have texts or bytes, however Arrow lays them out: in dictionaries, runs, views or extension types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from touchfs.core.extras import load_pyarrow

if TYPE_CHECKING:
    import pyarrow


def plain_type(kind: pyarrow.DataType) -> pyarrow.DataType:
    """The type of the values of a column."""
    pa = load_pyarrow()
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            return kind


def is_text(kind: pyarrow.DataType) -> bool:
    """True for texts."""
    types, plain = load_pyarrow().types, plain_type(kind)
    return bool(types.is_string(plain) or types.is_large_string(plain) or types.is_string_view(plain))


def is_bytes(kind: pyarrow.DataType) -> bool:
    """True for bytes of any length, and for those of a fixed one."""
    types, plain = load_pyarrow().types, plain_type(kind)
    return bool(is_long_bytes(plain) or types.is_fixed_size_binary(plain))


def is_long_bytes(kind: pyarrow.DataType) -> bool:
    """True for bytes of any length."""
    types, plain = load_pyarrow().types, plain_type(kind)
    return bool(types.is_binary(plain) or types.is_large_binary(plain) or types.is_binary_view(plain))
