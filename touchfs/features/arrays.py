"""Arrays of a fixed shape, stored as their elements in C order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from touchfs.core.errors import ArgumentValueError
from touchfs.core.extras import load_pyarrow
from touchfs.features.base import FeatureType

if TYPE_CHECKING:
    import pyarrow


class _Array(FeatureType):
    __slots__ = ("dtype", "shape")
    _dimensions: ClassVar[int]

    def __init__(self, shape: Sequence[int], dtype: str = "uint8") -> None:
        self.shape = tuple(shape)
        if len(self.shape) != self._dimensions or not all(type(n) is int and n >= 0 for n in self.shape):
            raise ArgumentValueError(f"{type(self).__name__} needs {self._dimensions} sizes, not shape={shape}")
        try:
            has_bytes = not np.dtype(dtype).hasobject
        except TypeError:
            has_bytes = False
        if not has_bytes:
            raise ArgumentValueError(
                f"Unknown dtype {dtype!r}: give the name of one of NumPy's that is stored as bytes"
            )
        self.dtype = dtype

    def to_arrow_type(self) -> pyarrow.DataType:
        return load_pyarrow().large_binary()

    def encode(self, value: Any, *, cache_dir: Path | None = None) -> bytes | None:
        """Return the elements in C order; None for None.

        Raises ArgumentValueError if there are not as many as the shape says.
        """
        if value is None:
            return None
        array = np.asarray(value, dtype=self.dtype)
        if array.size != math.prod(self.shape):
            raise ArgumentValueError(f"an array of shape {array.shape} does not fit {self!r}")
        return array.tobytes()

    def to_json(self) -> dict[str, Any]:
        return {"type": type(self).__name__, "shape": list(self.shape), "dtype": self.dtype}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype!r})"


class Array3D(_Array):
    """An array of three dimensions and a NumPy dtype, such as a volume. Its bytes are in large_binary."""

    __slots__ = ()
    _dimensions = 3


class Array4D(_Array):
    """An array of four dimensions and a NumPy dtype, such as a short video. Its bytes are in large_binary."""

    __slots__ = ()
    _dimensions = 4
