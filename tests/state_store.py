"""A state store of each test's own."""

import os
from contextlib import closing

import pytest

from touchfs.store.store import StateStore


@pytest.fixture
def path(tmp_path):
    return os.fspath(tmp_path / "state" / "store.sqlite")


@pytest.fixture
def store(path):
    with closing(StateStore(path)) as opened:
        yield opened
