"""Histograms: counts of parts are those of the whole, quantiles are near, and bars lose nothing."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from touchfs.statistics.buckets import BUCKETS, LARGEST, Histogram, bucket_of, start_of

NUMBERS = st.lists(st.integers(0, 1 << 60) | st.integers(0, 200), max_size=60)


def histogram(numbers):
    found = Histogram()
    found.add(np.array(numbers, np.int64))
    return found


@given(NUMBERS)
def test_a_number_is_in_its_bucket(numbers):
    for number, bucket in zip(numbers, bucket_of(np.array(numbers, np.int64)).tolist(), strict=True):
        number = min(number, LARGEST)
        assert start_of(bucket) <= number < start_of(bucket + 1) and bucket < BUCKETS
        assert start_of(bucket + 1) - start_of(bucket) <= max(1, number / 32)


@given(NUMBERS, NUMBERS)
def test_parts_are_the_whole(first, second):
    found = histogram(first)
    found.merge(histogram(second))
    assert found == histogram(first + second)
    assert Histogram.from_json(json.loads(json.dumps(found.to_json()))) == found
    numbers = [min(each, LARGEST) for each in first + second]
    assert (found.count, found.total) == (len(numbers), sum(numbers))
    assert (found.least, found.most) == (min(numbers, default=0), max(numbers, default=0))


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=60), st.floats(0, 1))
def test_a_quantile_is_right_to_a_32nd(numbers, share):
    exact = sorted(numbers)[max(int(np.ceil(share * len(numbers))) - 1, 0)]
    assert exact <= histogram(numbers).quantile(share) <= exact * (1 + 1 / 32)


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=60))
def test_bars_are_exact(numbers):
    bars, width = histogram(numbers).bars()
    assert sum(bars) == len(numbers) and len(bars) <= 50 and width & (width - 1) == 0
    slow = [0] * len(bars)
    for number in numbers:
        slow[min(number // width, len(bars) - 1)] += 1
    assert bars == slow


@pytest.mark.parametrize("value", [[], [1, 2], [0, 0, 0, [-1, 5]], [0, 0, 0, [BUCKETS, 1]], [0, 0, 0, ["x", 1]], None])
def test_what_is_no_histogram_is_refused(value):
    with pytest.raises((ValueError, TypeError)):
        Histogram.from_json(value)
