"""Processes that several tests take, as each costs a second to start."""

from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from lance_process import one_lance_process

__all__ = ["one_lance_process"]


@pytest.fixture(scope="session")
def processes() -> Iterator[Executor]:
    with ProcessPoolExecutor(2, get_context("forkserver")) as executor:
        yield executor


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another job at work is not waited for. Else it is for 3 seconds, in which its workers may notice its end."""
    monkeypatch.setattr("touchfs.bulk.locks._PATIENCE_SECONDS", 0.05)
