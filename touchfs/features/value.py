"""Scalars: numbers, booleans, text and short binary values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from touchfs.core.errors import ArgumentValueError
from touchfs.core.extras import load_pyarrow
from touchfs.features.base import FeatureType

if TYPE_CHECKING:
    import pyarrow

_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = (*_INTEGERS, "float16", "float32", "float64", "bool", "string", "binary")


class Value(FeatureType):
    """A scalar of one of the `DTYPES`, which are Arrow's names. Raises ArgumentValueError for another dtype."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: str) -> None:
        if dtype not in DTYPES:
            raise ArgumentValueError(f"Unknown dtype {dtype!r}. Supported: {list(DTYPES)}")
        self.dtype = dtype

    def to_arrow_type(self) -> pyarrow.DataType:
        return getattr(load_pyarrow(), "bool_" if self.dtype == "bool" else self.dtype)()

    def to_json(self) -> dict[str, Any]:
        return {"type": "Value", "dtype": self.dtype}

    def __repr__(self) -> str:
        return f"Value({self.dtype!r})"
