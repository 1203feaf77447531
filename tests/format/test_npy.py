import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, scalar_dtypes

from touchfs.core.errors import FormatError
from touchfs.format.npy import build_header


@given(scalar_dtypes(), st.just(()) | array_shapes(min_side=0, max_side=3))
def test_as_numpy_saves(dtype: np.dtype, shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, dtype)
    saved = io.BytesIO()
    np.save(saved, array)
    assert build_header(array.dtype, shape) + array.tobytes() == saved.getvalue()


@pytest.mark.parametrize(
    "dtype", [np.dtype("<i2"), np.dtype(">f8"), np.dtype([("start", "<f8"), ("channel", "<i4", (2,))])]
)
def test_dtypes(dtype: np.dtype) -> None:
    array = np.zeros((7, 2), dtype)
    saved = io.BytesIO()
    np.save(saved, array)
    assert build_header(dtype, (7, 2)) + array.tobytes() == saved.getvalue()


def test_a_shape_too_big_to_save_here() -> None:
    header = build_header(np.dtype("<i2"), (10**12,))
    assert len(header) % 64 == 0
    assert np.lib.format.read_magic(file := io.BytesIO(header)) == (1, 0)
    assert np.lib.format.read_array_header_1_0(file) == ((10**12,), False, np.dtype("<i2"))


def test_refusals() -> None:
    with pytest.raises(FormatError, match="pickles"):
        build_header(np.dtype("O"), (1,))
    with pytest.raises(FormatError, match=r"version 1\.0"):
        build_header(np.dtype([("長さ", "<i2")]), (1,))
    with pytest.raises(FormatError, match=r"version 1\.0"):
        build_header(np.dtype([(f"field{i}", "<i2") for i in range(5000)]), (1,))
