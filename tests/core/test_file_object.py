"""A file object gives what Python's own file in memory gives."""

import io

import pytest
from conformance import MemorySource
from hypothesis import given
from hypothesis import strategies as st

from touchfs.core.extent import Extent, Memory, Rope
from touchfs.core.extent.file_object import FileObject

DATA = bytes(range(256)) * 5


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("read"), st.integers(-1, 700)),
            st.tuples(st.just("read")),
            st.tuples(st.just("seek"), st.integers(0, 2000)),
            st.tuples(st.just("seek"), st.integers(-20, 2000), st.just(io.SEEK_END)),
            st.tuples(st.just("seek"), st.integers(0, 100), st.just(io.SEEK_CUR)),
            st.tuples(st.just("tell")),
        ),
        max_size=20,
    ),
    st.booleans(),
)
def test_as_a_file_in_memory(calls, is_buffered):
    content = Rope([Memory(DATA[:300]), Extent(MemorySource(DATA), 300, len(DATA) - 300)])
    file, oracle = FileObject(content), io.BytesIO(DATA)
    wrapped = io.BufferedReader(file, 64) if is_buffered else file
    for name, *arguments in calls:
        assert getattr(wrapped, name)(*arguments) == getattr(oracle, name)(*arguments)


def test_a_position_before_the_beginning():
    file = FileObject(Memory(DATA))
    for kind in (ValueError, OSError):
        with pytest.raises(kind, match="before the beginning"):
            file.seek(-1)
    with pytest.raises(ValueError, match="whence"):
        file.seek(0, 3)
