"""Samples whose files are fetched ahead."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
from node import data

from touchfs.core.errors import FormatError
from touchfs.dataset.sample import Sample
from touchfs.node import LazyIndexedManifestIterator
from touchfs.node.transform.sample_files import prefetched


def samples() -> list[Sample]:
    return list(LazyIndexedManifestIterator(data.speech()))


@pytest.mark.parametrize("ahead", [1, 3, 100])
def test_they_are_the_same_in_the_same_order(ahead: int) -> None:
    assert list(prefetched(samples(), ahead)) == samples()


def test_an_error_comes_after_the_samples_before_it() -> None:
    def failing() -> Iterator[Sample]:
        yield from islice(samples(), 4)
        raise FormatError("damaged")

    taken = []
    with pytest.raises(FormatError, match="damaged"):
        for sample in prefetched(failing(), 3):
            taken.append(sample)
    assert taken == samples()[:4]
