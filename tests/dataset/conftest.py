"""Processes that several tests take, as each costs a second to start."""

from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context

import pytest


@pytest.fixture(scope="session")
def processes() -> Iterator[Executor]:
    with ProcessPoolExecutor(2, get_context("forkserver")) as executor:
        yield executor
