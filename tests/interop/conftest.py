"""Peers in processes of their own."""

import pytest
from curator import Curator


@pytest.fixture(scope="module")
def curator():
    with Curator() as process:
        yield process
