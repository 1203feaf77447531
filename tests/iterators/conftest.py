"""A state store of each test's own."""

import pytest
from state_store import path, store

from touchfs.iterators.iterators import Iterators

__all__ = ["path", "store"]


@pytest.fixture
def iterators(store, dataset):
    return Iterators(store, dataset)
