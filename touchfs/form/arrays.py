"""Forms of arrays, whose files are .npy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from touchfs.core.errors import FormatError
from touchfs.core.extent import Content, Extent, Memory, Rope
from touchfs.form.base import Form
from touchfs.form.computed import ComputedContent
from touchfs.format import npy
from touchfs.limits import Limits

_FLOAT32 = np.dtype("<f4")
# NumPy 1 has no more.
_DIMENSIONS_MAX = 32
# Plain numbers in the words of `numpy.dtype.str`. That constructor parses far more, records and objects among it.
_NUMBERS = re.compile(r"[<>|][biufc][0-9]{1,2}")


@dataclass(frozen=True, slots=True)
class Npy(Form):
    """`npy/DTYPE[/N/M…]`: an array of a NumPy dtype, one-dimensional unless a shape is given.

    `dtype` is as in `numpy.dtype.str`. The bytes of an array of a given shape have its length.
    """

    dtype: str
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.shape) > _DIMENSIONS_MAX or min(self.shape, default=0) < 0:
            raise FormatError(f"no array has the shape {self.shape}")
        _parse(self.dtype, self.shape)

    def __str__(self) -> str:
        return "/".join(("npy", self.dtype, *map(str, self.shape)))

    @property
    def item_size(self) -> int:
        return _parse(self.dtype, self.shape)[0].itemsize

    def size(self, length: int, detail: bytes) -> int:
        return _parse(self.dtype, self.shape)[1] + length

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        dtype, _ = _parse(self.dtype, self.shape)
        if self.shape and extent.size != dtype.itemsize * prod(self.shape):
            raise FormatError(f"{extent.size} bytes where an array of {dtype} of the shape {self.shape} should be")
        return Rope((Memory(npy.build_header(dtype, self.shape or (extent.size // dtype.itemsize,))), extent))


@lru_cache
def _parse(dtype: str, shape: tuple[int, ...]) -> tuple[np.dtype[Any], int]:
    """A dtype, and the size of the header of its arrays, which has room for any length. Raises FormatError."""
    if _NUMBERS.fullmatch(dtype) is None:
        raise FormatError(f"{dtype!r} is not a dtype of numbers")
    return np.dtype(dtype), len(npy.build_header(np.dtype(dtype), shape or (0,)))


@dataclass(frozen=True, slots=True)
class Lilcom(Form):
    """`lilcom/N[/M…]`: an array of this shape compressed by lilcom; the file has 32-bit floats."""

    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.shape or min(self.shape) < 0:
            raise FormatError(f"no array has the shape {self.shape}")

    def __str__(self) -> str:
        return "/".join(map(str, ("lilcom", *self.shape)))

    def size(self, length: int, detail: bytes) -> int:
        return len(self._header) + self._data_size

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        """lilcom decompresses a matrix only as a whole, so there is one window."""

        def render(offset: int, size: int) -> bytes:
            from touchfs.media.lilcom import decompress

            return decompress(bytes(extent.read(0, extent.size))).astype(_FLOAT32, copy=False).tobytes()

        size = self._data_size
        return Rope((Memory(self._header), ComputedContent(size, max(size, 1), render)))

    @property
    def _header(self) -> bytes:
        return npy.build_header(_FLOAT32, self.shape)

    @property
    def _data_size(self) -> int:
        return _FLOAT32.itemsize * prod(self.shape)
