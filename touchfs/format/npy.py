"""Headers of .npy files: version 1.0, C order, byte for byte as `numpy.save` writes them.

The magic is followed by a Python literal, padded so that the elements begin at a multiple of 64. NumPy leaves room in
it for the first dimension to grow to 21 digits, so that appending to a file can rewrite its header in place.

Source: numpy/lib/format.py.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from touchfs.core.errors import FormatError

# magic, version, length of the text
_HEADER = struct.Struct("<6sBBH")
_ALIGNMENT = 64
_GROWTH_DIGITS = 21


def build_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the header of an array with this dtype and shape. Raises FormatError if version 1.0 cannot express it."""
    if dtype.hasobject:
        raise FormatError(f"a .npy file of {dtype.str} would hold pickles", offset=0)
    descr = dtype.str if dtype.names is None else np.lib.format.dtype_to_descr(dtype)
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {tuple(int(n) for n in shape)!r}, }}"
    if shape:
        text += " " * (_GROWTH_DIGITS - len(str(int(shape[0]))))
    text += " " * (-(_HEADER.size + len(text) + 1) % _ALIGNMENT) + "\n"
    if len(text) >= 2**16 or not text.isascii():
        raise FormatError("this dtype does not fit a .npy header of version 1.0", offset=_HEADER.size)
    return _HEADER.pack(b"\x93NUMPY", 1, 0, len(text)) + text.encode("ascii")
