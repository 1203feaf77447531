"""The parts of a file that a request asks for, as RFC 9110 has them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from touchfs.serve.ranges import RANGES_MAX, is_listed, parse_ranges


@pytest.mark.parametrize(
    ("header", "spans"),
    [
        ("bytes=0-0", [(0, 1)]),
        ("bytes=90-", [(90, 10)]),
        ("bytes=90-1000", [(90, 10)]),
        ("bytes=-7", [(93, 7)]),
        ("bytes=-1000", [(0, 100)]),
        ("Bytes = 1-2 , 5-6", [(1, 2), (5, 2)]),
        ("bytes=200-,0-1", [(0, 2)]),
        ("bytes=100-", []),
        ("bytes=-0", []),
        ("bytes=-", None),
        ("bytes=", None),
        ("bytes=5-2", None),
        ("bytes=+1-2", None),
        ("bytes=١-٢", None),
        ("bytes=" + "9" * 5000 + "-", []),
        ("bytes=90-" + "9" * 5000, [(90, 10)]),
        ("bytes=0-9223372036854775807", [(0, 100)]),
        ("bytes=0-18446744073709551615", [(0, 100)]),
        ("bytes=-99999999999999999999", [(0, 100)]),
        ("bytes=0000000000000000000001-2", [(1, 2)]),
        ("items=0-1", None),
        ("0-1", None),
        ("bytes=0-,0-", None),
        ("bytes=" + ",".join(["0-0"] * (RANGES_MAX + 1)), None),
    ],
)
def test_ranges_of_a_hundred_bytes(header, spans):
    assert parse_ranges(header, 100) == spans


@given(st.text(alphabet="bytes=0123456789-, x", max_size=60), st.integers(0, 2000))
def test_no_header_asks_for_what_is_not_there(text, size):
    for header in (text, "bytes=" + text):
        spans = parse_ranges(header, size) or []
        assert all(offset >= 0 and length > 0 and offset + length <= size for offset, length in spans)
        assert sum(length for _, length in spans) <= size


def test_versions_that_a_condition_lists():
    assert is_listed('"a"', '"b", W/"a"')
    assert is_listed('"a"', " * ")
    assert not is_listed('"a"', '"ab", a')
