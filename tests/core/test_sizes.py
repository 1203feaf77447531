"""Sizes as users write them."""

import pytest

from touchfs.core.errors import UsageError
from touchfs.limits import parse_size


def test_sizes() -> None:
    sizes = {
        "0": 0,
        "12": 12,
        "3k": 3000,
        "3 K": None,
        "50G": 50 * 10**9,
        "2TB": 2 * 10**12,
        "": None,
        "-1": None,
        "x": None,
    }
    for text, size in sizes.items():
        if size is None:
            with pytest.raises(UsageError, match="not a size"):
                parse_size(text)
        else:
            assert parse_size(text) == size
