from hypothesis import given
from hypothesis import strategies as st

from touchfs.tree.inode import ROOT, ROW_BITS, SHARD_BITS, VIEW_BITS, pack, unpack

views = st.integers(0, 2**VIEW_BITS - 1)
shard_ids = st.integers(0, 2**SHARD_BITS - 1)
rows = st.integers(0, 2**ROW_BITS - 1)


@given(views, shard_ids, rows)
def test_a_place_and_its_number(view, shard_id, row):
    inode = pack(view, shard_id, row)
    assert unpack(inode) == (view, shard_id, row)
    assert 0 <= inode < 2**63, "the kernel's signed 64 bits, and the tag bit of handles"


@given(st.tuples(views, shard_ids, rows), st.tuples(views, shard_ids, rows))
def test_numbers_are_ordered_as_their_places(one, other):
    assert (one < other) == (pack(*one) < pack(*other))


def test_the_root_is_number_one():
    assert pack(0, 0, 1) == ROOT == 1
