"""Arrays of bytes that are made of buffers are the arrays that pyarrow makes."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from touchfs.interleaved.items.columns import binary_array


@given(st.lists(st.none() | st.binary(max_size=20)))
def test_bytes_and_nulls(values):
    found = binary_array(values)
    found.validate(full=True)
    assert found.equals(pa.array(values, pa.large_binary()))
    assert found.null_count == values.count(None)
